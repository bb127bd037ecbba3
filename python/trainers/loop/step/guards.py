"""Checks that raise an error if training does not work as intended, and its position for errors."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.parallel import DistributedDataParallel

from trainers.loop.data.tree import describe, iterate_tensors
from trainers.loop.errors import (
    BatchCoupledError,
    DetachedLossError,
    LoopError,
    NoGradientError,
    NonFiniteError,
    ParallelismError,
    UnusedParameterError,
    ZeroGradientError,
    describe_parameters,
    join_names,
)

MAX_SHOWN_BATCHES = 3


@final
class Position:
    """The current phase, epoch, window and batch of the loop.

    As a context manager it adds itself to errors: as `position` to a `LoopError`, as a note to others.
    """

    __slots__ = ("_batch", "_batches", "epoch", "phase", "window")

    def __init__(self, phase: str, epoch: int, window: int, batches: Sequence[object]) -> None:
        self.phase = phase
        self.epoch = epoch
        self.window = window
        self._batches = batches
        self._batch: int | None = None

    def set_batch(self, batch: int | None) -> None:
        """Set the current batch, counted from 0 within the window; None for the whole window."""
        self._batch = batch

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Add the position to the error and let it propagate."""
        if error is not None:
            add_position(error, str(self))

    def __str__(self) -> str:
        """The position in one line; all numbers count from 0."""
        window = f"phase {self.phase!r}, epoch {self.epoch}, window {self.window}"
        size = len(self._batches)
        if self._batch is not None:
            return f"{window}, batch {self._batch} of {size}: {describe(self._batches[self._batch])}"
        shapes = "; ".join(describe(batch) for batch in self._batches[:MAX_SHOWN_BATCHES])
        more = "; …" if size > MAX_SHOWN_BATCHES else ""
        return f"{window} of {size} batches: {shapes}{more}"


def add_position(error: BaseException, position: str) -> None:
    """Add a position to an error: as `position` to a `LoopError`, as a note to others."""
    if isinstance(error, LoopError):
        error.position = position
    else:
        error.add_note(f"in {position}")


COUPLING_LAYERS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

Nonfinite = Literal["skip", "raise"]

AUDIT_STEPS = 16
"""Default number of windows after which a parameter without a gradient counts as unused."""


def find_coupled_layers(modules: Mapping[str, nn.Module], evaluated: Iterable[nn.Module]) -> list[str]:
    """Return the names of the layers whose output for a sample depends on the rest of the batch.

    Args:
        modules: The modules to search.
        evaluated: Modules in evaluation mode, where layers with running statistics use these instead of the batch's.
    """
    steady = {part for module in evaluated for part in module.modules()}
    return [
        f"{module_name}.{name}".removesuffix(".")
        for module_name, module in modules.items()
        for name, layer in module.named_modules()
        if isinstance(layer, COUPLING_LAYERS) and not (layer in steady and layer.track_running_stats)
    ]


def check_uncoupled(modules: Mapping[str, nn.Module], evaluated: Iterable[nn.Module]) -> None:
    """Check that a batch may be cut; the arguments are those of `find_coupled_layers`.

    Raises:
        BatchCoupledError: A layer mixes the samples of a batch.
    """
    coupled = find_coupled_layers(modules, evaluated)
    if coupled:
        raise BatchCoupledError(
            f"{join_names(coupled)} compute with the mean and variance of the batch, so the result would depend on "
            "how the samples of a window are distributed over batches, micro-batches and processes. Use GroupNorm or "
            'LayerNorm, train with one batch per window in one process, or accept it: Loop(batch_coupled="accept")'
        )


def make_detached_loss_error(name: str, mean: Tensor, parameters: Sequence[Parameter]) -> DetachedLossError:
    """Return the error for a loss or term whose mean, a scalar, has no graph, with the likely cause."""
    return DetachedLossError(
        f"{name} is detached: it has no graph that backward could follow; {_explain_detached(mean, parameters)}"
    )


def _explain_detached(mean: Tensor, parameters: Sequence[Parameter]) -> str:
    if mean.is_inference():
        return (
            "it was computed under torch.inference_mode(): leave that context, and use torch.no_grad() for frozen parts"
        )
    if not torch.is_grad_enabled():
        return "gradients are disabled here: training was started inside torch.no_grad() or set_grad_enabled(False)"
    if not any(parameter.requires_grad for parameter in parameters):
        return "no parameter of the phase requires a gradient: they were frozen after the loop was created"
    return (
        "it does not depend on the phase's parameters: look in the loss function for .detach(), .item(), .data, NumPy, "
        "torch.tensor(loss), argmax or rounding, a torch.no_grad() around the trained network, samples generated "
        "without gradients, or a constant returned because no output matched a target"
    )


