"""Made-up reports of a training loop."""

import math

from trainers.loop import CheckpointReport, EpochReport, PhaseTotals, StepReport, ValidationReport


def window(
    number: int = 0,
    *,
    epoch: int = 0,
    phase: str = "main",
    windows: int | None = 2,
    step: int | None = None,
    loss: float = 0.5,
    stepped: bool = True,
    loss_scale: float | None = None,
    micro_batch_limit: int | None = None,
    seconds: float = 0.25,
    data_seconds: float = 0.0,
) -> StepReport:
    return StepReport(
        phase=phase,
        epoch=epoch,
        epochs=3,
        window=number,
        windows=windows,
        step=number + 1 if step is None else step,
        loss=loss,
        parts={"day 1": 0.25, "day 5": math.nan},
        count=8,
        grad_norm=1.5,
        learning_rate=0.125,
        stepped=stepped,
        loss_scale=loss_scale,
        micro_batch_limit=micro_batch_limit,
        shortages=0,
        seconds=seconds,
        data_seconds=data_seconds,
    )


def epoch(
    number: int = 0,
    *,
    validation: float | None = 0.125,
    phases: tuple[str, ...] = ("main",),
    skipped: int = 0,
    shortages: int = 0,
    zero_gradients: int = 0,
    seconds: float = 1.25,
    data_seconds: float = 0.0,
    peak_bytes: int | None = None,
) -> EpochReport:
    totals = PhaseTotals(
        loss=0.5,
        parts={},
        count=16,
        step=2,
        skipped=skipped,
        shortages=shortages,
        zero_gradients=zero_gradients,
    )
    scored = (
        None if validation is None else ValidationReport(mean=validation, parts={"day 1": 0.75}, count=4, seconds=0.25)
    )
    return EpochReport(
        epoch=number,
        epochs=3,
        windows=2,
        phases=dict.fromkeys(phases, totals),
        validation=scored,
        seconds=seconds,
        data_seconds=data_seconds,
        peak_bytes=peak_bytes,
    )


def checkpoint(number: int = 1, *, epoch: int = 0, problem: str | None = None) -> CheckpointReport:
    return CheckpointReport(
        epoch=epoch, window=number, folder=f"step-{number}", bytes=1024, seconds=0.5, problem=problem
    )
