"""Boosted trees for each quantile: LightGBM (Ke et al. 2017), all symbols as one."""

from importlib.util import find_spec
from typing import Final

import numpy as np

from trainers.stock.data import Windows
from trainers.stock.evaluation.baselines.case import Baseline, Case, FloatArray, in_blocks
from trainers.stock.evaluation.baselines.regressors import learnt_outcomes, regressors, restored

NAME: Final = "LightGBM quantiles"
ROUNDS: Final = 100
FITTED_WINDOWS: Final = 50_000
"""At most, which bounds the time: evenly spaced windows, where the training part has more."""
SETTINGS: Final = {
    "objective": "quantile",
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 100,
    "max_bin": 63,
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
    fitted: list[lightgbm.Booster] = []
    for outcome in outcomes.T:
        rows = np.isfinite(outcome)
        for level in case.levels:
            data = lightgbm.Dataset(known[rows], label=outcome[rows])
            fitted.append(lightgbm.train({**SETTINGS, "alpha": level}, data, num_boost_round=ROUNDS))

    def quantiles(windows: Windows) -> FloatArray:
        """The models' quantiles [n, H, Q], not yet in order."""
        asked = regressors(case.history, windows)
        columns = [np.asarray(fit.predict(asked, num_threads=1), np.float64) for fit in fitted]
        return np.stack(columns, axis=1).reshape(len(windows), *case.shape[1:])

    units = np.sort(in_blocks(case.windows, quantiles), axis=-1)
    return Baseline(name=NAME, forecasts=restored(case, units))
