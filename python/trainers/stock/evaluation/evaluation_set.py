"""Outcomes of the evaluated windows, and bootstrap intervals of their means.

Windows overlap and symbols move together, so blocks of decision days are resampled, all symbols of a day together
(circular block bootstrap, Politis & Romano 1992). Resamples of few blocks vary too little, so intervals are widened
(Kiefer & Vogelsang 2005).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import nan

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from predictor.arrays import BoolArray, FloatArray
from predictor.inference import Engine
from predictor.networks import OutputMap, Target
from trainers.stock.data import WINDOWS_PER_BATCH, History, TrainingWindows
from trainers.stock.network_forecasts import forecast_with_network, join_parts


def standard_error(series: FloatArray, lag: int | None = None) -> float:
    """Standard error of the mean of an autocorrelated series [T] (Newey & West 1987).

    Args:
        series: Without NaN.
        lag: Number of autocovariances, at most T - 1; None for floor(4 (T / 100)^(2/9)) (Newey & West 1994).
    """
    count = len(series)
    reach = min(int(4 * (count / 100) ** (2 / 9)) if lag is None else lag, count - 1)
    left = series - series.mean()
    variance = float(left @ left) / count
    for k in range(1, reach + 1):
        variance += 2 * (1 - k / (reach + 1)) * float(left[k:] @ left[:-k]) / count
    return (max(variance, 0.0) / count) ** 0.5


def widening_factor(share: float) -> float:
    """Factor by which an error from few independent blocks of days must be widened.

    The 95 % critical value for a Bartlett window or bootstrap block of this share of all days (Kiefer & Vogelsang 2005,
    table 1; Shao & Politis 2013), divided by that of the normal distribution.

    Args:
        share: Lag or block length over the number of days, from 0 to 1.
    """
    return 1 + (2.1859 * share + 0.3142 * share**2 - 0.3427 * share**3) / 1.6449


MIN_BLOCKS = 5
"""Blocks of days needed before an interval can tell skill from luck."""


RESAMPLES = 1000

CONFIDENCE = 0.9
"""Share of resamples inside reported intervals."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluationSet:
    """Outcomes and decision days of N windows."""

    outcomes: FloatArray
    """[N, H] in the target's unit, NaN where unknown."""
    sessions: NDArray[np.int32]
    """[T] the date axis, yyyymmdd."""
    positions: NDArray[np.int64]
    """[N] decision days, as ascending positions on the date axis."""
    symbols: NDArray[np.int64]
    """[N] row of the panel."""
    target: Target
    levels: tuple[float, ...]

    @classmethod
    def of(cls, history: History, windows: TrainingWindows, levels: tuple[float, ...]) -> "EvaluationSet":
        """The set of these windows."""
        return cls(
            outcomes=history.outcomes(windows),
            sessions=history.bars.sessions,
            positions=windows.positions,
            symbols=windows.symbols,
            target=history.pipeline.target,
            levels=levels,
        )

    @property
    def windows(self) -> TrainingWindows:
        """The windows."""
        return TrainingWindows(symbols=self.symbols, positions=self.positions)

    @property
    def span(self) -> tuple[int, int]:
        """First and last decision day, yyyymmdd."""
        return int(self.sessions[self.positions[0]]), int(self.sessions[self.positions[-1]])

    @property
    def horizons(self) -> tuple[int, ...]:
        """[H] trading days."""
        return self.target.horizons

    @property
    def spread(self) -> FloatArray:
        """[H] growth of the target's scale with the horizon."""
        return self.target.spread

    @property
    def block(self) -> int:
        """Sessions per bootstrap block: `wanted_block`, or fewer so that at least `MIN_BLOCKS` blocks fit."""
        return max(1, min(self.wanted_block, self.days // MIN_BLOCKS))

    @property
    def wanted_block(self) -> int:
        """Twice the longest horizon, at least 20, because a block cuts overlapping outcomes at both ends."""
        return max(20, 2 * self.horizons[-1])

    @property
    def widening_factor(self) -> float:
        """Factor by which intervals are widened."""
        return widening_factor(self.block / self.days)

    @property
    def days(self) -> int:
        """Number of decision days."""
        return len(np.unique(self.positions))

    @property
    def days_short(self) -> int:
        """Decision days missing to tell skill from luck; 0 if there are enough."""
        return max(0, MIN_BLOCKS * self.wanted_block - self.days)

    def rows(self, mask: BoolArray) -> "EvaluationSet":
        """Select windows by a mask [N]."""
        return EvaluationSet(
            outcomes=self.outcomes[mask],
            sessions=self.sessions,
            positions=self.positions[mask],
            symbols=self.symbols[mask],
            target=self.target,
            levels=self.levels,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and the central range of `CONFIDENCE` of the widened resamples."""

    value: float
    lower: float
    upper: float


def by_day(test: EvaluationSet, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sum and count of the finite values [N, …] by decision day: two arrays [D, …]."""
    _, starts = np.unique(test.positions, return_index=True)
    is_finite = np.isfinite(values)
    total = np.add.reduceat(np.where(is_finite, values, 0.0), starts, axis=0)
    return total, np.add.reduceat(is_finite.astype(np.float64), starts, axis=0)


def resampled_mean(test: EvaluationSet, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean of the finite values [N, …], and means [RESAMPLES, …] of resampled blocks of days.

    The resamples are widened around the mean, but not beyond the range of the values. A mean without any finite value
    is NaN.
    """
    total, count = by_day(test, values)
    weights = block_weights(len(total), test.block)
    mean = quotient(total.sum(axis=0), count.sum(axis=0))
    means = quotient(np.tensordot(weights, total, axes=1), np.tensordot(weights, count, axes=1))
    is_finite = np.isfinite(values)
    low = values.min(axis=0, initial=np.inf, where=is_finite)
    high = values.max(axis=0, initial=-np.inf, where=is_finite)
    return mean, np.clip(widen_resamples(test, mean, means), low, high)


def widen_resamples(test: EvaluationSet, value: FloatArray, resamples: FloatArray) -> FloatArray:
    """Widen resamples [RESAMPLES, …] around a value [...] for the small number of blocks."""
    return value + test.widening_factor * (resamples - value)


def interval(value: float, resamples: FloatArray) -> Interval:
    """The central `CONFIDENCE` of resamples [RESAMPLES] of a value."""
    values = resamples[np.isfinite(resamples)]
    if values.size == 0:
        return Interval(value=value, lower=nan, upper=nan)
    lower, upper = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(value=value, lower=float(lower), upper=float(upper))


def intervals(values: FloatArray, resamples: FloatArray) -> tuple[Interval, ...]:
    """One interval per value [K], from resamples [RESAMPLES, K]."""
    return tuple(interval(float(value), column) for value, column in zip(values, resamples.T, strict=True))


def quotient(total: FloatArray, count: FloatArray) -> FloatArray:
    """[…] total / count with broadcasting; NaN where the count is not positive."""
    shape = np.broadcast_shapes(total.shape, count.shape)
    return np.divide(total, count, out=np.full(shape, nan), where=count > 0)


@lru_cache(maxsize=4)
def block_weights(days: int, block: int) -> FloatArray:
    """[RESAMPLES, D] how often a circular block bootstrap draws each day."""
    random = np.random.default_rng(0)
    blocks = -(-days // block)
    starts = random.integers(0, days, (RESAMPLES, blocks))
    days_drawn = (starts[..., None] + np.arange(block)) % days
    days_drawn = days_drawn.reshape(RESAMPLES, -1)[:, :days]
    weights = np.zeros((RESAMPLES, days))
    np.add.at(weights, (np.arange(RESAMPLES)[:, None], days_drawn), 1.0)
    weights.setflags(write=False)  # all callers share it
    return weights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastUnits:
    """Location and scale of N windows, in which networks forecast and conformal offsets are measured."""

    location: FloatArray
    """[N, H, 1] level at each horizon."""
    scale: FloatArray
    """[N, H, 1] volatility over each horizon."""

    def rows(self, rows: slice) -> "ForecastUnits":
        """Select some of the windows."""
        return ForecastUnits(location=self.location[rows], scale=self.scale[rows])

    def normalise(self, values: FloatArray) -> FloatArray:
        """Convert values [N, H, Q] of the target to these units."""
        return (values - self.location) / self.scale

    def restore(self, normalised: FloatArray) -> FloatArray:
        """Convert values [N, H, Q] in these units to the target's unit."""
        return self.location + self.scale * normalised


def units_of(history: History, windows: TrainingWindows) -> ForecastUnits:
    """The units of these windows."""
    location, scale = (part.numpy() for part in history.location_and_scale(windows))
    return ForecastUnits(location=location[..., None], scale=(scale * history.pipeline.target.spread)[..., None])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelForecasts:
    """A model's forecasts of N windows."""

    raw: FloatArray
    """[N, H, Q] quantiles in the target's unit, before conformal offsets."""
    calibrated: FloatArray
    """[N, H, Q] quantiles after conformal offsets, as served."""
    scores: FloatArray | None
    """[N, H] scores of a ranking model."""


def forecasts_of(
    engine: Engine, output: OutputMap, history: History, windows: TrainingWindows, universe: Sequence[str] = ()
) -> ModelForecasts:
    """Forecast windows of a history that the model's pipeline has encoded.

    `universe` has the symbols in the order of the nodes of a graph.
    """
    forecasts = forecast_with_network(engine, history, windows, universe)
    parts = (forecasts.units, *history.location_and_scale(windows))
    return ModelForecasts(
        raw=_map(output, *parts, torch.zeros_like(output.offsets)),
        calibrated=_map(output, *parts, output.offsets),
        scores=None if forecasts.scores is None else forecasts.scores.double().numpy(),
    )


def _map(output: OutputMap, units: Tensor, location: Tensor, scale: Tensor, offsets: Tensor) -> FloatArray:
    """[N, H, Q] quantiles in the target's unit, computed in blocks of windows."""
    parts = zip(
        units.split(WINDOWS_PER_BATCH), location.split(WINDOWS_PER_BATCH), scale.split(WINDOWS_PER_BATCH), strict=True
    )
    return join_parts((output.map_tensors(*part, offsets) for part in parts), len(units)).numpy()
