"""The optimizer step that ends a window: correct, unscale, measure, clip, then step or skip."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
    _use_grad_for_differentiable,  # pyright: ignore[reportPrivateUsage]  to know it again
)

from trainers.loop.device import LossScaler, is_out_of_memory, release
from trainers.loop.errors import ContractError, EmptyTargetError, OutOfMemoryError
from trainers.loop.group.group import Totals, WindowRequests
from trainers.loop.loss import WeightedMean, read
from trainers.loop.phase import Phase
from trainers.loop.window.guards import GradientGuard

CLIP_EPSILON = 1e-6  # torch.nn.utils.clip_grad_norm_ adds the same to the norm
ADDED_AT_ONCE = 2**20
"""Elements that are widened at a time."""

Step = Callable[[Optimizer], object]


class StepOutcome(NamedTuple):
    """What came of a window.

    Attributes:
        loss: Weighted mean, count and parts of the window.
        norm: Of the gradient, before clipping.
        stepped: Whether the optimizer took the step.
        zero_gradient: Whether it took none because every gradient was exactly zero, which the phase allows.
        learning_rate: Of the optimizer's first group, in this step.
        loss_scale: The scaler's scale afterwards; None without a scaler.
        requests: What the processes want to happen after the window.
    """

    loss: WeightedMean
    norm: float
    stepped: bool
    zero_gradient: bool
    learning_rate: float
    loss_scale: float | None
    requests: WindowRequests


def drops_on_device(optimizer: Optimizer, device: torch.device) -> bool:
    """Whether the optimizer leaves out a step on the device itself when `found_inf` says so.

    Those are the fused ones. On a CPU nothing is gained: reading a number costs no wait there. On Apple GPUs some
    versions of torch do not look at `found_inf` (https://github.com/pytorch/pytorch/pull/186360).
    """
    return device.type not in ("cpu", "mps") and bool(getattr(optimizer, "_step_supports_amp_scaling", False))


@final
class GradientUpdate:
    """Corrects, unscales, measures and clips a phase's gradient, then steps optimizer and scheduler.

    Args:
        phase: Whose optimizer and scheduler.
        scaler: The phase's own; None without one.
        guard: Says what gradients are worth a step.
        on_device: Queue the step before the loss and the norm are known here; the device leaves it out if they are
            not finite.
    """

    def __init__(
        self, phase: Phase[Any], scaler: LossScaler | None, guard: GradientGuard, *, on_device: bool = False
    ) -> None:
        self._optimizer = phase.optimizer
        self._scheduler = phase.scheduler
        self._clip = phase.clip
        self._scaler = scaler
        self._scale = None if scaler is None else scaler.get_scale()  # reading it waits for the device
        self._guard = guard
        self._on_device = on_device and scaler is None
        self._stepper = Stepper(phase.optimizer, tuple(phase.parameters))
        self._take = DirectStep(phase.optimizer) if scaler is None else partial(scaler.step, phase.optimizer)

    def apply(self, totals: Totals, window: Sequence[object]) -> StepOutcome:
        """Take the step, or skip it and leave weights, optimizer and scheduler as they are.

        Raises:
            EmptyTargetError: The window has no target.
            ContractError: Nor has it any batch: the source ended before its length.
            NoGradientError: The window left no gradient at all.
            UnusedParameterError: A parameter never got a gradient.
            ZeroGradientError: All gradients so far are zero.
            NonFiniteError: Loss or gradient is not finite and that is not, or no longer, tolerated.
            OutOfMemoryError: Memory ran out in the step.
        """
        gradients = self._gradients(totals, window)
        if self._scaler is not None:
            self._scaler.unscale_(self._optimizer)
        norms = norms_of(gradients)
        learning_rate = float(self._optimizer.param_groups[0]["lr"])
        queued = self._on_device and self._guard.moved
        if queued:
            self._queue(gradients, total_of(norms), totals)
        values = iter(read([*totals.scalars(), *norms]))
        result = totals.read(values)
        loss, length = result.loss.mean(), math.hypot(*values) * result.correction
        finite = math.isfinite(loss) and math.isfinite(length)
        zero = length == 0.0 and finite and self._guard.allow_zero
        if finite and not queued and not zero:
            self._guard.check_moved(length)
            rescale(gradients, result.correction * clip_factor(length, self._clip))
        stepped = (finite and not zero) if queued else self._step(finite=finite, zero=zero)
        if stepped:
            self._guard.note_stepped()
            if self._scheduler is not None:
                self._scheduler.step()
        elif not zero:
            overflow = self._scaler is not None and math.isfinite(loss)
            self._guard.note_skipped(loss, length, window, overflow=overflow)
        return StepOutcome(
            loss=result.loss,
            norm=length,
            stepped=stepped,
            zero_gradient=zero,
            learning_rate=learning_rate,
            loss_scale=self._scale,
            requests=result.requests,
        )

    def state(self) -> dict[str, Any]:
        """Optimizer, scheduler and scaler, for a checkpoint."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "scheduler": None if self._scheduler is None else self._scheduler.state_dict(),
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over a state; where only one side has a scaler, as on another device, the scale starts afresh."""
        self._optimizer.load_state_dict(state["optimizer"])
        if self._scheduler is not None and state["scheduler"] is not None:
            self._scheduler.load_state_dict(state["scheduler"])
        if self._scaler is not None and state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])
            self._scale = self._scaler.get_scale()

    def _gradients(self, totals: Totals, window: Sequence[object]) -> list[Tensor]:
        """The window's gradients, of which there must be some."""
        gradients = self._guard.gradients()
        if gradients:
            return gradients
        try:
            totals.read(iter(read(totals.scalars())))  # having no target explains having no gradient
        except EmptyTargetError as error:
            if window:
                raise
            raise ContractError(
                "the source's length promises more windows than it has batches for: this process has none for this "
                "window, and no other has a target; give the length that comes, IterableSource(batches, length=…)"
            ) from error
        self._guard.check_any(gradients)
        return gradients

    def _queue(self, gradients: list[Tensor], norm: Tensor, totals: Totals) -> None:
        """Clip and step without waiting; the optimizer itself drops the step where a number is not finite."""
        rescale(gradients, clip_factor_on_device(norm, totals.correction, self._clip))
        good = torch.isfinite(torch.stack([norm, *[mean.to(norm.dtype) for mean in totals.means()]])).all()
        if self._guard.allow_zero:
            good = good & (norm > 0)
        self._optimizer.found_inf = 1.0 - good.float()  # pyright: ignore[reportAttributeAccessIssue]  as torch's own GradScaler does
        try:
            self._stepper.step(self._take)
        finally:
            del self._optimizer.found_inf  # pyright: ignore[reportAttributeAccessIssue]

    def _step(self, *, finite: bool, zero: bool) -> bool:
        if self._scaler is None or self._scale is None:
            if finite and not zero:
                self._stepper.step(self._take)
            return finite and not zero
        if zero:
            state = self._scaler.state_dict()
            self._scaler.update()  # forgets the unscaling, without which the next one is refused
            self._scaler.load_state_dict(state)
            return False
        before = self._scale
        if finite:
            self._stepper.step(self._take)
        self._scaler.update()
        self._scale = self._scaler.get_scale()
        # A fused optimizer is called even when it then drops the step, so only the scale shows it.
        return finite and self._scale >= before


def norms_of(gradients: list[Tensor]) -> list[Tensor]:
    """Scalars whose Euclidean norm is that over all elements of all gradients, whatever their shapes.

    On a CPU, where reading a number costs nothing, there is one per tensor; on a device one in all.
    """
    # What torch's own clipping is made of; its public form takes three times as long.
    norms = torch._foreach_norm(gradients)  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]
    return list(norms) if gradients[0].device.type == "cpu" else [total_of(norms)]


