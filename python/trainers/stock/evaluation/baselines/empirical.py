"""Quantiles of the last days: historical simulation."""

import numpy as np
from numpy.typing import NDArray

from trainers.stock.data import Windows
from trainers.stock.evaluation.baselines.case import Baseline, Case, in_blocks, recent

FloatArray = NDArray[np.float64]

SESSIONS = 60


def empirical(case: Case) -> Baseline:
    """Quantiles of the last 60 values of the daily series; of returns, times the square root of the horizon.

    A window without any value in these days has the quantiles of the training part.
    """

    def quantiles(windows: Windows) -> FloatArray:
        """[n, Q]; NaN where no value is known."""
        values = recent(case.history, windows, SESSIONS)
        found = np.full((len(windows), len(case.levels)), np.nan)
        known = np.isfinite(values).any(axis=1)
        found[known] = np.nanquantile(values[known], case.levels, axis=1).T
        return found

    daily = in_blocks(case.windows, quantiles)
    forecasts = case.target.spread[None, :, None] * daily[:, None, :]
    unknown = np.isnan(daily[:, 0])
    forecasts[unknown] = np.nanquantile(case.history.outcomes(case.learnt), case.levels, axis=0).T
    return Baseline(name=f"{SESSIONS}-day empirical quantiles", forecasts=forecasts)
