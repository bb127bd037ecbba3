"""Ridge regression on lags, averages and features, all symbols as one."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import numpy as np

from trainers.stock.data import Windows
from trainers.stock.evaluation.baselines.case import Baseline, Case, FloatArray, in_blocks
from trainers.stock.evaluation.baselines.regressors import learnt_outcomes, regressors, restored

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

NAME: Final = "ridge"
PENALTY: Final = 10.0
FITTED_WINDOWS: Final = 50_000
"""At most; more do not change so few weights, and they take memory."""


def is_installed() -> bool:
    """Whether the package scikit-learn is."""
    return find_spec("sklearn") is not None


def ridge(case: Case) -> Baseline:
    """The mean by ridge regression, the quantiles by those of its training residuals, one regression a horizon."""
    fitted, spreads = _fitted(case)

    def centres(windows: Windows) -> FloatArray:
        """The mean [n, H]."""
        asked = regressors(case.history, windows)
        return np.stack([fit.predict(asked) for fit in fitted], axis=1)

    units = in_blocks(case.windows, centres)[..., None] + spreads
    return Baseline(name=NAME, forecasts=restored(case, units))


def _fitted(case: Case) -> "tuple[list[Pipeline], FloatArray]":
    """A regression a horizon, and the quantiles of its training residuals [H, Q]."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    learnt = case.learnt_at_most(FITTED_WINDOWS)
    known, outcomes = regressors(case.history, learnt), learnt_outcomes(case.history, learnt)
    fitted: list[Pipeline] = []
    spreads: list[FloatArray] = []
    for outcome in outcomes.T:
        rows = np.isfinite(outcome)
        fit = make_pipeline(StandardScaler(), Ridge(PENALTY)).fit(known[rows], outcome[rows])
        fitted.append(fit)
        spreads.append(np.quantile(outcome[rows] - fit.predict(known[rows]), case.levels))
    return fitted, np.stack(spreads)
