"""The one optimizer step that ends a window."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainers.loop.device.precision import LossScaler
from trainers.loop.errors import ContractError, EmptyTargetError
from trainers.loop.loss import Tally, read
from trainers.loop.phase import Phase
from trainers.loop.window.direct import DirectStep
from trainers.loop.window.gradients import clip_factor, clip_factor_on_device, norms_of, rescale, total_of
from trainers.loop.window.guards import GradientGuard
from trainers.loop.window.stepping import Stepper
from trainers.loop.window.totals import Totals, Wishes


class Outcome(NamedTuple):
    """What came of a window.

    Attributes:
        loss: Weighted mean, count and parts of the window.
        norm: Of the gradient, before clipping.
        stepped: Whether the optimizer took the step.
        zero_gradient: Whether it took none because every gradient was exactly zero, which the phase allows.
        learning_rate: Of the optimizer's first group, in this step.
        loss_scale: The scaler's scale afterwards; None without a scaler.
        wishes: What the processes want to happen after the window.
    """

    loss: Tally
    norm: float
    stepped: bool
    zero_gradient: bool
    learning_rate: float
    loss_scale: float | None
    wishes: Wishes


def drops_on_device(optimizer: Optimizer, device: torch.device) -> bool:
    """Whether the optimizer leaves out a step on the device itself when it is told so by `found_inf`.

    Those are the fused ones. On a CPU nothing is gained: reading a number costs no wait there. On Apple GPUs some
    versions of torch do not look at `found_inf` (https://github.com/pytorch/pytorch/pull/186360).
    """
    return device.type not in ("cpu", "mps") and bool(getattr(optimizer, "_step_supports_amp_scaling", False))


@final
class Update:
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

    def apply(self, totals: Totals, window: Sequence[object]) -> Outcome:
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
        reading = totals.reading(values)
        loss, length = reading.loss.mean(), math.hypot(*values) * reading.correction
        finite = math.isfinite(loss) and math.isfinite(length)
        zero = length == 0.0 and finite and self._guard.allow_zero
        if finite and not queued and not zero:
            self._guard.check_moved(length)
            rescale(gradients, reading.correction * clip_factor(length, self._clip))
        stepped = (finite and not zero) if queued else self._step(finite=finite, zero=zero)
        if stepped:
            self._move_on()
        elif not zero:
            overflow = self._scaler is not None and math.isfinite(loss)
            self._guard.note_skipped(loss, length, window, overflow=overflow)
        return Outcome(
            loss=reading.loss,
            norm=length,
            stepped=stepped,
            zero_gradient=zero,
            learning_rate=learning_rate,
            loss_scale=self._scale,
            wishes=reading.wishes,
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
            totals.reading(iter(read(totals.scalars())))  # having no target explains having no gradient
        except EmptyTargetError as error:
            if window:
                raise
            raise ContractError(
                "the source's length promises more windows than it has batches for: this process has none for this "
                "window, and no other has a target; give the length that comes, IterableSource(batches, length=…)"
            ) from error
        self._guard.check_any(gradients)
        return gradients

    def _move_on(self) -> None:
        """What only a step that was taken moves."""
        self._guard.note_stepped()
        if self._scheduler is not None:
            self._scheduler.step()

    def _queue(self, gradients: list[Tensor], norm: Tensor, totals: Totals) -> None:
        """Clip and step without waiting; the optimizer itself drops the step where a number is not finite."""
        rescale(gradients, clip_factor_on_device(norm, totals.correction, self._clip))
        good = torch.isfinite(torch.stack([norm, *[mean.to(norm.dtype) for mean in totals.means()]])).all()
        if self._guard.allow_zero:
            good = good & (norm > 0)
        self._optimizer.found_inf = 1.0 - good.float()  # pyright: ignore[reportAttributeAccessIssue]  as torch's own GradScaler tells it
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
        # A fused optimizer is called even when it then drops the step, so only the scale tells.
        return finite and self._scale >= before
