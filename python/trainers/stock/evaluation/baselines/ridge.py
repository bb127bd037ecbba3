"""Ridge regression on lags, averages and features, all symbols as one."""

from importlib.util import find_spec
from typing import Final

import numpy as np

from trainers.stock.evaluation.baselines.case import Baseline, Case
from trainers.stock.evaluation.baselines.regressors import learnt_outcomes, regressors, unit

NAME: Final = "ridge"
PENALTY: Final = 10.0
FITTED_WINDOWS: Final = 50_000
"""At most; more do not change so few weights, and they take memory."""


def is_installed() -> bool:
    """Whether the package scikit-learn is."""
    return find_spec("sklearn") is not None


def ridge(case: Case) -> Baseline:
    """The mean by ridge regression, the quantiles by those of its training residuals, one regression a horizon."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    learnt = case.learnt_at_most(FITTED_WINDOWS)
    known, outcomes = regressors(case.history, learnt), learnt_outcomes(case.history, learnt)
    asked = regressors(case.history, case.windows)
    location, scale = unit(case.history, case.windows)
    forecasts = np.empty(case.shape)
    for h in range(len(case.target.horizons)):
        rows = np.isfinite(outcomes[:, h])
        fitted = make_pipeline(StandardScaler(), Ridge(PENALTY)).fit(known[rows], outcomes[rows, h])
        residuals = outcomes[rows, h] - fitted.predict(known[rows])
        centre = np.asarray(fitted.predict(asked), np.float64)
        forecasts[:, h] = centre[:, None] + np.quantile(residuals, case.levels)
    return Baseline(name=NAME, forecasts=location[..., None] + scale[..., None] * forecasts)
