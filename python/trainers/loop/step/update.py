"""The optimizer step that ends a window: correct, unscale, measure, clip, then step or skip."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
    _use_grad_for_differentiable,  # pyright: ignore[reportPrivateUsage]  to recognise it
)

from trainers.loop.device import is_out_of_memory
from trainers.loop.errors import ContractError, EmptyTargetError, OutOfMemoryError
from trainers.loop.group.totals import StepRequests, Totals
from trainers.loop.loss import WeightedMean, read
from trainers.loop.phase import Phase
from trainers.loop.step.guards import GradientGuard

CLIP_EPSILON = 1e-6  # torch.nn.utils.clip_grad_norm_ adds the same to the norm

Step = Callable[[Optimizer], object]


class StepOutcome(NamedTuple):
    """The outcome of a window.

    Attributes:
        loss: Weighted mean, count and parts of the window.
        norm: Norm of the gradient before clipping.
        stepped: Whether the optimizer took the step.
        zero_gradient: Whether the step was skipped because all gradients were exactly zero, which the phase allows.
        learning_rate: Learning rate of the optimizer's first group in this step.
        loss_scale: The scaler's scale afterwards; None without a scaler.
        requests: The requests of all processes after the window.
    """

    loss: WeightedMean
    norm: float
    stepped: bool
    zero_gradient: bool
    learning_rate: float
    loss_scale: float | None
    requests: StepRequests


def skips_on_device(optimizer: Optimizer, device: torch.device) -> bool:
    """Return whether the optimizer itself skips a step on the device if `found_inf` is set.

    Fused optimizers do. It does not help on a CPU, where reading a number needs no synchronisation. On Apple GPUs some
    versions of torch ignore `found_inf` (https://github.com/pytorch/pytorch/pull/186360).
    """
    return device.type not in ("cpu", "mps") and bool(getattr(optimizer, "_step_supports_amp_scaling", False))


@final
class GradientUpdate:
    """Corrects, unscales, measures and clips a phase's gradient, then steps optimizer and scheduler.

    Args:
        phase: The phase with optimizer and scheduler.
        scaler: The phase's loss scaler; None without one.
        guard: Checks the gradients.
        on_device: Queue the step before loss and norm are read; the device skips it if they are not finite.
    """

    def __init__(
        self, phase: Phase[Any], scaler: GradScaler | None, guard: GradientGuard, *, on_device: bool = False
    ) -> None:
        self._optimizer = phase.optimizer
        self._scheduler = phase.scheduler
        self._clip = phase.clip
        self._scaler = scaler
        self._scale = None if scaler is None else scaler.get_scale()  # reading it synchronises with the device
        self._guard = guard
        self._on_device = on_device and scaler is None
        self._take = DirectStep(phase.optimizer) if scaler is None else partial(scaler.step, phase.optimizer)

    def apply(self, totals: Totals, window: Sequence[object]) -> StepOutcome:
        """Take the step, or skip it and leave weights, optimizer and scheduler unchanged.

        Raises:
            EmptyTargetError: The window has no target.
            ContractError: The window has neither batch nor target: the source ended before its length.
            NoGradientError: No parameter has a gradient.
            UnusedParameterError: A parameter never got a gradient.
            ZeroGradientError: All gradients so far are zero.
            NonFiniteError: Loss or gradient is not finite, and the settings do not tolerate it.
            OutOfMemoryError: Memory ran out in the step.
        """
        gradients = self._collect_gradients(totals, window)
        if self._scaler is not None:
            self._scaler.unscale_(self._optimizer)
        norms = compute_norms(gradients)
        learning_rate = float(self._optimizer.param_groups[0]["lr"])
        queued = self._on_device and self._guard.has_moved
        if queued:
            self._queue_step(gradients, combine_norms(norms), totals)
        values = iter(read([*totals.scalars(), *norms]))
        result = totals.read(values)
        loss, length = result.loss.mean(), math.hypot(*values) * result.correction
        finite = math.isfinite(loss) and math.isfinite(length)
        zero = length == 0.0 and finite and self._guard.allow_zero
        if finite and not queued and not zero:
            self._guard.check_moved(length)
            rescale(gradients, result.correction * compute_clip_factor(length, self._clip))
        stepped = (finite and not zero) if queued else self._step_optimizer(finite=finite, zero=zero)
        if stepped:
            self._guard.note_stepped()
            if self._scheduler is not None:
                self._scheduler.step()
        elif not zero:
            has_overflowed = self._scaler is not None and math.isfinite(loss)
            self._guard.note_skipped(loss, length, window, has_overflowed=has_overflowed)
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
        """Return the states of optimizer, scheduler and scaler for a checkpoint."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "scheduler": None if self._scheduler is None else self._scheduler.state_dict(),
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the states; without a saved scaler state, as from another device, the scale starts anew."""
        self._optimizer.load_state_dict(state["optimizer"])
        if self._scheduler is not None and state["scheduler"] is not None:
            self._scheduler.load_state_dict(state["scheduler"])
        if self._scaler is not None and state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])
            self._scale = self._scaler.get_scale()

    def _collect_gradients(self, totals: Totals, window: Sequence[object]) -> list[Tensor]:
        """Return the window's gradients; raise if there are none."""
        gradients = self._guard.collect_gradients()
        if gradients:
            return gradients
        try:
            totals.read(iter(read(totals.scalars())))  # a window without targets explains the missing gradients
        except EmptyTargetError as error:
            if window:
                raise
            raise ContractError(
                "the source has fewer batches than its length: this process has none for this window, and no other has "
                "a target; correct the length: IterableSource(batches, length=…)"
            ) from error
        self._guard.check_any(gradients)
        return gradients

    def _queue_step(self, gradients: list[Tensor], norm: Tensor, totals: Totals) -> None:
        """Clip and step without synchronisation; the optimizer itself skips the step if a value is not finite."""
        rescale(gradients, compute_clip_factor_on_device(norm, totals.correction, self._clip))
        is_finite = torch.isfinite(torch.stack([norm, *[mean.to(norm.dtype) for mean in totals.means()]])).all()
        if self._guard.allow_zero:
            is_finite = is_finite & (norm > 0)
        self._optimizer.found_inf = 1.0 - is_finite.float()  # pyright: ignore[reportAttributeAccessIssue]  as torch's own GradScaler does
        try:
            self._take_step()
        finally:
            del self._optimizer.found_inf  # pyright: ignore[reportAttributeAccessIssue]

    def _take_step(self) -> None:
        try:
            self._take()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            first_line = str(error).partition("\n")[0]
            raise OutOfMemoryError(
                f"memory ran out in the optimizer's step ({first_line}); its states need once or twice the memory of "
                "the weights. Use a fused optimizer (trainers.loop.adamw), one with smaller states, or a smaller "
                "network, and resume from the last checkpoint"
            ) from error

    def _step_optimizer(self, *, finite: bool, zero: bool) -> bool:
        if self._scaler is None or self._scale is None:
            if finite and not zero:
                self._take_step()
            return finite and not zero
        if zero:
            state = self._scaler.state_dict()
            self._scaler.update()  # resets the unscaling; otherwise the next call raises
            self._scaler.load_state_dict(state)
            return False
        before = self._scale
        if finite:
            self._take_step()
        self._scaler.update()
        self._scale = self._scaler.get_scale()
        # A fused optimizer is called even if it skips the step, so only a lower scale shows a skipped step.
        return finite and self._scale >= before


def compute_norms(gradients: list[Tensor]) -> list[Tensor]:
    """Return scalars whose Euclidean norm is the norm over all elements of all gradients of any shape.

    On a CPU, where reading numbers is cheap, there is one scalar per tensor; on a device there is one in total.
    """
    # The core of torch's own clipping; the public function takes three times as long.
    norms = torch._foreach_norm(gradients)  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]
    return list(norms) if gradients[0].device.type == "cpu" else [combine_norms(norms)]


