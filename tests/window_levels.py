"""Levels of every session of a history, computed window by window as in training."""

import numpy as np
from numpy.typing import NDArray

from predictor.networks import Normaliser
from predictor.windows import EncodedPanel, Pipeline, extract_trailing_windows

FloatArray = NDArray[np.float64]


def measure_levels(normaliser: Normaliser, daily: FloatArray, sessions: int) -> tuple[FloatArray, FloatArray]:
    """Location and scale [S, sessions] of the windows that end at each of the last sessions of a series [S, T]."""
    count, length = daily.shape
    symbols = np.repeat(np.arange(count), sessions)
    positions = np.tile(np.arange(length - sessions, length), count)
    location, scale = normaliser.compute_levels(
        (extract_trailing_windows(daily, symbols, positions, normaliser.window),)
    )
    return location[:, 0].reshape(count, sessions), scale[:, 0].reshape(count, sessions)


def levels_at(pipeline: Pipeline, encoded: EncodedPanel, position: int) -> tuple[FloatArray, FloatArray]:
    """Location and scale [S, H] of the windows that end at this position of the encoded bars"""
    count, length = encoded.series[0].shape
    return pipeline.compute_levels(encoded.series, np.arange(count), np.full(count, position % length))
