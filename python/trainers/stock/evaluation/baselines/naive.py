"""Nothing changes: the forecast that every other must beat."""

import numpy as np

from predictor.networks import TargetKind
from trainers.stock.evaluation.baselines.case import Baseline, Case, recent

NAIVE = {TargetKind.LOG_RETURN: "zero return", TargetKind.LOG_VOLATILITY: "last value"}
"""What it is called."""


def naive(case: Case) -> Baseline:
    """A point forecast at every level: no change of the price, or the last session's volatility."""
    name = NAIVE[case.target.kind]
    if case.target.kind is TargetKind.LOG_RETURN:
        return Baseline(name=name, forecasts=np.zeros(case.shape))
    last = recent(case.history, case.windows, 1)
    return Baseline(name=name, forecasts=np.broadcast_to(last[:, :, None], case.shape))