def total_of(norms: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm, a scalar, of norms, scalars on one device."""
    return torch.linalg.vector_norm(torch.stack(list(norms)))


def rescale(gradients: list[Tensor], factor: float | Tensor) -> None:
    """Multiply all gradients of any shape in place; a factor of 1.0 costs nothing."""
    if isinstance(factor, Tensor) or factor != 1.0:
        torch._foreach_mul_(gradients, factor)  # pyright: ignore[reportPrivateImportUsage]  as above


def clip_factor(norm: float, limit: float | None) -> float:
    """What brings a gradient of this norm down to the limit; 1 if it is within."""
    return 1.0 if limit is None or norm <= limit else limit / (norm + CLIP_EPSILON)


def clip_factor_on_device(norm: Tensor, correction: float | Tensor, limit: float | None) -> float | Tensor:
    """The same as a scalar, times the gradient's correction, without waiting for the norm before it."""
    if limit is None:
        return correction
    return correction * (limit / (norm * correction + CLIP_EPSILON)).clamp(max=1.0)


@final
class Stepper:
    """Steps an optimizer.

    The first step makes the optimizer's states. Where memory runs out before it has changed a weight, half-made states
    are removed and the step is taken once more: the window's activations are gone by then. A step that fails half-way
    is an error, because some weights have moved and others have not.

    Args:
        optimizer: Whose step it is.
        parameters: What it trains.
    """

    def __init__(self, optimizer: Optimizer, parameters: Sequence[Parameter]) -> None:
        self._optimizer = optimizer
        self._parameters = parameters
        self._first = True

    def step(self, take: Callable[[], object]) -> None:
        """Take the step by calling `take`.

        Raises:
            OutOfMemoryError: Memory ran out, and a second attempt is not possible or failed too.
        """
        known = set(self._optimizer.state) if self._first else None
        sums = self._sums() if self._first else []
        cause = _shortage(take)
        if cause is not None and known is not None:
            self._undo(known, sums, cause)
            cause = _shortage(take)
        if cause is not None:
            raise OutOfMemoryError(
                f"memory ran out in the optimizer's step ({cause}); its states need as much memory as the weights once "
                "or twice over. Use a fused optimizer (trainers.loop.adamw), one with smaller states, or a smaller "
                "network, and resume from the last checkpoint"
            )
        self._first = False

    def _undo(self, known: set[Tensor], sums: Sequence[int], cause: str) -> None:
        """Remove what a failed first step has made."""
        if self._sums() != sums:
            raise OutOfMemoryError(
                f"memory ran out in the middle of the optimizer's first step ({cause}): some weights have moved and "
                "others have not. Start again with a fused optimizer (trainers.loop.adamw) or a smaller network"
            )
        for parameter in set(self._optimizer.state) - known:
            del self._optimizer.state[parameter]
        release(self._parameters[0].device)

    def _sums(self) -> list[int]:
        """The bits of every weight, added up: another sum once one has moved. Torch does not count fused changes."""
        return [int(_sum(_bits(parameter))) for parameter in self._parameters]


def _bits(parameter: Parameter) -> Tensor:
    """The elements as integers of the same size."""
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32}
    return parameter.detach().view(integers.get(parameter.itemsize, torch.int64))