@final
class GradientGuard:
    """Checks the gradients of one phase.

    Args:
        names: The phase's parameters with their names.
        audit_steps: A parameter without a gradient in this many windows counts as unused; None for the default
            number or the first epoch, whichever is shorter. Windows in which it is frozen do not count.
        nonfinite: Whether a loss or gradient that is not finite skips the step or raises.
        skip_limit: Raise after this many skipped steps in a row.
        allow_zero: Whether all gradients may be exactly zero.

    Attributes:
        has_moved: Whether any gradient so far was not zero.
        allow_zero: Whether all gradients may be exactly zero.
    """

    def __init__(
        self,
        names: Mapping[Parameter, str],
        *,
        audit_steps: int | None,
        nonfinite: Nonfinite,
        skip_limit: int,
        allow_zero: bool = False,
    ) -> None:
        self._names = names
        self._parameters = tuple(names)
        self._unseen = self._parameters
        self._audited: Sequence[Parameter] = self._parameters
        self._audit_steps = audit_steps
        self._nonfinite = nonfinite
        self._skip_limit = skip_limit
        self.allow_zero = allow_zero
        self._windows = 0
        self._skipped_in_a_row = 0
        self.has_moved = False

    def collect_gradients(self) -> list[Tensor]:
        """Return the window's gradients, of the parameters' shapes [...]; of a sparse one, its values (rows, ...).

        Raises:
            UnusedParameterError: A parameter had no gradient in any of the audited windows.
        """
        gradients = [_get_gradient_values(parameter) for parameter in self._parameters if parameter.grad is not None]
        if gradients and self._unseen:
            self._audit()
        return gradients

    def check_any(self, gradients: Sequence[Tensor]) -> None:
        """Check that a window with targets has gradients, of the parameters' shapes.

        Raises:
            NoGradientError: There is no gradient.
        """
        if not gradients:
            raise NoGradientError(
                "backward reached no parameter of the phase, although the loss requires a gradient; it may be a "
                "constant with requires_grad=True, or depend only on another network or on inputs"
            )

    def check_epoch(self) -> None:
        """Check at the end of an epoch that all parameters are used, unless `audit_steps` was given.

        Raises:
            UnusedParameterError: A parameter had no gradient in any window so far.
        """
        if self._audit_steps is None and self._windows:
            self._check_all_used()

    def _audit(self) -> None:
        """Record which parameters have a gradient; start counting again when a parameter is unfrozen."""
        audited = tuple(parameter for parameter in self._unseen if parameter.requires_grad)
        if not set(audited) <= set(self._audited):
            self._windows = 0
        self._audited = audited
        self._unseen = tuple(parameter for parameter in self._unseen if parameter.grad is None)
        self._windows += 1
        if self._windows >= (AUDIT_STEPS if self._audit_steps is None else self._audit_steps):
            self._check_all_used()

    def _check_all_used(self) -> None:
        audited = set(self._audited)  # the parameters that trained in these windows, even if they are frozen now
        unused = [self._names[parameter] for parameter in self._unseen if parameter in audited]
        if not unused:
            return
        raise UnusedParameterError(
            f"no loss reached {describe_parameters(unused)} in {self._windows} steps, so the optimizer would never "
            "train them; the forward may skip a layer or ignore its output. Use it, freeze it (requires_grad_(False)) "
            "and remove it from the optimizer, or increase audit_steps if it is used rarely"
        )

    def check_moved(self, norm: float) -> None:
        """Check the norm of the gradient before a step.

        Raises:
            ZeroGradientError: It is exactly zero, as were all norms before.
        """
        if self.has_moved or norm:
            self.has_moved = True
            return
        raise ZeroGradientError(
            "all gradients are exactly zero, so only weight decay would change the weights; the loss may be multiplied "
            "by zero, masked out, clamped or saturated, or all activations may be dead; if this is expected, as with "
            "equal rewards, use Phase(allow_zero_gradients=True)"
        )

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "unseen": [self._names[parameter] for parameter in self._unseen],
            "audited": [self._names[parameter] for parameter in self._audited],
            "windows": self._windows,
            "skipped_in_a_row": self._skipped_in_a_row,
            "moved": self.has_moved,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self._unseen = self._select_named(state["unseen"])
        self._audited = self._select_named(state["audited"])
        self._windows = state["windows"]
        self._skipped_in_a_row = state["skipped_in_a_row"]
        self.has_moved = state["moved"]

    def _select_named(self, names: Sequence[str]) -> tuple[Parameter, ...]:
        selected = set(names)
        return tuple(parameter for parameter in self._parameters if self._names[parameter] in selected)

    def note_stepped(self) -> None:
        """Reset the number of skipped steps in a row."""
        self._skipped_in_a_row = 0

    def note_skipped(self, loss: float, norm: float, window: Sequence[object], *, has_overflowed: bool) -> None:
        """Count a skipped step.

        Args:
            loss: The window's loss.
            norm: The norm of its gradient.
            window: The window's batches, which are searched for values that are not finite.
            has_overflowed: Whether the gradient overflowed in float16, which a lower scale should fix.

        Raises:
            NonFiniteError: `nonfinite` is `raise`, or `skip_limit` is reached.
        """
        self._skipped_in_a_row += 1
        may_skip = has_overflowed or self._nonfinite == "skip"
        if may_skip and self._skipped_in_a_row < self._skip_limit:
            return
        steps = "" if self._skipped_in_a_row == 1 else f" in {self._skipped_in_a_row} steps in a row"
        raise NonFiniteError(
            f"the loss is {loss:g} and the gradient's norm {norm:g}{steps}; {self._describe_suspects(window)}. Likely "
            "causes: a division by zero or a logarithm of zero in the loss, a learning rate that is too high, or "
            "values outside the range of float16"
        )

    def _describe_suspects(self, window: Sequence[object]) -> str:
        batches = [
            path
            for number, batch in enumerate(window)
            for path, tensor in iterate_tensors(batch, f"batch {number}")
            if not _is_finite(tensor)
        ]
        if batches:
            return f"not finite in the data: {join_names(batches)}"
        weights = [name for parameter, name in self._names.items() if not _is_finite(parameter)]
        if weights:
            return f"the data is finite, but these weights are not: {join_names(weights)}"
        gradients = {name: parameter.grad for parameter, name in self._names.items() if parameter.grad is not None}
        names = [name for name, gradient in gradients.items() if not _is_finite(gradient)]
        return f"data and weights are finite, but these gradients are not: {join_names(names) or 'none'}"


