"""Initial weights from an existing state: matching tensors are loaded, and the others are reported."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from trainers.loop.errors import UncoveredParameterError, WeightsMismatchError, listed
from trainers.loop.phase import FrozenModule


def check_coverage(
    phases: Mapping[str, tuple[Sequence[Parameter], Optimizer]],
    modules: Mapping[str, nn.Module],
) -> None:
    """Check that phases, optimizers and modules have the same parameters [...].

    Raises:
        UncoveredParameterError: A phase's parameters are not its optimizer's; one of them is frozen or in no module; a
            parameter is trained by two phases; a trainable parameter of a module is in no phase.
    """
    names = parameter_names(modules.items())
    owners: dict[Parameter, str] = {}
    for phase, (parameters, optimizer) in phases.items():
        held = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        _refuse(held ^ set(parameters), names, f"phase {phase!r}: its parameters and its optimizer's differ in")
        frozen = [parameter for parameter in parameters if not parameter.requires_grad]
        _refuse(frozen, names, f"phase {phase!r}: the optimizer holds frozen parameters (requires_grad is False):")
        strange = [parameter for parameter in parameters if parameter not in names]
        _refuse(strange, names, f"phase {phase!r}: the optimizer holds parameters of no module given in `modules`:")
        shared = [parameter for parameter in parameters if parameter in owners]
        _refuse(shared, names, f"phase {phase!r}: another phase trains the same parameters:")
        owners.update(dict.fromkeys(parameters, phase))
    left = [parameter for parameter in names if parameter.requires_grad and parameter not in owners]
    _refuse(
        left,
        names,
        "no optimizer holds these trainable parameters; give them to one, freeze them or use Frozen(module):",
    )


def parameter_names(modules: Iterable[tuple[str, nn.Module]]) -> dict[Parameter, str]:
    """Every parameter [...] with its name, such as `net.head.weight`."""
    return {
        parameter: f"{module_name}.{name}"
        for module_name, module in modules
        for name, parameter in module.named_parameters()
    }


def named_tensors(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Every parameter and buffer of any shape that belongs to the modules' state, by name; caches do not.

    Of what stands at several places, the first.
    """
    named: dict[str, Tensor] = {}
    for module_name, module in modules.items():
        state = module.state_dict(keep_vars=True)
        buffers = [(name, buffer) for name, buffer in module.named_buffers() if name in state]
        named |= {f"{module_name}.{name}": tensor for name, tensor in (*module.named_parameters(), *buffers)}
    return named


def kept_buffers(modules: Mapping[str, nn.Module]) -> list[Tensor]:
    """The buffers among them, of any shape, such as BatchNorm's statistics."""
    return [tensor for tensor in named_tensors(modules).values() if not isinstance(tensor, Parameter)]


def _refuse(parameters: Iterable[Parameter], names: Mapping[Parameter, str], problem: str) -> None:
    refused = [names.get(parameter, f"an unnamed {list(parameter.shape)}") for parameter in parameters]
    if refused:
        raise UncoveredParameterError(f"{problem} {listed(sorted(refused))}")


def digest(module: nn.Module) -> str:
    """SHA-256 over the names, shapes and bits of all parameters and buffers; the same on every device."""
    return digest_of((*module.named_parameters(), *module.named_buffers()))


def digest_of(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """The same over tensors of any shape by name, in their order."""
    sha = hashlib.sha256()
    for name, tensor in tensors:
        sha.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        content = tensor.detach().cpu().contiguous().flatten()
        sha.update(content.view(torch.uint8).numpy().data)
    return sha.hexdigest()


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