def _sum(integers: Tensor) -> Tensor:
    """Of all of them, piece by piece: CUDA widens what it adds up to int64, beside a step that may have little room."""
    rows = integers if integers.ndim else integers[None]
    size = max(1, ADDED_AT_ONCE * len(rows) // max(1, rows.numel()))
    return torch.stack([piece.sum() for piece in rows.split(size)]).sum()


def _shortage(take: Callable[[], object]) -> str | None:
    """Call it; the allocator's words if memory ran out."""
    try:
        take()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return str(error).partition("\n")[0]
    return None


@final
class DirectStep:
    """Calls an optimizer's step.

    The public one opens a record for torch's profiler, looks for hooks, and turns gradients off in a way that compilers
    can follow. While a profiler runs or there are hooks, and in the first step, after which a scheduler looks
    whether it was called, the public one is called; also where anybody has put another in its place.

    Args:
        optimizer: Whose step it is.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._inner: Step | None = None
        self._first = True

    def __call__(self) -> None:
        """Take the step."""
        if self._first:
            self._first = False
            self._inner = _without_gradients(_inner_step(self._optimizer))
        elif self._inner is not None and not self._is_watched():
            self._inner(self._optimizer)
            return
        self._optimizer.step()

    def _is_watched(self) -> bool:
        """Whether a profiler or a hook waits for the step."""
        optimizer = self._optimizer
        return bool(
            optimizer._optimizer_step_pre_hooks  # noqa: SLF001  torch shows it nowhere else
            or optimizer._optimizer_step_post_hooks  # noqa: SLF001
            or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks
            or torch.autograd._profiler_enabled()  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]
        )


def _without_gradients(step: Step | None) -> Step | None:
    """The step inside of what turns gradients off, which is done here in a third of the time; others as they are."""
    inner: Step | None = getattr(step, "__wrapped__", None)
    if inner is None or getattr(step, "__code__", None) is not _TURNING_OFF:
        return step

    def taken(optimizer: Optimizer) -> None:
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(optimizer.defaults["differentiable"])  # noqa: SLF001  what the public one calls
        try:
            inner(optimizer)
        finally:
            torch._C._set_grad_enabled(before)  # noqa: SLF001

    return taken


_TURNING_OFF = _use_grad_for_differentiable(lambda: None).__code__


def _inner_step(optimizer: Optimizer) -> Step | None:
    """The step inside of torch's wrapper; None if the step is not simply that of the class."""
    kind: Any = type(optimizer).step
    patched = vars(optimizer).get("step")
    own = patched is None or getattr(patched, "__wrapped__", None) is kind  # a scheduler puts a counter around it
    return getattr(kind, "__wrapped__", None) if own and getattr(kind, "hooked", False) else None