def combine_norms(norms: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm, a scalar, of norms, scalars on one device."""
    return torch.linalg.vector_norm(torch.stack(list(norms)))


def rescale(gradients: list[Tensor], factor: float | Tensor) -> None:
    """Multiply all gradients of any shape in place; do nothing for a factor of 1.0."""
    if isinstance(factor, Tensor) or factor != 1.0:
        torch._foreach_mul_(gradients, factor)  # pyright: ignore[reportPrivateImportUsage]  as above


def compute_clip_factor(norm: float, limit: float | None) -> float:
    """Return the factor that reduces a gradient of this norm to the limit; 1 if it is within."""
    return 1.0 if limit is None or norm <= limit else limit / (norm + CLIP_EPSILON)


def compute_clip_factor_on_device(norm: Tensor, correction: float | Tensor, limit: float | None) -> float | Tensor:
    """Return the clip factor times the gradient's correction as a scalar, without synchronisation."""
    if limit is None:
        return correction
    return correction * (limit / (norm * correction + CLIP_EPSILON)).clamp(max=1.0)


@final
class DirectStep:
    """Calls the inner step of an optimizer, which is faster than the public `step`.

    The public method records the step for torch's profiler, calls hooks, and disables gradients in a way that compilers
    can trace. It is called in the first step, because a scheduler checks afterwards that it was called; while a
    profiler runs or hooks exist; and if it was replaced.

    Args:
        optimizer: The optimizer.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._inner: Step | None = None
        self._first = True

    def __call__(self) -> None:
        """Take the step."""
        if self._first:
            self._first = False
            self._inner = _find_inner_step(self._optimizer)
        elif self._inner is not None and not self._is_watched():
            self._inner(self._optimizer)
            return
        self._optimizer.step()

    def _is_watched(self) -> bool:
        """Return whether a profiler or a hook observes the step."""
        optimizer = self._optimizer
        return bool(
            optimizer._optimizer_step_pre_hooks  # noqa: SLF001  torch shows it nowhere else
            or optimizer._optimizer_step_post_hooks  # noqa: SLF001
            or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks
            or torch.autograd._profiler_enabled()  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]
        )


def _find_inner_step(optimizer: Optimizer) -> Step | None:
    """Return the step inside torch's wrapper; None if the instance or class has replaced the step.

    Torch's further wrapper that disables gradients is replaced by one that takes a third of the time.
    """
    kind: Any = type(optimizer).step
    patched = vars(optimizer).get("step")
    # A scheduler wraps the step to count calls.
    is_unpatched = patched is None or getattr(patched, "__wrapped__", None) is kind
    step: Step | None = getattr(kind, "__wrapped__", None) if is_unpatched and getattr(kind, "hooked", False) else None
    inner: Step | None = getattr(step, "__wrapped__", None)
    if inner is None or getattr(step, "__code__", None) is not _GRAD_WRAPPER_CODE:
        return step

    def step_without_gradients(optimizer: Optimizer) -> None:
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(optimizer.defaults["differentiable"])  # noqa: SLF001  the public function calls it too
        try:
            inner(optimizer)
        finally:
            torch._C._set_grad_enabled(before)  # noqa: SLF001

    return step_without_gradients


_GRAD_WRAPPER_CODE = _use_grad_for_differentiable(lambda: None).__code__
