"""The one optimizer step that ends a window."""

import math
from dataclasses import dataclass
from typing import Any, final

from trainers.loop.loss import Tally, tally
from trainers.loop.machine.precision import LossScaler
from trainers.loop.phase import Phase
from trainers.loop.window.accumulation import Accumulation
from trainers.loop.window.gradients import clip_factor, norm_of, rescale
from trainers.loop.window.guards import GradientGuard


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a window.

    Attributes:
        loss: Weighted mean, count and parts of the window.
        norm: Of the gradient, before clipping.
        stepped: Whether the optimizer took the step.
        learning_rate: Of the optimizer's first group, in this step.
        loss_scale: The scaler's scale afterwards; None without a scaler.
    """

    loss: Tally
    norm: float
    stepped: bool
    learning_rate: float
    loss_scale: float | None


@final
class Update:
    """Corrects, unscales, measures and clips a phase's gradient, then steps optimizer and scheduler.

    Args:
        phase: Whose optimizer and scheduler.
        scaler: The phase's own; None without one.
        guard: Says what gradients are worth a step.
    """

    def __init__(self, phase: Phase[Any], scaler: LossScaler | None, guard: GradientGuard) -> None:
        self._optimizer = phase.optimizer
        self._scheduler = phase.scheduler
        self._clip = phase.clip
        self._scaler = scaler
        self._scale = None if scaler is None else scaler.get_scale()  # reading it waits for the device
        self._guard = guard

    def apply(self, accumulation: Accumulation, window: tuple[object, ...]) -> Outcome:
        """Take the step, or skip it and leave weights, optimizer and scheduler as they are.

        Raises:
            NoGradientError: The window left no gradient at all.
            UnusedParameterError: A parameter never got a gradient.
            ZeroGradientError: All gradients so far are zero.
            NonFiniteError: Loss or gradient is not finite and that is not, or no longer, tolerated.
        """
        gradients = self._guard.gradients()
        if self._scaler is not None:
            self._scaler.unscale_(self._optimizer)
        loss, (raw_norm,) = tally(accumulation.losses, norm_of(gradients))
        norm = raw_norm * accumulation.correction
        learning_rate = float(self._optimizer.param_groups[0]["lr"])
        finite = math.isfinite(loss.mean()) and math.isfinite(norm)
        if finite:
            self._guard.check_moved(norm)
            rescale(gradients, accumulation.correction * clip_factor(norm, self._clip))
        stepped = self._step(finite=finite)
        if stepped:
            self._guard.note_stepped()
            if self._scheduler is not None:
                self._scheduler.step()
        else:
            overflow = self._scaler is not None and math.isfinite(loss.mean())
            self._guard.note_skipped(loss.mean(), norm, window, overflow=overflow)
        return Outcome(loss=loss, norm=norm, stepped=stepped, learning_rate=learning_rate, loss_scale=self._scale)

    def _step(self, *, finite: bool) -> bool:
        if self._scaler is None or self._scale is None:
            if finite:
                self._optimizer.step()
            return finite
        before = self._scale
        if finite:
            self._scaler.step(self._optimizer)
        self._scaler.update()
        self._scale = self._scaler.get_scale()
        # A fused optimizer is called even when it then drops the step, so only the scale tells.
        return finite and self._scale >= before
