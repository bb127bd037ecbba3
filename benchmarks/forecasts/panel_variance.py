"""Forecasts of a mean variance, which QLIKE wants, where the squared error of a log wants the mean of the log.

The two differ by more than a constant: the calmer a stock, the longer the tail above its log.
"""

from collections.abc import Callable

import numpy as np
from sklearn.linear_model import GammaRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.forecasts.panel_ours import Answers, Forecasts
from benchmarks.forecasts.panel_series import FloatArray
from benchmarks.forecasts.panel_tasks import Fold, PanelForecasting

Predicting = Callable[[FloatArray], FloatArray]


def gamma_regression(rows: FloatArray, logs: FloatArray) -> Predicting:
    """Log of the mean of exp(logs) [N], linear in rows [N, columns]: least QLIKE on what it is fitted to.

    The deviance of a gamma distribution with a logarithmic link is twice QLIKE.
    """
    model = make_pipeline(StandardScaler(), GammaRegressor(alpha=0.0, solver="newton-cholesky"))
    model.fit(rows, np.exp(logs))
    return lambda asked: np.log(np.asarray(model.predict(asked), np.float64))


def variance_forecast(task: PanelForecasting, fold: Fold, found: Forecasts, horizon: int) -> FloatArray:
    """[S, days judged] the log of the mean variance from a network's forecasts.

    From their mean, their width and the window's own level and volatility, by weights fitted to training days.
    """
    k, learnt = task.target.horizons.index(horizon), np.isin(found.taught.days, task.learnt(fold, horizon))
    outcomes = task.labels[:, found.taught.days[learnt], k].ravel()
    rows = _rows(task, found.taught, k)[:, learnt].reshape(len(outcomes), -1)
    known = np.isfinite(rows).all(-1) & np.isfinite(outcomes)
    predict = gamma_regression(rows[known], outcomes[known])
    asked = _rows(task, found.asked, k)[:, : len(task.judged(fold, horizon))]
    return predict(np.nan_to_num(asked).reshape(-1, asked.shape[-1])).reshape(asked.shape[:2])


def _rows(task: PanelForecasting, answers: Answers, k: int) -> FloatArray:
    """What the regression reads of each forecast [S, days, 4]."""
    location, scale = task.level
    columns = (answers.mean[..., k], answers.width[..., k], location[:, answers.days], scale[:, answers.days])
    return np.stack(columns, axis=-1)
