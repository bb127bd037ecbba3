"""What is compared: the outcomes of windows, and the days that they were decided on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from predictor.networks import Target
from trainers.stock.data import History, Windows
from trainers.stock.evaluation.standard_errors import stretch

FEWEST_BLOCKS = 5
"""Blocks of days that must fit into the split before an interval can tell skill from luck."""


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
        """What came after these windows."""
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
