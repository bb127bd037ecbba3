"""Starting from weights that there are already: what fits is taken, and all that does not fit is named."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trainers.loop.errors import WeightsMismatchError
from trainers.loop.phase import FrozenModule
from trainers.loop.weights.named import digest_of, named_tensors

Modules = nn.Module | Mapping[str, nn.Module | FrozenModule]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialWeights:
    """What modules start from.

    Attributes:
        reused: Names of the modules' weights that were taken.
        new: Of those that were not, and are as they were before.
        dropped: Of the weights that nothing was done with.
        digest: SHA-256 of what was reused: in the settings of `Checkpoints`, it refuses to resume from other weights.
    """

    reused: tuple[str, ...]
    new: tuple[str, ...]
    dropped: tuple[str, ...]
    digest: str

    def __str__(self) -> str:
        """One line with every name."""
        rest = (("new", self.new), ("dropped", self.dropped))
        others = [f"{word}: {', '.join(names)}" for word, names in rest if names]
        return "; ".join([f"reused {len(self.reused)} weights: {', '.join(self.reused)}", *others])


def take_weights(
    modules: Modules,
    tensors: Mapping[str, Tensor],
    *,
    new: str | Iterable[str] = (),
    dropped: str | Iterable[str] = (),
) -> InitialWeights:
    """Fill modules from tensors by name: all of one from all of the other, but for what is declared.

    Call it before the modules train. In a group every process does, with the same tensors.

    Args:
        modules: As a `Loop` takes them, named `module.path`; or one module, named by its own paths.
        tensors: By the same names: `Checkpoints(folder).weights()`, a module's `state_dict()`, or what
            `safetensors.torch.load_file` reads.
        new: Weights of the modules that keep what they hold, each by its name or by a beginning of it, such as `head`
            for `head.weight`.
        dropped: Tensors that are not wanted, likewise. What is replaced by a new one of the same name is in both.

    Raises:
        WeightsMismatchError: A name stands in one only, shapes or kinds differ, a weight holds no numbers or some that
            are not finite, weights that share their memory are to differ, or what is declared is not so. The message
            names all of it, and nothing was changed.
    """
    new, dropped = _names(new), _names(dropped)
    here, aliases = _tensors_of(modules)
    unwanted = tuple(name for name in tensors if _matches(name, dropped))
    fresh = tuple(name for name in here if _matches(name, new))
    wanted = {name: tensor for name, tensor in here.items() if name not in fresh}
    offered = _by_first_name({name: tensors[name] for name in tensors if name not in unwanted}, aliases)
    problems = [
        *_undeclared(wanted, offered, fresh=fresh, unwanted=unwanted),
        *_unmatched("new", new, "modules", here),
        *_unmatched("dropped", dropped, "weights", tensors),
        *(_difference(name, offered[name], tensor) for name, tensor in wanted.items() if name in offered),
    ]
    problems += [] if any(problems) else _at_odds(wanted, offered)
    problems = [problem for problem in problems if problem] or ([] if wanted else ["nothing is left to reuse"])
    if problems:
        raise WeightsMismatchError(f"the weights do not fit the modules: {'; '.join(problems)}")
    with torch.no_grad():
        # Copied first, because what is offered may be views of the modules themselves.
        taken = [next(iter(offered[name].values())).clone() for name in wanted]
        for tensor, values in zip(wanted.values(), taken, strict=True):
            tensor.copy_(values)
    return InitialWeights(reused=tuple(wanted), new=fresh, dropped=unwanted, digest=digest_of(wanted.items()))


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _matches(name: str, beginnings: Iterable[str]) -> bool:
    return any(name == beginning or name.startswith(f"{beginning}.") for beginning in beginnings)


def _tensors_of(modules: Modules) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The modules' weights by name, and the first name of those that stand at several places."""
    given = {"": modules} if isinstance(modules, nn.Module) else modules
    plain = {name: part.module if isinstance(part, FrozenModule) else part for name, part in given.items()}
    here = {name.removeprefix("."): tensor for name, tensor in named_tensors(plain).items()}
    first = {id(tensor): name for name, tensor in here.items()}
    places = {
        f"{part}.{name}".removeprefix("."): first[id(tensor)]
        for part, module in plain.items()
        for name, tensor in module.state_dict(keep_vars=True).items()
        if id(tensor) in first
    }
    return here, places


