"""Initial weights, moving averages and best weights, and checks that every parameter is trained by one phase."""

import hashlib
import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from trainers.loop.errors import (
    NoBestWeightsError,
    ResumeMismatchError,
    SettingsError,
    UncoveredParameterError,
    WeightsMismatchError,
    join_names,
)
from trainers.loop.loss import check_finite_score
from trainers.loop.phase import FrozenModule
from trainers.loop.step.guards import Nonfinite


def check_coverage(
    phases: Mapping[str, tuple[Sequence[Parameter], Optimizer]],
    modules: Mapping[str, nn.Module],
) -> None:
    """Check that phases, optimizers and modules have the same parameters.

    Raises:
        UncoveredParameterError: The parameters of a phase and of its optimizer differ; a parameter is frozen, in no
            module or in two phases; or a trainable parameter of a module is in no phase.
    """
    names = name_parameters(modules.items())
    owners: dict[Parameter, str] = {}
    for phase, (parameters, optimizer) in phases.items():
        in_optimizer = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        _refuse(in_optimizer ^ set(parameters), names, f"phase {phase!r}: its parameters and its optimizer's differ in")
        frozen = [parameter for parameter in parameters if not parameter.requires_grad]
        _refuse(frozen, names, f"phase {phase!r}: the optimizer holds frozen parameters (requires_grad is False):")
        unknown = [parameter for parameter in parameters if parameter not in names]
        _refuse(unknown, names, f"phase {phase!r}: the optimizer holds parameters of no module given in `modules`:")
        shared = [parameter for parameter in parameters if parameter in owners]
        _refuse(shared, names, f"phase {phase!r}: another phase trains the same parameters:")
        owners.update(dict.fromkeys(parameters, phase))
    uncovered = [parameter for parameter in names if parameter.requires_grad and parameter not in owners]
    _refuse(
        uncovered,
        names,
        "no optimizer holds these trainable parameters; add them to one, freeze them or use FrozenModule(module):",
    )


def name_parameters(modules: Iterable[tuple[str, nn.Module]]) -> dict[Parameter, str]:
    """Return the name of every parameter, such as `net.head.weight`; the first one of a shared parameter."""
    names: dict[Parameter, str] = {}
    for module_name, module in modules:
        for name, parameter in module.named_parameters():
            names.setdefault(parameter, f"{module_name}.{name}")
    return names


