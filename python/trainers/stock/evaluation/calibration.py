"""Effect of conformal calibration: the model's own offsets, and adaptive ones.

Adaptive conformal inference (Gibbs & Candès 2021) adjusts offsets to how often outcomes fell below each quantile. The
paper moves the level of a band by gamma x (target miss rate - miss) after each day. Here each tail of each horizon has
its own level, like the model's offsets. A forecast uses only outcomes that were known on its day. Outcomes of h days in
a row overlap and count as about one, so each moves the level by gamma / h.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from predictor.arrays import FloatArray, PositionArray
from predictor.networks import Target, find_anchor_index, remove_crossings
from trainers.stock.data import History, TrainingWindows
from trainers.stock.evaluation.comparison import measure_improvement, winkler
from trainers.stock.evaluation.evaluation_set import EvaluationSet, Interval, ModelForecasts, units_of
from trainers.stock.evaluation.scores import ModelScores, ScoreRole, score
from trainers.stock.network_forecasts import MEDIAN

GAMMA: Final = 0.005
"""Step size of the level; the paper's choice for daily volatility (section 3)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantileResiduals:
    """Outcomes minus quantiles of N decisions, in units of the window's volatility at the horizon."""

    positions: PositionArray
    """[N] decision days, as ascending positions on the date axis."""
    values: FloatArray
    """[N, H, Q], NaN where the outcome is unknown."""


def adapt_offsets(
    calibration: QuantileResiduals,
    test: QuantileResiduals,
    levels: tuple[float, ...],
    target: Target,
    *,
    gamma: float = GAMMA,
) -> FloatArray:
    """[N, H, Q] offsets of the test decisions, in units of each window's volatility; 0 at the median.

    Args:
        calibration: Residuals of the calibration split; all its outcomes are known before the first test day.
        test: Residuals of the test days.
        levels: [Q]
        target: Outcomes are known `lag` + horizon sessions after the decision.
        gamma: Step size for outcomes that do not overlap.
    """
    offsets = np.zeros_like(test.values)
    for h, horizon in enumerate(target.horizons):
        for q, level in enumerate(levels):
            if level != MEDIAN:
                adaptive = _AdaptiveLevel(calibration.values[:, h, q], level, gamma / horizon)
                offsets[:, h, q] = adaptive.forecast(test.positions, test.values[:, h, q], target.lag + horizon)
    return offsets


def shift_quantiles(quantiles: FloatArray, offsets: FloatArray, levels: tuple[float, ...]) -> FloatArray:
    """Add offsets [N, H, Q] to quantiles [N, H, Q] and remove crossings as the model does."""
    return remove_crossings(torch.from_numpy(quantiles + offsets), find_anchor_index(levels)).numpy()


class _AdaptiveLevel:
    """The adaptive level of one quantile at one horizon."""

    def __init__(self, residuals: FloatArray, level: float, gamma: float) -> None:
        self._residuals = np.sort(residuals[np.isfinite(residuals)])
        self._target = level
        self._gamma = gamma
        self._level = level

    @property
    def offset(self) -> float:
        """The current shift: the order statistic of all known residuals at the current level.

        The paper uses an infinite band for a level outside [0, 1]. Here the level is clipped to [0, 1], so the shift is
        always one of the residuals.
        """
        return float(self._residuals[round(min(max(self._level, 0.0), 1.0) * (len(self._residuals) - 1))])

    def update(self, residuals: FloatArray, offset: float) -> None:
        """Update with the residuals [n] of one decision day, which was forecast with this offset."""
        ordered = np.sort(residuals[np.isfinite(residuals)])
        if ordered.size:
            self._level += self._gamma * (self._target - float((ordered <= offset).mean()))
            self._residuals = np.insert(self._residuals, np.searchsorted(self._residuals, ordered), ordered)

    def forecast(self, positions: PositionArray, residuals: FloatArray, delay: int) -> FloatArray:
        """[N] offsets by decision day, each after updates by all days whose outcomes are known by then."""
        days, starts, counts = np.unique(positions, return_index=True, return_counts=True)
        day_residuals = np.split(residuals, starts[1:])
        offsets: list[float] = []
        updates = 0
        for k, day in enumerate(days):
            while updates < k and days[updates] + delay <= day:
                self.update(day_residuals[updates], offsets[updates])
                updates += 1
            offsets.append(self.offset)
        return np.repeat(offsets, counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationEffect:
    """Effect of conformal offsets by horizon."""

    effective_blocks: tuple[float, ...]
    """[H] number of outcomes of the calibration split that do not overlap."""
    before: ModelScores
    """The model without its conformal offsets."""
    after: ModelScores
    """The model with its offsets, as served."""
    adaptive: ModelScores | None
    """The model with adaptive offsets; None unless requested."""
    gain: tuple[Interval, ...]
    """[H] 1 - Winkler score after / before; positive if the offsets help."""
    adaptive_gain: tuple[Interval, ...] | None
    """[H] the same for adaptive offsets."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastWindows:
    """Windows and their forecasts."""

    windows: TrainingWindows
    forecasts: ModelForecasts


def compare_calibration(
    test: EvaluationSet, ours: ModelForecasts, adaptive: FloatArray | None, effective_blocks: Sequence[float]
) -> CalibrationEffect:
    """Compare the model without offsets, with its offsets, and optionally with adaptive forecasts [N, H, Q]."""
    return CalibrationEffect(
        effective_blocks=tuple(effective_blocks),
        before=score(test, ours.raw, name="without offsets", role=ScoreRole.VARIANT),
        after=score(test, ours.calibrated, name="with its offsets", role=ScoreRole.VARIANT),
        adaptive=None if adaptive is None else score(test, adaptive, name="adaptive", role=ScoreRole.VARIANT),
        gain=_measure_gain(test, ours.raw, ours.calibrated),
        adaptive_gain=None if adaptive is None else _measure_gain(test, ours.raw, adaptive),
    )


def forecast_adaptively(
    history: History, calibration: ForecastWindows, test: ForecastWindows, levels: tuple[float, ...]
) -> FloatArray:
    """[N, H, Q] raw forecasts of the test windows with adaptive offsets that start from the calibration split."""
    target = history.pipeline.target
    scale = units_of(history, test.windows).scale
    offsets = adapt_offsets(
        _measure_residuals(history, calibration),
        _measure_residuals(history, test),
        levels,
        target,
    )
    return shift_quantiles(test.forecasts.raw, offsets * scale, levels)


def _measure_residuals(history: History, part: ForecastWindows) -> QuantileResiduals:
    missed = history.outcomes(part.windows)[..., None] - part.forecasts.raw
    return QuantileResiduals(positions=part.windows.positions, values=missed / units_of(history, part.windows).scale)


def _measure_gain(test: EvaluationSet, before: FloatArray, after: FloatArray) -> tuple[Interval, ...]:
    losses = zip(winkler(test, after).T, winkler(test, before).T, strict=True)
    return tuple(measure_improvement(test, ours, theirs) for ours, theirs in losses)
