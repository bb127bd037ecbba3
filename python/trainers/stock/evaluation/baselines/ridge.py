"""Ridge regression on lags, averages and features, all symbols as one."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import numpy as np

from trainers.stock.evaluation.baselines.asked import Asked
from trainers.stock.evaluation.baselines.baseline import Baseline, Fitted, FloatArray
from trainers.stock.evaluation.baselines.regressors import learnt_outcomes, learnt_units, regressors
from trainers.stock.evaluation.baselines.sample import Sample

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

PENALTY: Final = 10.0
FITTED_WINDOWS: Final = 50_000
"""At most; more do not change so few weights, and they take memory."""


def is_installed() -> bool:
    """Whether the package scikit-learn is."""
    return find_spec("sklearn") is not None


def ridge(sample: Sample) -> Fitted:
    """The mean by ridge regression, the quantiles by those of its residuals, one regression a horizon."""
    history = sample.history
    fits, spreads = _fitted(sample)

    def quantiles(asked: Asked) -> FloatArray:
        known = regressors(history, asked)
        centres = np.stack([fit.predict(known) for fit in fits], axis=1)
        return learnt_units(history, asked).values(centres[..., None] + spreads)

    return Fitted(quantiles=quantiles)


def _fitted(sample: Sample) -> "tuple[list[Pipeline], FloatArray]":
    """A regression a horizon, and the quantiles of its residuals [H, Q]."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    history = sample.history
    learnt = Asked.of(history, sample.at_most(FITTED_WINDOWS))
    known, outcomes = learnt.in_blocks(lambda block: regressors(history, block)), learnt_outcomes(history, learnt)
    fits: list[Pipeline] = []
    spreads: list[FloatArray] = []
    for outcome in outcomes.T:
        rows = np.isfinite(outcome)
        fit = make_pipeline(StandardScaler(), Ridge(PENALTY)).fit(known[rows], outcome[rows])
        fits.append(fit)
        spreads.append(np.quantile(outcome[rows] - fit.predict(known[rows]), sample.levels))
    return fits, np.stack(spreads)


RIDGE: Final = Baseline(name="ridge", estimator=ridge)