def list_named_tensors(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Return every parameter and persistent buffer of any shape, by name.

    A tensor that several modules share appears under its first name only.
    """
    names: dict[Tensor, str] = {}
    for module_name, module in modules.items():
        state = module.state_dict(keep_vars=True)
        buffers = [(name, buffer) for name, buffer in module.named_buffers() if name in state]
        for name, tensor in (*module.named_parameters(), *buffers):
            names.setdefault(tensor, f"{module_name}.{name}")
    return {name: tensor for tensor, name in names.items()}


def _refuse(parameters: Iterable[Parameter], names: Mapping[Parameter, str], problem: str) -> None:
    refused = [names.get(parameter, f"an unnamed {list(parameter.shape)}") for parameter in parameters]
    if refused:
        raise UncoveredParameterError(f"{problem} {join_names(sorted(refused))}")


def hash_tensors(module: nn.Module) -> str:
    """Return the SHA-256 of names, dtypes, shapes and values of all parameters and buffers, on any device."""
    return hash_weights((*module.named_parameters(), *module.named_buffers()))


def hash_weights(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Return the SHA-256 of names, dtypes, shapes and values of tensors, in their order."""
    sha = hashlib.sha256()
    for name, tensor in tensors:
        sha.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        content = tensor.detach().cpu().contiguous().flatten()
        sha.update(content.view(torch.uint8).numpy().data)
    return sha.hexdigest()


Modules = nn.Module | Mapping[str, nn.Module | FrozenModule]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialWeights:
    """A summary of the weights that modules start from.

    Attributes:
        reused: Names of the modules' weights that were copied from the given ones.
        new: Names of the modules' weights that were left unchanged.
        dropped: Names of the given weights that were not used.
        digest: SHA-256 of the reused weights. As a setting of `Checkpoints` it prevents a resume with other weights.
    """

    reused: tuple[str, ...]
    new: tuple[str, ...]
    dropped: tuple[str, ...]
    digest: str

    def __str__(self) -> str:
        """The summary in one line, with all names."""
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
    """Copy tensors into the weights of modules by name; all names must match, except those that are declared.

    Call it before the modules are trained. In a group, every process must call it with the same tensors.

    Args:
        modules: The modules of a `Loop`, whose weights are named `module.path`; or one module, whose weights are named
            by path.
        tensors: The tensors by the same names, such as `Checkpoints(folder).weights()`, a module's `state_dict()` or
            the result of `safetensors.torch.load_file`.
        new: Weights of the modules that stay unchanged, each by name or prefix, such as `head` for `head.weight`.
        dropped: Tensors to ignore, likewise. To replace a tensor by a new weight of the same name, list it in both.

    Raises:
        WeightsMismatchError: A name is missing on one side; shapes or types differ; a weight has no content or is not
            finite; weights that share memory would get different values; or a declared name does not exist. The
            message names all problems, and no weight was changed.
    """
    new = (new,) if isinstance(new, str) else tuple(new)
    dropped = (dropped,) if isinstance(dropped, str) else tuple(dropped)
    here, aliases = _list_weights(modules)
    dropped_names = tuple(name for name in tensors if _match_names(name, dropped))
    new_names = tuple(name for name in here if _match_names(name, new))
    reused = {name: tensor for name, tensor in here.items() if name not in new_names}
    offered: dict[str, dict[str, Tensor]] = {}  # by the first name that the modules have for them
    for name in tensors:
        if name not in dropped_names:
            offered.setdefault(aliases.get(name, name), {})[name] = tensors[name]
    problems = [
        *_find_undeclared(reused, offered, new_names=new_names, dropped_names=dropped_names),
        *_find_unmatched("new", new, "modules", here),
        *_find_unmatched("dropped", dropped, "weights", tensors),
        *(_describe_difference(name, offered[name], tensor) for name, tensor in reused.items() if name in offered),
    ]
    problems += [] if any(problems) else _find_conflicting_weights(reused, offered)
    problems = [problem for problem in problems if problem] or ([] if reused else ["nothing is left to reuse"])
    if problems:
        raise WeightsMismatchError(f"the weights do not fit the modules: {'; '.join(problems)}")
    with torch.no_grad():
        # All are cloned first, because the given tensors may be views of the modules' weights.
        copies = [next(iter(offered[name].values())).clone() for name in reused]
        for tensor, values in zip(reused.values(), copies, strict=True):
            tensor.copy_(values)
    return InitialWeights(
        reused=tuple(reused), new=new_names, dropped=dropped_names, digest=hash_weights(reused.items())
    )


def _match_names(name: str, beginnings: Iterable[str]) -> bool:
    return any(name == beginning or name.startswith(f"{beginning}.") for beginning in beginnings)


def _list_weights(modules: Modules) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the modules' weights by name, and a map from every name, also of shared weights, to the first one."""
    by_name = {"": modules} if isinstance(modules, nn.Module) else modules
    plain = {name: part.module if isinstance(part, FrozenModule) else part for name, part in by_name.items()}
    here = {name.removeprefix("."): tensor for name, tensor in list_named_tensors(plain).items()}
    first_names = {id(tensor): name for name, tensor in here.items()}
    aliases = {
        f"{part}.{name}".removeprefix("."): first_names[id(tensor)]
        for part, module in plain.items()
        for name, tensor in module.state_dict(keep_vars=True).items()
        if id(tensor) in first_names
    }
    return here, aliases


def _find_undeclared(
    reused: Iterable[str],
    offered: Mapping[str, Mapping[str, Tensor]],
    *,
    new_names: Sequence[str],
    dropped_names: Sequence[str],
) -> Iterator[str]:
    """Yield the names that are missing on one side, with the declarations that they need."""
    missing = [name for name in reused if name not in offered]
    new = [name for name in missing if name not in dropped_names]
    also_new = [name for name in missing if name in dropped_names]
    extra = [(first, name) for first, tensors in offered.items() if first not in reused for name in tensors]
    dropped = [name for first, name in extra if first not in new_names]
    also_dropped = [name for first, name in extra if first in new_names]
    yield _list_differences("only in the modules", new, "declare those to initialize as new")
    yield _list_differences(
        "only in the modules, because they are dropped from the weights", also_new, "declare them as new too"
    )
    yield _list_differences("only in the weights", dropped, "declare those to ignore as dropped")
    yield _list_differences(
        "only in the weights, because they are new in the modules", also_dropped, "declare them as dropped too"
    )


def _find_unmatched(word: str, beginnings: Iterable[str], place: str, names: Iterable[str]) -> Iterator[str]:
    every_name = list(names)
    unmatched = [start for start in beginnings if not any(_match_names(name, (start,)) for name in every_name)]
    yield _list_differences(f"{word} has names that are not in the {place}", unmatched, "")


def _list_differences(problem: str, names: Sequence[str], advice: str) -> str:
    """Return the problem with all names, because the user must fix every one; empty without names."""
    if not names:
        return ""
    return f"{problem}: {', '.join(names)}{f' ({advice})' if advice else ''}"


def _describe_difference(name: str, offered: Mapping[str, Tensor], here: Tensor) -> str:
    """Describe why a weight cannot take the offered tensors; empty if it can."""
    different = [
        source
        for source, tensor in offered.items()
        if _describe_tensor(tensor) != _describe_tensor(here) or tensor.is_meta
    ]
    if different:
        suffix = "" if different == [name] else f" as {name}"
        kind = _describe_tensor(offered[different[0]])
        return f"{different[0]} is {kind} in the weights and {_describe_tensor(here)} in the modules{suffix}"
    first, *others = offered.values()
    if first.is_floating_point() and not torch.isfinite(first).all():
        return f"{name} holds values that are not finite"
    if any(not torch.equal(first, tensor) for tensor in others):
        return f"one weight in the modules, but different values: {' and '.join(offered)}"
    return ""


def _find_conflicting_weights(
    reused: Mapping[str, Tensor], offered: Mapping[str, Mapping[str, Tensor]]
) -> Iterator[str]:
    """Yield the weights that share memory in the modules, but would get different values."""
    first_names: dict[tuple[int, torch.Size], str] = {}
    for name, tensor in reused.items():
        if not tensor.numel():
            continue
        first = first_names.setdefault((tensor.data_ptr(), tensor.shape), name)
        if not torch.equal(next(iter(offered[first].values())), next(iter(offered[name].values()))):
            yield f"sharing memory in the modules, but with different values: {first} and {name}"


def _describe_tensor(value: object) -> str:
    """Describe dtype and shape, and anything that prevents a copy."""
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    if is_lazy(value):
        return "of no shape yet"
    kind = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if value.is_meta:
        return f"{kind} without content"
    return kind if value.layout is torch.strided else f"{kind} of layout {value.layout}"


LARGE = 256 * 2**20
"""Bytes, the size of 64 million float32 parameters. Copies that are larger in total are kept on the host, because a
training already needs four times its weights (weights, gradients and two moments), and further copies would leave less
memory for batches. Copies are made or restored only a few times per epoch, and transferring 256 MiB takes some
hundredths of a second at 8 GB/s or more."""

HOST = torch.device("cpu")


def copy_tensors(tensors: Sequence[Tensor], *, large: int = LARGE) -> list[Tensor]:
    """Return detached copies of tensors of any shape, on the same device or, if they are large, on the host.

    Host copies of CUDA tensors are in pinned memory, which allows direct transfers.
    """
    on_host = is_large(tensors, large=large)
    return [to_host(tensor) if on_host else tensor.detach().clone() for tensor in tensors]


def is_large(tensors: Sequence[Tensor], *, large: int = LARGE) -> bool:
    """Return whether the tensors [...] are on an accelerator and so large that their copies are kept on the host."""
    elsewhere = any(tensor.device != HOST for tensor in tensors)
    return elsewhere and sum(tensor.numel() * tensor.element_size() for tensor in tensors) > large


def to_host(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor of any shape on the host."""
    return torch.empty_like(tensor, device=HOST, requires_grad=False, pin_memory=tensor.is_cuda).copy_(tensor.detach())


@final
class BestWeights:
    """Keeps the weights of the lowest value in memory, on their device or, if they are large, on the host.

    Args:
        modules: The trained modules by name; their parameters and buffers are kept.
        nonfinite: Whether a value that is not finite counts as no improvement (`skip`) or raises (`raise`).

    Attributes:
        value: The lowest value; None before the first finite one.
        stale: Number of values since then that were not lower.
        tensors: The kept weights by name; empty before the first finite value.
    """

    def __init__(self, modules: Mapping[str, nn.Module], nonfinite: Nonfinite = "raise") -> None:
        self._modules = modules
        self._nonfinite = nonfinite
        self.tensors: dict[str, Tensor] = {}
        self.value: float | None = None
        self.stale = 0

    def record(self, value: float) -> bool:
        """Record a value, lower is better; if it is the lowest so far, keep the weights and return True.

        Raises:
            NonFiniteError: The value is not finite, and `nonfinite` is `raise`.
        """
        value = float(value)  # a checkpoint with a numpy.float64, which is a float, could not be read
        if self._nonfinite == "raise":
            check_finite_score(value, "the recorded value")
        if not math.isfinite(value) or (self.value is not None and value >= self.value):
            self.stale += 1
            return False
        self.value, self.stale = value, 0
        self.tensors.clear()  # frees the old copy first, so that there is never more than one
        here = list_named_tensors(self._modules)
        self.tensors = dict(zip(here, copy_tensors([*here.values()]), strict=True))
        return True

    def restore(self) -> None:
        """Load the weights of the best value into the modules, in place.

        Raises:
            NoBestWeightsError: No finite value was recorded.
        """
        if self.value is None and self.has_value:
            raise NoBestWeightsError(
                f"no recorded value was finite ({self.stale} values), so there are no best weights; look for such "
                "values in the validation data, and check the training loss"
            )
        if self.value is None:
            raise NoBestWeightsError("no value was recorded yet; call stalled() or best.record() first")
        with torch.no_grad():
            for name, tensor in list_named_tensors(self._modules).items():
                tensor.copy_(self.tensors[name])

    @property
    def has_value(self) -> bool:
        """Whether any value was recorded, including before a resume."""
        return self.value is not None or self.stale > 0

    def state(self) -> dict[str, Any]:
        """Return value and staleness for a checkpoint, which saves the tensors separately."""
        return {"value": self.value, "stale": self.stale}

    def load(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Restore a state and its tensors, in the weights' shapes, on the device where `record` keeps them."""
        self.value, self.stale = state["value"], state["stale"]
        here = list_named_tensors(self._modules)
        on_host = is_large([*here.values()])
        self.tensors = {name: tensor.to(HOST if on_host else here[name].device) for name, tensor in tensors.items()}


@final
class AveragedWeights:
    """An exponential moving average of parameters; it stays on their device, because every step updates it.

    Polyak and Juditsky, "Acceleration of stochastic approximation by averaging" (1992), with exponential weights. The
    average of float16 and bfloat16 parameters is kept in float32, because these types cannot represent its change in
    one step. Buffers, such as the statistics of BatchNorm, are not averaged.

    Args:
        parameters: The parameters, of any shapes, on the device that trains them.
        decay: The weight of the previous average in a step, above 0 and below 1; 0.999 averages over about 1000 steps.
        module: The name of the module of the parameters; None for those of all modules.

    Attributes:
        tensors: The averages, in the order of the parameters; for checkpoints.
        decay: The weight of the previous average in a step.
        module: The name of the module.

    Raises:
        SettingsError: The decay is out of range.
    """

    def __init__(self, parameters: Sequence[Parameter], decay: float, *, module: str | None = None) -> None:
        if not 0 < decay < 1:
            raise SettingsError(f"the decay of the average is {decay}; it must be above 0 and below 1, such as 0.999")
        self._parameters = tuple(parameters)
        self.decay = decay
        self.module = module
        with torch.inference_mode(mode=False), torch.no_grad():  # inference tensors could not be updated later
            self.tensors = tuple(
                parameter.to(torch.promote_types(parameter.dtype, torch.float32), copy=True)
                for parameter in self._parameters
            )

    def update(self, step: int) -> None:
        """Move the average towards the parameters.

        Early steps use a smaller decay, (1 + step) / (10 + step), so that the initial weights soon lose influence.

        Args:
            step: Number of steps taken, including the last one; 1 or more.
        """
        decay = min(self.decay, (1 + step) / (10 + step))
        with torch.no_grad():
            now = [parameter.to(tensor.dtype) for parameter, tensor in zip(self._parameters, self.tensors, strict=True)]
            # One pass over all tensors; torch has no public function for it.
            torch._foreach_lerp_(list(self.tensors), now, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def applied(self) -> Generator[None]:
        """Replace the parameters by the average inside the context, and restore them exactly at the end.

        Only contents are copied, so that optimizers and the flat weights of recurrent layers stay valid. It needs the
        memory of another copy of the parameters, on the host if they are large. Complete all backward passes first.
        """
        originals = copy_tensors(self._parameters)
        try:
            _copy(self.tensors, self._parameters)
            yield
        finally:
            _copy(originals, self._parameters)

    def copy_to_parameters(self) -> None:
        """Replace the parameters by the average permanently."""
        _copy(self.tensors, self._parameters)

    def restart(self) -> None:
        """Restart from the current parameters."""
        _copy(self._parameters, self.tensors)

    def load(self, tensors: Sequence[Tensor]) -> None:
        """Restore the averages of a checkpoint from tensors on any device.

        Raises:
            ResumeMismatchError: The shapes differ from those of the parameters.
        """
        shapes = [list(tensor.shape) for tensor in tensors]
        expected = [list(tensor.shape) for tensor in self.tensors]
        if shapes != expected:
            raise ResumeMismatchError(
                f"the checkpoint's averages have the shapes {shapes}, but the parameters have {expected}: it belongs "
                "to another network"
            )
        _copy(tensors, self.tensors)


def _copy(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)
