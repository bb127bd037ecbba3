"""Where in its forecast distribution each outcome fell: the histogram of the probability integral transform."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trainers.stock.evaluation.judged import Judged
from trainers.stock.evaluation.losses import below
from trainers.stock.evaluation.resampling import Interval, intervals, resampled_mean

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pit:
    """The histogram of one horizon (Dawid 1984): one bin between two quantiles, which is as fine as Q quantiles tell.

    Calibrated forecasts fill each bin with its expected share.
    """

    horizon: int
    edges: tuple[float, ...]
    """[B + 1] levels, from 0 to 1."""
    expected: tuple[float, ...]
    """[B] share of outcomes that calibrated forecasts have in each bin."""
    counts: tuple[int, ...]
    """[B] outcomes."""
    shares: tuple[Interval, ...]
    """[B] share of the outcomes."""


def pit(judged: Judged, forecasts: FloatArray) -> tuple[Pit, ...]:
    """One histogram a horizon, from forecasts [N, H, Q]."""
    fell = below(judged, forecasts)
    whole = np.where(np.isnan(fell[..., :1]), np.nan, 1.0)
    bins = np.diff(np.concatenate([0.0 * whole, fell, whole], axis=-1), axis=-1)
    means, resamples = resampled_mean(judged, bins)
    edges = (0.0, *judged.levels, 1.0)
    return tuple(
        Pit(
            horizon=horizon,
            edges=edges,
            expected=tuple(b - a for a, b in pairwise(edges)),
            counts=tuple(int(count) for count in np.nansum(bins[:, h], axis=0)),
            shares=intervals(means[h], resamples[:, h]),
        )
        for h, horizon in enumerate(judged.horizons)
    )
