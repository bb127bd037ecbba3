"""What moving the quantiles did: the model's own conformal offsets, and adaptive ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainers.stock.data import History, Windows
from trainers.stock.evaluation.adaptive import Delay, Residuals, adaptive_offsets, shifted
from trainers.stock.evaluation.comparison import improvement
from trainers.stock.evaluation.forecasts import Forecasts
from trainers.stock.evaluation.judged import Judged
from trainers.stock.evaluation.losses import winkler
from trainers.stock.evaluation.resampling import Interval
from trainers.stock.evaluation.scores import ModelScores, Role, score
from trainers.stock.evaluation.units import units_of

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What moving the quantiles did, horizon by horizon."""

    effective_blocks: tuple[float, ...]
    """[H] days of the calibration part over the horizon: so many of its outcomes do not overlap."""
    before: ModelScores
    """The model without its conformal offsets."""
    after: ModelScores
    """The model as it is served."""
    adaptive: ModelScores | None
    """Without its offsets, but with adaptive ones; None where they were not asked for."""
    gain: tuple[Interval, ...]
    """[H] 1 - Winkler score after / before: positive where the offsets help."""
    adaptive_gain: tuple[Interval, ...] | None
    """[H] the same of the adaptive ones."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walked:
    """Windows and the model's forecasts of them."""

    windows: Windows
    forecasts: Forecasts


def calibration(
    judged: Judged, ours: Forecasts, adaptive: FloatArray | None, effective_blocks: Sequence[float]
) -> Calibration:
    """Compare the model before and after its offsets, and with adaptive forecasts [N, H, Q] if there are any."""
    return Calibration(
        effective_blocks=tuple(effective_blocks),
        before=score(judged, ours.raw, name="without offsets", role=Role.VARIANT),
        after=score(judged, ours.calibrated, name="with its offsets", role=Role.VARIANT),
        adaptive=None if adaptive is None else score(judged, adaptive, name="adaptive", role=Role.VARIANT),
        gain=_gain(judged, ours.raw, ours.calibrated),
        adaptive_gain=None if adaptive is None else _gain(judged, ours.raw, adaptive),
    )


def adaptive_forecasts(history: History, seen: Walked, test: Walked, levels: tuple[float, ...]) -> FloatArray:
    """[N, H, Q] the test windows' raw forecasts with adaptive offsets, which walk on from the calibration part."""
    target = history.pipeline.target
    scale = units_of(history, test.windows).scale
    offsets = adaptive_offsets(
        _residuals(history, seen),
        _residuals(history, test),
        levels,
        Delay(lag=target.lag, horizons=target.horizons),
    )
    return shifted(test.forecasts.raw, offsets * scale, levels)


def _residuals(history: History, walked: Walked) -> Residuals:
    missed = history.outcomes(walked.windows)[..., None] - walked.forecasts.raw
    return Residuals(positions=walked.windows.positions, values=missed / units_of(history, walked.windows).scale)


def _gain(judged: Judged, before: FloatArray, after: FloatArray) -> tuple[Interval, ...]:
    losses = zip(winkler(judged, after).T, winkler(judged, before).T, strict=True)
    return tuple(improvement(judged, ours, theirs) for ours, theirs in losses)