def _get_gradient_values(parameter: Parameter) -> Tensor:
    """Return the gradient, or the values of a sparse one, which share its memory; duplicate rows are summed first."""
    gradient = parameter.grad
    assert gradient is not None  # noqa: S101 - the caller's condition
    if not gradient.is_sparse:
        return gradient
    parameter.grad = gradient.coalesce()
    return parameter.grad.values()


def _is_finite(tensor: Tensor) -> bool:
    values = tensor.detach()
    return bool(torch.isfinite(values.coalesce().values() if values.is_sparse else values).all())


def check_modules(modules: Mapping[str, nn.Module], *, size: int, can_repeat: bool) -> None:
    """Check that a group can train the modules.

    A process that runs out of memory repeats a micro-batch of a window. If a module communicated in its forward or
    backward, that process would communicate once more than the others, which hangs or mixes up values.

    Args:
        modules: The modules by name.
        size: Number of processes.
        can_repeat: Whether a micro-batch is repeated when memory runs out.

    Raises:
        ParallelismError: With several processes, a module is sharded, wrapped in DistributedDataParallel, computes
            statistics over all processes or has sparse gradients. Or, with one process: it is sharded and micro-batches
            may be repeated.
    """
    for name, module in modules.items():
        for path, part in module.named_modules(prefix=name):
            if (size > 1 or can_repeat) and _is_sharded(part):
                raise ParallelismError(
                    f"{path} is sharded (FSDP or DTensor): its forward and backward gather weights from all processes, "
                    "which a process that runs out of memory cannot repeat, and its gradients are shards. Give the "
                    "loop the unsharded module: it sums the gradients once per window. If the module is too large for "
                    "one device, use a trainer that supports sharding"
                )
            if size == 1:
                continue
            if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse:
                raise ParallelismError(
                    f"{path} has sparse gradients, which several processes cannot sum in one vector; create it with "
                    "sparse=False, or train in one process"
                )
            if isinstance(part, DistributedDataParallel):
                raise ParallelismError(
                    f"{path} is wrapped in DistributedDataParallel, which sums gradients in every backward, but the "
                    "loop already does so once per window: give it the wrapped module (.module)"
                )
            if isinstance(part, nn.SyncBatchNorm):
                raise ParallelismError(
                    f"{path} is a SyncBatchNorm: its forward waits for the other processes, but each may cut its "
                    "batches differently; use GroupNorm or LayerNorm"
                )


def _is_sharded(part: nn.Module) -> bool:
    # A module that was never imported is not in use, and importing it is slow.
    if "torch.distributed.fsdp" in sys.modules:
        from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

        if isinstance(part, FSDPModule | FullyShardedDataParallel):
            return True
    if "torch.distributed.tensor" in sys.modules:
        from torch.distributed.tensor import DTensor

        return any(isinstance(parameter, DTensor) for parameter in part.parameters(recurse=False))
    return False
