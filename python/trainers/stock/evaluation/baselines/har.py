"""HAR: volatility from its averages over a day, a week and a month (Corsi 2009), all symbols as one."""

import numpy as np
from numpy.typing import NDArray

from predictor.networks import Target, TargetKind
from trainers.stock.data import Windows
from trainers.stock.evaluation.baselines.case import Baseline, Case, back_from, in_blocks

FloatArray = NDArray[np.float64]

DAYS = (1, 5, 22)


def har(case: Case) -> Baseline:
    """Log volatility by least squares on its three averages.

    Of volatility the quantiles are those of the training residuals. Of returns they are those of training outcomes in
    units of what the same regression forecasts, times what it forecasts now.
    """
    target = Target(kind=TargetKind.LOG_VOLATILITY, lag=case.target.lag, horizons=case.target.horizons)
    daily = target.daily(case.history.adjusted)
    labels = target.labels(case.history.adjusted)[case.learnt.symbols, case.learnt.positions]
    learnt, asked = (in_blocks(w, lambda block: _averages(daily, block)) for w in (case.learnt, case.windows))
    outcomes = case.history.outcomes(case.learnt)
    forecasts = np.empty(case.shape)
    for h, horizon in enumerate(case.target.horizons):
        weights = _least_squares(learnt, labels[:, h])
        centre, now = learnt @ weights, asked @ weights
        if case.target.kind is TargetKind.LOG_VOLATILITY:
            forecasts[:, h] = now[:, None] + _quantiles(outcomes[:, h] - centre, case.levels)
        else:
            root = np.sqrt(horizon)
            units = _quantiles(outcomes[:, h] / (root * np.exp(centre)), case.levels)
            forecasts[:, h] = root * np.exp(now)[:, None] * units
    return Baseline(name="HAR (1, 5, 22 days)", forecasts=forecasts)


def _averages(daily: FloatArray, windows: Windows) -> FloatArray:
    """[N, 4] one, and the means of the last 1, 5 and 22 days' log volatility; missing days are left out."""
    last = back_from(daily, windows, max(DAYS))
    means = [np.nanmean(last[:, -days:], axis=1) for days in DAYS]
    return np.stack([np.ones(len(windows)), *means], axis=1)


def _least_squares(known: FloatArray, outcomes: FloatArray) -> FloatArray:
    rows = np.isfinite(outcomes) & np.isfinite(known).all(axis=1)
    return np.asarray(np.linalg.lstsq(known[rows], outcomes[rows])[0], np.float64)


def _quantiles(values: FloatArray, levels: tuple[float, ...]) -> FloatArray:
    return np.nanquantile(values, levels)
