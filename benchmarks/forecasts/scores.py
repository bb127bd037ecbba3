"""Scores of quantile forecasts, one per window, so that they can be compared in pairs."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasts.task import LEVELS, FloatArray

Array = NDArray[np.float64]

BAND: Final = LEVELS[-1] - LEVELS[0]
"""Share of outcomes that the outer quantiles shall hold."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Scores [N] of every window, and of every step of it where it is said so, in standardised units.

    The interval score of the outer quantiles is Winkler's (1972; Gneiting and Raftery 2007, equation 43).
    """

    pinball: Array
    absolute_error: Array
    """Of the median."""
    covered: Array
    """[N, H] 1 where the outcome lies in the band of the outer quantiles, else 0."""
    winkler: Array


def scored(quantiles: NDArray[np.floating], outcomes: FloatArray) -> Scored:
    """Scores of quantiles [N, H, Q] at outcomes [N, H]."""
    levels, error = np.array(LEVELS), outcomes[..., None].astype(np.float64) - quantiles
    low, high = quantiles[..., 0], quantiles[..., -1]
    missed = np.maximum(low - outcomes, 0) + np.maximum(outcomes - high, 0)
    return Scored(
        pinball=np.maximum(levels * error, (levels - 1) * error).mean(axis=(1, 2)),
        absolute_error=np.abs(error[..., len(LEVELS) // 2]).mean(axis=1),
        covered=((outcomes >= low) & (outcomes <= high)).astype(np.float64),
        winkler=(high - low + 2 / (1 - BAND) * missed).mean(axis=1),
    )
