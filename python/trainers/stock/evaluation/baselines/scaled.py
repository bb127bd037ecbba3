"""Quantiles of past outcomes, in units of the window's own volatility."""

from typing import Final

import numpy as np

from trainers.stock.evaluation.baselines.baseline import Baseline, Fitted
from trainers.stock.evaluation.baselines.sample import Sample
from trainers.stock.evaluation.units import units_of

LEARNT_FROM: Final = 200_000
"""Windows at most; more would not move a quantile by a hundredth of its unit."""


def scaled(sample: Sample) -> Fitted:
    """Quantiles of all outcomes in units of their windows' volatility, times each window's own.

    This is what the network starts from: whatever it learns must show beside it. (RiskMetrics 1996; with empirical
    quantiles it is filtered historical simulation, Barone-Adesi et al. 1999.)
    """
    history, windows = sample.history, sample.at_most(LEARNT_FROM)
    outcomes = units_of(history, windows).told(history.outcomes(windows)[..., None])[..., 0]
    told = np.nanquantile(outcomes, sample.levels, axis=0).T

    return Fitted(quantiles=lambda asked: asked.units.values(told))


SCALED: Final = Baseline(name="volatility-scaled quantiles", estimator=scaled)