def _by_first_name(tensors: Mapping[str, Tensor], aliases: Mapping[str, str]) -> dict[str, dict[str, Tensor]]:
    """The offered tensors, each with the name it came by, by the first name that the modules have for it."""
    by_name: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        by_name.setdefault(aliases.get(name, name), {})[name] = tensor
    return by_name


def _undeclared(
    wanted: Iterable[str],
    offered: Mapping[str, Mapping[str, Tensor]],
    *,
    fresh: Sequence[str],
    unwanted: Sequence[str],
) -> Iterator[str]:
    """What stands in one only, and what must be declared for it."""
    lacking = [name for name in wanted if name not in offered]
    over = [(first, name) for first, named in offered.items() if first not in wanted for name in named]
    strange, kept = [[name for first, name in over if (first in fresh) is same] for same in (False, True)]
    absent, left = [[name for name in lacking if (name in unwanted) is same] for same in (False, True)]
    yield _listed("only in the modules", absent, "declare as new what is to start fresh")
    yield _listed("only in the modules, as they are dropped from the weights", left, "declare them as new too")
    yield _listed("only in the weights", strange, "declare as dropped what is not to be used")
    yield _listed("only in the weights, as they are new in the modules", kept, "declare them as dropped too")


def _unmatched(word: str, beginnings: Iterable[str], where: str, names: Iterable[str]) -> Iterator[str]:
    known = list(names)
    missed = [beginning for beginning in beginnings if not any(_matches(name, (beginning,)) for name in known)]
    yield _listed(f"{word} names nothing in the {where}", missed, "")


def _listed(problem: str, names: Sequence[str], advice: str) -> str:
    """The problem with every name: what is not named cannot be mended."""
    if not names:
        return ""
    return f"{problem}: {', '.join(names)}{f' ({advice})' if advice else ''}"


def _difference(name: str, offered: Mapping[str, Tensor], here: Tensor) -> str:
    """How a weight differs from what is offered for it; nothing if it can be taken."""
    unlike = [given for given, tensor in offered.items() if _kind(tensor) != _kind(here) or tensor.is_meta]
    if unlike:
        where = "" if unlike == [name] else f" as {name}"
        return f"{unlike[0]} is {_kind(offered[unlike[0]])} in the weights and {_kind(here)} in the modules{where}"
    first, *others = offered.values()
    if first.is_floating_point() and not torch.isfinite(first).all():
        return f"{name} holds values that are not finite"
    if any(not torch.equal(first, tensor) for tensor in others):
        return f"one weight in the modules, but different values: {' and '.join(offered)}"
    return ""


def _at_odds(wanted: Mapping[str, Tensor], offered: Mapping[str, Mapping[str, Tensor]]) -> Iterator[str]:
    """Weights that share their memory in the modules, and are to be different things."""
    places: dict[tuple[int, torch.Size], str] = {}
    for name, tensor in wanted.items():
        if not tensor.numel():
            continue
        first = places.setdefault((tensor.data_ptr(), tensor.shape), name)
        one, other = (next(iter(offered[each].values())) for each in (first, name))
        if not torch.equal(one, other):
            yield f"sharing memory in the modules, but with different values: {first} and {name}"


def _kind(value: object) -> str:
    """Kind and shape, and why there is nothing to copy from or to."""
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    if is_lazy(value):
        return "of no shape yet"
    kind = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if value.is_meta:
        return f"{kind} without content"
    return kind if value.layout is torch.strided else f"{kind} of layout {value.layout}"
