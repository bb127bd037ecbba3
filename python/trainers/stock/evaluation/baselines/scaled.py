"""Quantiles of past outcomes, in units of the window's own volatility."""

from typing import Final

import numpy as np
import torch

from predictor.networks import restore
from trainers.stock.evaluation.baselines.case import Baseline, Case

LEARNT_FROM: Final = 200_000
"""Training windows at most; more would not move a quantile by a hundredth of its unit."""


def scaled(case: Case) -> Baseline:
    """Quantiles of all training outcomes in units of their windows' volatility, times each window's own.

    This is what the network starts from: whatever it learns must show beside it. (RiskMetrics 1996; with empirical
    quantiles it is filtered historical simulation, Barone-Adesi et al. 1999.)
    """
    history = case.history
    units = np.nanquantile(history.targets(case.learnt_at_most(LEARNT_FROM)).double().numpy(), case.levels, axis=0).T
    location, scale = history.level(case.windows)
    every = torch.from_numpy(units).expand(len(case.windows), -1, -1)
    forecasts = restore(every, location, scale, torch.from_numpy(case.target.spread)).numpy()
    return Baseline(name="volatility-scaled quantiles", forecasts=forecasts)
