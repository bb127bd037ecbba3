"""HAR: volatility from its averages over a day, a week and a month (Corsi 2009), pooled over symbols.

Sessions without a range count as missing, because their logs would dominate the fit.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from predictor.arrays import FloatArray
from predictor.networks import TargetKind, window_mean
from predictor.windows import back_from
from trainers.stock.data import History, TrainingWindows, adjusted_blocks
from trainers.stock.evaluation.baselines.baseline import (
    BaselineModel,
    BaselineSample,
    FittedBaseline,
    MeasuredWindows,
    NoForecastError,
    in_blocks,
)
from trainers.stock.scale import NO_RANGE

DAYS: Final = (1, 5, 22)
LEARNT_FROM: Final = 200_000
"""Limit on windows, which saves memory; more do not change four weights."""


def har(sample: BaselineSample) -> FittedBaseline:
    """Forecast log volatility by least squares on its three averages.

    Quantiles of volatility come from the residuals. Quantiles of returns come from past outcomes divided by the
    volatility that the regression forecast, times its current forecast.
    """
    history, learnt = sample.history, sample.at_most(LEARNT_FROM)
    daily, labels = _volatility(history, learnt)
    known = in_blocks(learnt, lambda block: _averages(daily, block))
    weights = np.stack([_least_squares(known, labels[:, h]) for h in range(labels.shape[1])], axis=1)
    centres, outcomes = known @ weights, history.outcomes(learnt)
    if sample.target.kind is TargetKind.LOG_VOLATILITY:
        residuals = np.nanquantile(outcomes - centres, sample.levels, axis=0).T
        return FittedBaseline(
            quantiles=lambda asked: (_averages(daily, asked.windows) @ weights)[..., None] + residuals
        )
    root = np.sqrt(sample.target.horizons)
    units = np.nanquantile(outcomes / (root * np.exp(centres)), sample.levels, axis=0).T

    def quantiles(asked: MeasuredWindows) -> FloatArray:
        return (root * np.exp(_averages(daily, asked.windows) @ weights))[..., None] * units

    return FittedBaseline(quantiles=quantiles)


def _volatility(history: History, windows: TrainingWindows) -> tuple[FloatArray, FloatArray]:
    """Daily log volatility [S, T] and outcomes of the windows [N, H], adjusting a few symbols at a time."""
    target = replace(history.pipeline.target, kind=TargetKind.LOG_VOLATILITY)
    bars = history.bars
    daily, labels = np.empty(bars.close.shape), np.empty((len(windows), len(target.horizons)))
    for rows, few in adjusted_blocks(bars):
        logs = target.daily(few)
        daily[rows] = np.where(logs > NO_RANGE, logs, np.nan)
        own = (windows.symbols >= rows.start) & (windows.symbols < rows.stop)
        labels[own] = target.labels(few)[windows.symbols[own] - rows.start, windows.positions[own]]
    return daily, labels


def _averages(daily: FloatArray, windows: TrainingWindows) -> FloatArray:
    """[N, 4] one, and the means of log volatility over the last 1, 5 and 22 days, ignoring missing days.

    A mean without days is replaced by that of 22 days, or by the smallest value.
    """
    last = back_from(daily, windows.symbols, windows.positions, max(DAYS))
    longest = window_mean(last)
    longest = np.where(np.isnan(longest), NO_RANGE, longest)
    means = [window_mean(last[:, -days:]) for days in DAYS]
    filled = [np.where(np.isnan(mean), longest, mean) for mean in means]
    return np.stack([np.ones(len(windows)), *filled], axis=1)


def _least_squares(known: FloatArray, outcomes: FloatArray) -> FloatArray:
    rows = np.isfinite(outcomes) & (outcomes > NO_RANGE) & (known[:, -1] > NO_RANGE)
    if not rows.any():
        raise NoForecastError("no window of the fit has ranges on all sessions of a horizon")
    return np.asarray(np.linalg.lstsq(known[rows], outcomes[rows])[0], np.float64)


HAR: Final = BaselineModel(name="HAR (1, 5, 22 days)", estimator=har)
