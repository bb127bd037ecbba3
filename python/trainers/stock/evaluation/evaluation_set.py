"""What is compared: the outcomes of windows, the days that they were decided on, and how much of a mean is luck.

Windows overlap and symbols move together, so uncertainty comes from resampling blocks of decision days, all symbols of
a day together (circular block bootstrap, Politis & Romano 1992). Resamples of few blocks scatter too little: they are
spread as much wider as so few blocks demand (Kiefer & Vogelsang 2005).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import nan

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from predictor.networks import Target
from trainers.stock.data import History, Windows
from trainers.stock.evaluation.standard_errors import stretch

FEWEST_BLOCKS = 5
"""Blocks of days that must fit into the split before an interval can tell skill from luck."""

RESAMPLES = 1000
LEVEL = 0.9
"""Share of resamples inside the intervals that are reported."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluationSet:
    """What is compared: outcomes of N windows and the day each was decided on."""

    outcomes: FloatArray
    """[N, H] in the target's unit, NaN where unknown."""
    sessions: NDArray[np.int32]
    """[T] the date axis, yyyymmdd."""
    positions: NDArray[np.int64]
    """[N] decision days, as positions on the date axis, not falling."""
    symbols: NDArray[np.int64]
    """[N] row of the panel."""
    target: Target
    levels: tuple[float, ...]

    @classmethod
    def of(cls, history: History, windows: Windows, levels: tuple[float, ...]) -> "EvaluationSet":
        """The outcomes of these windows."""
        return cls(
            outcomes=history.outcomes(windows),
            sessions=history.bars.sessions,
            positions=windows.positions,
            symbols=windows.symbols,
            target=history.pipeline.target,
            levels=levels,
        )

    @property
    def windows(self) -> Windows:
        """The windows themselves."""
        return Windows(symbols=self.symbols, positions=self.positions)

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
        """[H] how the target's scale grows with the horizon."""
        return self.target.spread

    @property
    def block(self) -> int:
        """Sessions a block of the bootstrap: twice the longest horizon, at least 20; shorter if too few days are there.

        A single block would be all days in every resample, and the interval a point.
        """
        return max(1, min(self.wanted_block, self.days // FEWEST_BLOCKS))

    @property
    def wanted_block(self) -> int:
        """Twice the longest horizon, at least 20: a block cuts the overlap of outcomes at both of its ends."""
        return max(20, 2 * self.horizons[-1])

    @property
    def stretch(self) -> float:
        """How much wider than resamples of so few blocks spread every interval must be."""
        return stretch(self.block / self.days)

    @property
    def days(self) -> int:
        """Different decision days."""
        return len(np.unique(self.positions))

    @property
    def days_short(self) -> int:
        """Decision days that are missing before the split is long enough to tell skill from luck; 0 if it is."""
        return max(0, FEWEST_BLOCKS * self.wanted_block - self.days)

    def rows(self, chosen: BoolArray) -> "EvaluationSet":
        """Those of the windows [N] that are chosen."""
        return EvaluationSet(
            outcomes=self.outcomes[chosen],
            sessions=self.sessions,
            positions=self.positions[chosen],
            symbols=self.symbols[chosen],
            target=self.target,
            levels=self.levels,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and the range that `LEVEL` of the stretched resamples fall into."""

    value: float
    lower: float
    upper: float


def by_day(test: EvaluationSet, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sums over each decision day's windows and how many were known: two arrays [D, …] from values [N, …]."""
    _, starts = np.unique(test.positions, return_index=True)
    known = np.isfinite(values)
    total = np.add.reduceat(np.where(known, values, 0.0), starts, axis=0)
    return total, np.add.reduceat(known.astype(np.float64), starts, axis=0)


def resampled_mean(test: EvaluationSet, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The mean of values [N, …] over known windows, and [RESAMPLES, …] means of resampled blocks of days.

    The resamples are stretched around the mean, though not beyond the values themselves. NaN where nothing is known: a
    mean without any window, or a resample that drew none of its days.
    """
    total, count = by_day(test, values)
    weights = block_weights(len(total), test.block)
    mean = quotient(total.sum(axis=0), count.sum(axis=0))
    means = quotient(np.tensordot(weights, total, axes=1), np.tensordot(weights, count, axes=1))
    known = np.isfinite(values)
    least = values.min(axis=0, initial=np.inf, where=known)
    most = values.max(axis=0, initial=-np.inf, where=known)
    return mean, np.clip(stretched(test, mean, means), least, most)


def stretched(test: EvaluationSet, value: FloatArray, resamples: FloatArray) -> FloatArray:
    """Resamples [RESAMPLES, …] of a value [...], spread as wide as so few blocks demand."""
    return value + test.stretch * (resamples - value)


def interval(value: float, resamples: FloatArray) -> Interval:
    """The middle `LEVEL` of resamples [RESAMPLES] around a value."""
    known = resamples[np.isfinite(resamples)]
    if known.size == 0:
        return Interval(value=value, lower=nan, upper=nan)
    lower, upper = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value=value, lower=float(lower), upper=float(upper))


def intervals(values: FloatArray, resamples: FloatArray) -> tuple[Interval, ...]:
    """One interval for each of the values [K], from resamples [RESAMPLES, K]."""
    return tuple(interval(float(value), column) for value, column in zip(values, resamples.T, strict=True))


def quotient(total: FloatArray, count: FloatArray) -> FloatArray:
    """[…] total / count, of shapes that broadcast; NaN where the count is not above 0."""
    shape = np.broadcast_shapes(total.shape, count.shape)
    return np.divide(total, count, out=np.full(shape, nan), where=count > 0)


@lru_cache(maxsize=4)
def block_weights(days: int, block: int) -> FloatArray:
    """[RESAMPLES, D] how often each day is drawn when blocks of days are drawn around a circle."""
    random = np.random.default_rng(0)
    blocks = -(-days // block)
    starts = random.integers(0, days, (RESAMPLES, blocks))
    drawn = (starts[..., None] + np.arange(block)) % days
    drawn = drawn.reshape(RESAMPLES, -1)[:, :days]
    weights = np.zeros((RESAMPLES, days))
    np.add.at(weights, (np.arange(RESAMPLES)[:, None], drawn), 1.0)
    weights.setflags(write=False)  # all callers share it
    return weights
