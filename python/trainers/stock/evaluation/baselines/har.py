"""HAR: volatility from its averages over a day, a week and a month (Corsi 2009), all symbols as one."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.networks import Target, TargetKind
from predictor.windows import back_from
from trainers.stock.data import Windows
from trainers.stock.evaluation.baselines.case import Baseline, Case, in_blocks

FloatArray = NDArray[np.float64]

DAYS = (1, 5, 22)
LEARNT_FROM: Final = 200_000
"""Training windows at most; more do not change four weights, and they take memory."""
SYMBOLS_AT_ONCE: Final = 64


def har(case: Case) -> Baseline:
    """Log volatility by least squares on its three averages.

    Of volatility the quantiles are those of the training residuals. Of returns they are those of training outcomes in
    units of what the same regression forecasts, times what it forecasts now.
    """
    windows = case.learnt_at_most(LEARNT_FROM)
    daily, labels = _volatility(case, windows)
    learnt, asked = (in_blocks(w, lambda block: _averages(daily, block)) for w in (windows, case.windows))
    outcomes = case.history.outcomes(windows)
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


def _volatility(case: Case, windows: Windows) -> tuple[FloatArray, FloatArray]:
    """Daily log volatility [S, T], and what the windows came to, [N, H]; a few symbols adjusted at a time."""
    target = Target(kind=TargetKind.LOG_VOLATILITY, lag=case.target.lag, horizons=case.target.horizons)
    bars = case.history.bars
    daily, labels = np.empty(bars.close.shape), np.empty((len(windows), len(target.horizons)))
    for first in range(0, len(bars.symbols), SYMBOLS_AT_ONCE):
        few = bars.select(bars.symbols[first : first + SYMBOLS_AT_ONCE]).adjusted()
        daily[first : first + SYMBOLS_AT_ONCE] = target.daily(few)
        own = (windows.symbols >= first) & (windows.symbols < first + SYMBOLS_AT_ONCE)
        labels[own] = target.labels(few)[windows.symbols[own] - first, windows.positions[own]]
    return daily, labels


def _averages(daily: FloatArray, windows: Windows) -> FloatArray:
    """[N, 4] one, and the means of the last 1, 5 and 22 days' log volatility; missing days are left out."""
    last = back_from(daily, windows.symbols, windows.positions, max(DAYS))
    means = [np.nanmean(last[:, -days:], axis=1) for days in DAYS]
    return np.stack([np.ones(len(windows)), *means], axis=1)


def _least_squares(known: FloatArray, outcomes: FloatArray) -> FloatArray:
    rows = np.isfinite(outcomes) & np.isfinite(known).all(axis=1)
    return np.asarray(np.linalg.lstsq(known[rows], outcomes[rows])[0], np.float64)


def _quantiles(values: FloatArray, levels: tuple[float, ...]) -> FloatArray:
    return np.nanquantile(values, levels)
