"""What the loop tells: plain values that a caller prints, writes down or decides by."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReport:
    """What one phase did in one accumulation window.

    Attributes:
        phase: The phase's name.
        epoch: The epoch, counted from 0.
        epochs: How many epochs the run goes to at most.
        window: The window within the epoch, counted from 0.
        windows: Windows in the epoch; None if the source does not know.
        step: Steps that the phase's optimizer has taken, this one included; a skipped window takes none.
        loss: Mean loss over the window's targets, before the step.
        parts: Further means over the window's targets.
        count: Targets in the window.
        grad_norm: Norm of the phase's gradient, before clipping.
        learning_rate: Of the optimizer's first group, in this step.
        stepped: False if the step was skipped, because the loss or a gradient was not finite.
        loss_scale: The scaler's scale after the window; None without a scaler.
        seconds: Time for the phase's work.
        data_seconds: Time that the window's batches were waited for.
    """

    phase: str
    epoch: int
    epochs: int
    window: int
    windows: int | None
    step: int
    loss: float
    parts: Mapping[str, float]
    count: int
    grad_norm: float
    learning_rate: float
    stepped: bool
    loss_scale: float | None
    seconds: float
    data_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTotals:
    """What one phase did in one epoch.

    Attributes:
        loss: Mean loss over the targets of the windows that were stepped; not a number if none was.
        parts: Further means over the same targets.
        count: How many targets those are.
        step: Steps that the phase's optimizer has taken since the start of the run.
        skipped: Windows of the epoch whose step was skipped.
    """

    loss: float
    parts: Mapping[str, float]
    count: int
    step: int
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """A score over a whole source.

    Attributes:
        mean: Mean over the targets, each batch weighted by its count.
        parts: Further means over the same targets.
        count: Targets in all.
        seconds: Time it took.
    """

    mean: float
    parts: Mapping[str, float]
    count: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """What happened in one epoch.

    Attributes:
        epoch: The epoch, counted from 0.
        epochs: How many epochs the run goes to at most.
        windows: Windows in the epoch.
        phases: The totals of every phase, by name, in the order of the phases.
        validation: The score after the epoch; None without validation.
        seconds: Time for the epoch, validation included.
    """

    epoch: int
    epochs: int
    windows: int
    phases: Mapping[str, PhaseTotals]
    validation: ValidationReport | None
    seconds: float

    @property
    def loss(self) -> float:
        """The mean training loss of the first phase."""
        return next(iter(self.phases.values())).loss

    @property
    def monitored(self) -> float:
        """What early stopping looks at: the validation's mean where there is one, else the training loss."""
        return self.loss if self.validation is None else self.validation.mean


Report = WindowReport | EpochReport
