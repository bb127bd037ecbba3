"""Moving-block bootstrap over decision times: errors for scores of overlapping windows (Kunsch 1989).

All series of a decision stay together, because they move together. Seeds are resampled, too, so that an interval
covers the variation of test years and of seeds.
"""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasts.task import IndexArray

Array = NDArray[np.float64]

DRAWS: Final = 2000
SEED: Final = 20
BLOCK_HORIZONS: Final = 2
"""Horizons per block: windows overlap for one, and are not independent right after it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean with its bootstrap error and its 95 % interval."""

    mean: float
    error: float
    low: float
    high: float


@final
class Resampler:
    """Draws blocks of decision times.

    Args:
        decisions: [N] decision of each window; those of one decision are adjacent.
        horizon: steps that the targets of neighbouring windows share.
    """

    def __init__(self, decisions: IndexArray, *, horizon: int) -> None:
        self._starts = np.flatnonzero(np.r_[True, np.diff(decisions) > 0])
        self._sizes = np.diff(np.r_[self._starts, len(decisions)])
        times = len(self._starts)
        self.block = min(BLOCK_HORIZONS * horizon, times)
        count = -(-times // self.block)
        firsts = np.random.default_rng(SEED).integers(0, times - self.block + 1, (DRAWS, count))
        self._times = (firsts[..., None] + np.arange(self.block)).reshape(DRAWS, -1)[:, :times]

    @property
    def effective(self) -> int:
        """Number of blocks, which approximates the number of independent observations."""
        return len(self._starts) // self.block

    def mean(self, scores: Array) -> Interval:
        """Mean of scores [N] or [seeds, N]."""
        return self._interval(self._drawn(scores), float(np.mean(scores)))

    def difference(self, ours: Array, theirs: Array) -> Interval:
        """Mean of ours less theirs over the same windows; each [N] or [seeds, N], the seeds not paired."""
        drawn = self._drawn(ours) - self._drawn(theirs, stream=1)
        return self._interval(drawn, float(np.mean(ours) - np.mean(theirs)))

    def _drawn(self, scores: Array, *, stream: int = 0) -> Array:
        """[draws] means over the drawn times and over seeds, which each stream draws independently."""
        rows = np.atleast_2d(scores)
        by_time = np.add.reduceat(rows, self._starts, axis=1) / self._sizes
        seeds = np.random.default_rng([SEED, stream]).integers(0, len(rows), (DRAWS, len(rows)))
        shares = np.stack([np.bincount(draw, minlength=len(rows)) for draw in seeds]) / len(rows)
        means = np.stack([by_time[:, times].mean(axis=1) for times in self._times])
        return (shares * means).sum(axis=1)

    @staticmethod
    def _interval(drawn: Array, mean: float) -> Interval:
        low, high = np.quantile(drawn, (0.025, 0.975))
        return Interval(mean=mean, error=float(drawn.std()), low=float(low), high=float(high))
