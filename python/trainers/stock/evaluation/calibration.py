"""What moving the quantiles did: the model's own conformal offsets, and adaptive ones.

Adaptive conformal inference (Gibbs & Candès 2021) has offsets that follow how often outcomes fell below each quantile.
The paper moves the level of a band by gamma x (miss rate wanted - missed or not) after each day. Here each tail of each
horizon has a level of its own, as the model's own offsets have. What comes h days after a decision is known only then:
a day's forecast learns from those decisions alone whose outcomes had come by that day. The outcomes of h days in a row
overlap and are about one, so each moves the level by gamma / h.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from predictor.arrays import FloatArray, PositionArray
from predictor.networks import anchor_index, uncrossed
from trainers.stock.conformal import MEDIAN
from trainers.stock.data import History, Windows
from trainers.stock.evaluation.comparison import improvement, winkler
from trainers.stock.evaluation.evaluation_set import EvaluationSet, Interval
from trainers.stock.evaluation.forecasts import Forecasts, units_of
from trainers.stock.evaluation.scores import ModelScores, Role, score

GAMMA: Final = 0.005
"""How far an outcome moves a level; the paper's choice for daily volatility (section 3)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residuals:
    """Outcomes minus quantiles of N decisions, in units of each window's volatility at its horizon."""

    positions: PositionArray
    """[N] decision days, as positions on the date axis, not falling."""
    values: FloatArray
    """[N, H, Q], NaN where the outcome is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """When outcomes are known: `lag` + horizon sessions after the decision."""

    lag: int
    horizons: tuple[int, ...]


def adaptive_offsets(
    seen: Residuals, test: Residuals, levels: tuple[float, ...], delay: Delay, *, gamma: float = GAMMA
) -> FloatArray:
    """[N, H, Q] offsets of the test decisions, in units of each window's volatility; 0 at the median.

    Args:
        seen: of the calibration part, all of whose outcomes are known before the first test day.
        test: of the days to walk over.
        levels: [Q]
        delay: when outcomes are known.
        gamma: how far an outcome that overlaps no other moves a level.
    """
    offsets = np.zeros_like(test.values)
    for h, horizon in enumerate(delay.horizons):
        for q, level in enumerate(levels):
            if level != MEDIAN:
                walk = _Walk(seen.values[:, h, q], level, gamma / horizon)
                daily = _daily_offsets(walk, test.positions, test.values[:, h, q], delay.lag + horizon)
                offsets[:, h, q] = np.concatenate(list(daily))
    return offsets


def shifted(quantiles: FloatArray, offsets: FloatArray, levels: tuple[float, ...]) -> FloatArray:
    """Quantiles [N, H, Q] plus offsets of the same unit, with those that crossed put level, as the model's own are."""
    return uncrossed(torch.from_numpy(quantiles + offsets), anchor_index(levels)).numpy()


class _Walk:
    """One tail of one horizon on its way through time.

    Args:
        residuals: known before the walk begins; NaN where unknown.
        level: share of outcomes that should fall below the quantile.
        gamma: how far a day moves the level in use.
    """

    def __init__(self, residuals: FloatArray, level: float, gamma: float) -> None:
        self._known = np.sort(residuals[np.isfinite(residuals)])
        self._wanted = level
        self._gamma = gamma
        self._level = level

    @property
    def offset(self) -> float:
        """The shift for a forecast made now: the order statistic, at the level in use, of all residuals known by now.

        Beyond 0 and 1 the paper takes an infinite band; here it ends at the largest residual there has been.
        """
        return float(self._known[round(min(max(self._level, 0.0), 1.0) * (len(self._known) - 1))])

    def learn(self, residuals: FloatArray, offset: float) -> None:
        """See the residuals [n] of one decision day, which was forecast with this offset."""
        known = np.sort(residuals[np.isfinite(residuals)])
        if known.size:
            self._level += self._gamma * (self._wanted - float((known <= offset).mean()))
            self._known = np.insert(self._known, np.searchsorted(self._known, known), known)


def _daily_offsets(walk: _Walk, positions: PositionArray, residuals: FloatArray, delay: int) -> Iterator[FloatArray]:
    """The offsets of each decision day's rows; before a day, all days whose outcomes have come are learnt from."""
    days, starts = np.unique(positions, return_index=True)
    rows = np.split(residuals, starts[1:])
    used: list[float] = []
    learnt = 0
    for k, day in enumerate(days):
        while learnt < k and days[learnt] + delay <= day:
            walk.learn(rows[learnt], used[learnt])
            learnt += 1
        used.append(walk.offset)
        yield np.full(len(rows[k]), used[k])


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationEffect:
    """What moving the quantiles did, horizon by horizon."""

    effective_blocks: tuple[float, ...]
    """[H] days of the calibration part over the horizon: that many of its outcomes do not overlap."""
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
class ForecastWindows:
    """Windows and the model's forecasts of them."""

    windows: Windows
    forecasts: Forecasts


def calibration(
    test: EvaluationSet, ours: Forecasts, adaptive: FloatArray | None, effective_blocks: Sequence[float]
) -> CalibrationEffect:
    """Compare the model before and after its offsets, and with adaptive forecasts [N, H, Q] if there are any."""
    return CalibrationEffect(
        effective_blocks=tuple(effective_blocks),
        before=score(test, ours.raw, name="without offsets", role=Role.VARIANT),
        after=score(test, ours.calibrated, name="with its offsets", role=Role.VARIANT),
        adaptive=None if adaptive is None else score(test, adaptive, name="adaptive", role=Role.VARIANT),
        gain=_gain(test, ours.raw, ours.calibrated),
        adaptive_gain=None if adaptive is None else _gain(test, ours.raw, adaptive),
    )


def adaptive_forecasts(
    history: History, seen: ForecastWindows, test: ForecastWindows, levels: tuple[float, ...]
) -> FloatArray:
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


def _residuals(history: History, part: ForecastWindows) -> Residuals:
    missed = history.outcomes(part.windows)[..., None] - part.forecasts.raw
    return Residuals(positions=part.windows.positions, values=missed / units_of(history, part.windows).scale)


def _gain(test: EvaluationSet, before: FloatArray, after: FloatArray) -> tuple[Interval, ...]:
    losses = zip(winkler(test, after).T, winkler(test, before).T, strict=True)
    return tuple(improvement(test, ours, theirs) for ours, theirs in losses)
