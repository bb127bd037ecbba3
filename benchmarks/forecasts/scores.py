"""Scores of quantile forecasts per window, for paired comparisons."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasts.task import LEVELS, FloatArray

Array = NDArray[np.float64]

BAND: Final = LEVELS[-1] - LEVELS[0]
"""Nominal coverage of the outer quantiles."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WindowScores:
    """Scores [N] of every window, unless noted, in standardised units.

    The interval score of the outer quantiles is Winkler's (1972; Gneiting and Raftery 2007, equation 43).
    """

    pinball: Array
    absolute_error: Array
    """Absolute error of the median."""
    covered: Array
    """[N, H] 1 if the outcome lies within the outer quantiles, else 0."""
    winkler: Array


def score_windows(quantiles: NDArray[np.floating], outcomes: FloatArray) -> WindowScores:
    """Scores of quantiles [N, H, Q] at outcomes [N, H]."""
    levels, error = np.array(LEVELS), outcomes[..., None].astype(np.float64) - quantiles
    low, high = quantiles[..., 0], quantiles[..., -1]
    missed = np.maximum(low - outcomes, 0) + np.maximum(outcomes - high, 0)
    return WindowScores(
        pinball=np.maximum(levels * error, (levels - 1) * error).mean(axis=(1, 2)),
        absolute_error=np.abs(error[..., len(LEVELS) // 2]).mean(axis=1),
        covered=((outcomes >= low) & (outcomes <= high)).astype(np.float64),
        winkler=(high - low + 2 / (1 - BAND) * missed).mean(axis=1),
    )
