"""Quantiles of the last days: historical simulation."""

from typing import Final

import numpy as np

from trainers.stock.evaluation.baselines.asked import Asked
from trainers.stock.evaluation.baselines.baseline import Baseline, Fit, Fitted, FloatArray
from trainers.stock.evaluation.baselines.sample import Sample, recent

SESSIONS: Final = 60
LEARNT_FROM: Final = 200_000
"""Windows at most, for those that have no days of their own."""


def empirical(sample: Sample) -> Fitted:
    """Quantiles of the last 60 values of the daily series; of returns, times the square root of the horizon.

    A window without any value in these days has the quantiles of the sample's outcomes.
    """
    history, levels = sample.history, sample.levels
    otherwise = np.nanquantile(history.outcomes(sample.at_most(LEARNT_FROM)), levels, axis=0).T

    def quantiles(asked: Asked) -> FloatArray:
        daily = _of_known(recent(history, asked.windows, SESSIONS), np.array(levels))
        found = sample.target.spread[:, None] * daily[:, None]
        return np.where(np.isnan(found), otherwise, found)

    return Fitted(quantiles=quantiles)


def _of_known(values: FloatArray, levels: FloatArray) -> FloatArray:
    """[n, Q] quantiles of the known ones among the values [n, days], NaN without any; as numpy's nanquantile, but fast.

    That one goes through the rows in Python.
    """
    ordered, rows = np.sort(values, axis=1), np.arange(len(values))[:, None]  # NaN comes last
    last = np.maximum(np.isfinite(values).sum(axis=1) - 1, 0)[:, None]
    place = levels * last
    below = place.astype(np.int64)
    lower, upper = ordered[rows, below], ordered[rows, np.minimum(below + 1, last)]
    return lower + (place - below) * (upper - lower)


EMPIRICAL: Final = Baseline(
    name=f"{SESSIONS}-day empirical quantiles", estimator=empirical, fits=(Fit.AS_IS, Fit.CALIBRATED)
)
"""Its days are always the last ones, so that nothing is to be refitted; moved it can be, as the model is."""
