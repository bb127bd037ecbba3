"""Boosted trees for each quantile: LightGBM (Ke et al. 2017), all symbols as one."""

from importlib.util import find_spec
from typing import Final

import numpy as np

from trainers.stock.evaluation.baselines.asked import Asked
from trainers.stock.evaluation.baselines.baseline import Baseline, Fitted, FloatArray
from trainers.stock.evaluation.baselines.regressors import learnt_outcomes, learnt_units, regressors
from trainers.stock.evaluation.baselines.sample import Sample

ROUNDS: Final = 100
FITTED_WINDOWS: Final = 50_000
"""At most, which bounds the time: evenly spaced windows, where the sample has more."""
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


def boosted(sample: Sample) -> Fitted:
    """One model a horizon and quantile; where they cross, they are put in order. The same sample gives the same."""
    import lightgbm

    history = sample.history
    learnt = Asked.of(history, sample.at_most(FITTED_WINDOWS))
    known, outcomes = learnt.in_blocks(lambda block: regressors(history, block)), learnt_outcomes(history, learnt)
    fits: list[lightgbm.Booster] = []
    for outcome in outcomes.T:
        rows = np.isfinite(outcome)
        data = lightgbm.Dataset(known[rows], label=outcome[rows], params=SETTINGS)  # binned once for all levels
        fits += [lightgbm.train({**SETTINGS, "alpha": level}, data, num_boost_round=ROUNDS) for level in sample.levels]
    shape = len(sample.target.horizons), len(sample.levels)

    def quantiles(asked: Asked) -> FloatArray:
        rows = regressors(history, asked)
        columns = [np.asarray(fit.predict(rows, num_threads=1), np.float64) for fit in fits]
        told = np.stack(columns, axis=1).reshape(len(asked), *shape)
        return learnt_units(history, asked).values(np.sort(told, axis=-1))

    return Fitted(quantiles=quantiles)


BOOSTED: Final = Baseline(name="LightGBM quantiles", estimator=boosted)
