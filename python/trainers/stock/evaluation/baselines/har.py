"""HAR: volatility from its averages over a day, a week and a month (Corsi 2009), all symbols as one."""

from typing import Final

import numpy as np

from predictor.networks import Target, TargetKind
from predictor.windows import back_from
from trainers.stock.data import History, Windows
from trainers.stock.evaluation.baselines.asked import Asked, in_blocks
from trainers.stock.evaluation.baselines.baseline import Baseline, Fitted, FloatArray, NoForecastError
from trainers.stock.evaluation.baselines.sample import Sample

DAYS: Final = (1, 5, 22)
LEARNT_FROM: Final = 200_000
"""Windows at most; more do not change four weights, and they take memory."""
SYMBOLS_AT_ONCE: Final = 64


def har(sample: Sample) -> Fitted:
    """Log volatility by least squares on its three averages.

    Of volatility the quantiles are those of the residuals. Of returns they are those of past outcomes in units of what
    the same regression forecasts, times what it forecasts now.
    """
    history, learnt = sample.history, sample.at_most(LEARNT_FROM)
    daily, labels = _volatility(history, learnt)
    known = in_blocks(learnt, lambda block: _averages(daily, block))
    weights = np.stack([_least_squares(known, labels[:, h]) for h in range(labels.shape[1])], axis=1)
    centres, outcomes = known @ weights, history.outcomes(learnt)
    if sample.target.kind is TargetKind.LOG_VOLATILITY:
        residuals = np.nanquantile(outcomes - centres, sample.levels, axis=0).T
        return Fitted(quantiles=lambda asked: (_averages(daily, asked.windows) @ weights)[..., None] + residuals)
    root = np.sqrt(sample.target.horizons)
    units = np.nanquantile(outcomes / (root * np.exp(centres)), sample.levels, axis=0).T

    def quantiles(asked: Asked) -> FloatArray:
        return (root * np.exp(_averages(daily, asked.windows) @ weights))[..., None] * units

    return Fitted(quantiles=quantiles)


def _volatility(history: History, windows: Windows) -> tuple[FloatArray, FloatArray]:
    """Daily log volatility [S, T], and what the windows came to, [N, H]; a few symbols adjusted at a time."""
    own = history.pipeline.target
    target = Target(kind=TargetKind.LOG_VOLATILITY, lag=own.lag, horizons=own.horizons)
    bars = history.bars
    daily, labels = np.empty(bars.close.shape), np.empty((len(windows), len(target.horizons)))
    for first in range(0, len(bars.symbols), SYMBOLS_AT_ONCE):
        few = bars.select(bars.symbols[first : first + SYMBOLS_AT_ONCE]).adjusted()
        daily[first : first + SYMBOLS_AT_ONCE] = target.daily(few)
        rows = (windows.symbols >= first) & (windows.symbols < first + SYMBOLS_AT_ONCE)
        labels[rows] = target.labels(few)[windows.symbols[rows] - first, windows.positions[rows]]
    return daily, labels


def _averages(daily: FloatArray, windows: Windows) -> FloatArray:
    """[N, 4] one, and the means of the last 1, 5 and 22 days' log volatility; missing days are left out."""
    last = back_from(daily, windows.symbols, windows.positions, max(DAYS))
    means = [np.nanmean(last[:, -days:], axis=1) for days in DAYS]
    return np.stack([np.ones(len(windows)), *means], axis=1)


def _least_squares(known: FloatArray, outcomes: FloatArray) -> FloatArray:
    rows = np.isfinite(outcomes)
    if not rows.any():
        raise NoForecastError("no window that it could be fitted on has a bar on every session of a horizon")
    return np.asarray(np.linalg.lstsq(known[rows], outcomes[rows])[0], np.float64)


HAR: Final = Baseline(name="HAR (1, 5, 22 days)", estimator=har)
