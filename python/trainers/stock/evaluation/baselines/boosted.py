"""Boosted trees for each quantile: LightGBM (Ke et al. 2017), all symbols as one."""

from importlib.util import find_spec
from typing import Final

import numpy as np

from trainers.stock.evaluation.baselines.case import Baseline, Case
from trainers.stock.evaluation.baselines.regressors import learnt_outcomes, regressors, unit

NAME: Final = "LightGBM quantiles"
ROUNDS: Final = 100
FITTED_WINDOWS: Final = 50_000
"""At most, which bounds the time: evenly spaced windows, where the training part has more."""
SETTINGS: Final = {
    "objective": "quantile",
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 100,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 0,
    "verbosity": -1,
}


def is_installed() -> bool:
    """Whether the package lightgbm is."""
    return find_spec("lightgbm") is not None


def boosted(case: Case) -> Baseline:
    """One model a horizon and quantile; where they cross, they are put in order. The same case gives the same bits."""
    import lightgbm

    learnt = case.learnt_at_most(FITTED_WINDOWS)
    known, outcomes = regressors(case.history, learnt), learnt_outcomes(case.history, learnt)
    asked = regressors(case.history, case.windows)
    forecasts = np.empty(case.shape)
    for h in range(len(case.target.horizons)):
        rows = np.isfinite(outcomes[:, h])
        for q, level in enumerate(case.levels):
            data = lightgbm.Dataset(known[rows], label=outcomes[rows, h])
            fitted = lightgbm.train({**SETTINGS, "alpha": level}, data, num_boost_round=ROUNDS)
            forecasts[:, h, q] = np.asarray(fitted.predict(asked, num_threads=1), np.float64)
    location, scale = unit(case.history, case.windows)
    return Baseline(name=NAME, forecasts=location[..., None] + scale[..., None] * np.sort(forecasts, axis=-1))
