"""Levels of a window normaliser at every step of a history, as training computes them window by window."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.networks import WindowNormaliser
from predictor.windows import trailing_windows

FloatArray = NDArray[np.float64]

SERIES_AT_ONCE: Final = 16
"""Series whose windows are in memory at the same time."""


def daily_levels(normaliser: WindowNormaliser, daily: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Location and scale [S, T] of the window that ends at each step of daily values [S, T]."""
    parts = [
        _levels(normaliser, daily[first : first + SERIES_AT_ONCE]) for first in range(0, len(daily), SERIES_AT_ONCE)
    ]
    locations, scales = zip(*parts, strict=True)
    return np.concatenate(locations), np.concatenate(scales)


def _levels(normaliser: WindowNormaliser, daily: FloatArray) -> tuple[FloatArray, FloatArray]:
    series, steps = (index.ravel() for index in np.indices(daily.shape))
    location, scale = normaliser.levels((trailing_windows(daily, series, steps, normaliser.window),))
    return location.reshape(daily.shape), scale.reshape(daily.shape)
