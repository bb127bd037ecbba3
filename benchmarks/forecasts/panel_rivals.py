"""What the graph model is compared with: HAR, LightGBM and reversal, each fitted anew for every year."""

from collections.abc import Callable

import lightgbm
import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasts.panel_series import FloatArray
from benchmarks.forecasts.panel_tasks import Fold, PanelForecasting
from benchmarks.forecasts.panel_variance import Predicting, gamma_regression

Fitting = Callable[[FloatArray, FloatArray], Predicting]

VOLATILITY_TREES, RETURN_TREES = 200, 120
VOLATILITY_STRIDE, RETURN_STRIDE = 2, 3
"""Every so many days are learnt from; those between say nearly the same."""


def har(task: PanelForecasting, fold: Fold, horizon: int) -> FloatArray:
    """Corsi's regression on the averages of 1, 5 and 22 days (2009), one for all stocks; [S, days judged]."""
    learnt = task.learnt(fold, horizon)[::VOLATILITY_STRIDE]
    return _fitted(task, fold, horizon, "HAR", learnt, task.labels, _least_squares)


def har_of_variance(task: PanelForecasting, fold: Fold, horizon: int) -> FloatArray:
    """The same averages as a forecast of the mean variance, by a gamma regression."""
    learnt = task.learnt(fold, horizon)[::VOLATILITY_STRIDE]
    return _fitted(task, fold, horizon, "HAR", learnt, task.labels, gamma_regression)


def volatility_trees(task: PanelForecasting, fold: Fold, horizon: int) -> FloatArray:
    """LightGBM on HAR's averages, the market's means of them and 13 ranked features."""
    learnt = task.learnt(fold, horizon)[::VOLATILITY_STRIDE]
    return _fitted(task, fold, horizon, "LightGBM", learnt, task.labels, _trees(VOLATILITY_TREES))


def return_trees(task: PanelForecasting, fold: Fold, horizon: int) -> FloatArray:
    """LightGBM on 13 ranked features, taught the rank of the return among the day's stocks."""
    learnt = task.learnt(fold, horizon)[::RETURN_STRIDE]
    filled = np.nan_to_num(task.labels)
    ranks = filled.argsort(0).argsort(0) / (len(filled) - 1) - 0.5
    return _fitted(task, fold, horizon, "LightGBM", learnt, ranks, _trees(RETURN_TREES))


def reversal(task: PanelForecasting, fold: Fold, horizon: int) -> FloatArray:
    """What fell over the last 5 days is expected to rise."""
    logs, days = np.log(task.series.close), task.judged(fold, horizon)
    return logs[:, days - 5] - logs[:, days]


def _fitted(
    task: PanelForecasting,
    fold: Fold,
    horizon: int,
    columns: str,
    learnt: NDArray[np.int64],
    labels: FloatArray,
    fit: Fitting,
) -> FloatArray:
    table, outcomes = task.tabular[columns], labels[:, learnt, task.target.horizons.index(horizon)].ravel()
    rows = _rows(table, learnt)
    known = np.isfinite(rows).all(-1) & np.isfinite(outcomes)
    predict = fit(rows[known], outcomes[known])
    return predict(np.nan_to_num(_rows(table, task.judged(fold, horizon)))).reshape(len(table), -1)


def _rows(table: FloatArray, days: NDArray[np.int64]) -> FloatArray:
    return table[:, days].reshape(-1, table.shape[-1])


def _least_squares(rows: FloatArray, outcomes: FloatArray) -> Predicting:
    weights = np.linalg.lstsq(np.column_stack([np.ones(len(rows)), rows]), outcomes, rcond=None)[0]
    return lambda asked: weights[0] + asked @ weights[1:]


def _trees(count: int) -> Fitting:
    def fit(rows: FloatArray, outcomes: FloatArray) -> Predicting:
        model = lightgbm.LGBMRegressor(
            n_estimators=count,
            num_leaves=31,
            learning_rate=0.05,
            min_child_samples=500,
            colsample_bytree=0.7,
            subsample=0.7,
            subsample_freq=1,
            verbose=-1,
            n_jobs=1,
            random_state=0,
        )
        model.fit(rows, outcomes)
        return lambda asked: np.asarray(model.predict(asked), np.float64)

    return fit
