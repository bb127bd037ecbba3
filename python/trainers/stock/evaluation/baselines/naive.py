"""Nothing changes: the forecast that every other must beat."""

from typing import Final

import numpy as np

from predictor.networks import TargetKind
from trainers.stock.evaluation.baselines.asked import Asked
from trainers.stock.evaluation.baselines.baseline import Baseline, Fit, Fitted, FloatArray
from trainers.stock.evaluation.baselines.sample import Sample, recent

NAIVE: Final = {TargetKind.LOG_RETURN: "zero return", TargetKind.LOG_VOLATILITY: "last value"}
"""What it is called."""


def naive(kind: TargetKind) -> Baseline:
    """A point forecast at every level: no change of the price, or the last session's volatility.

    It stands as it is: moving its quantiles would make a forecast of the spread out of what has none.
    """
    estimator = _zero if kind is TargetKind.LOG_RETURN else _last_value
    return Baseline(name=NAIVE[kind], estimator=estimator, fits=(Fit.AS_IS,))


def _zero(sample: Sample) -> Fitted:
    shape = len(sample.target.horizons), len(sample.levels)
    return Fitted(quantiles=lambda asked: np.zeros((len(asked), *shape)))


def _last_value(sample: Sample) -> Fitted:
    shape = len(sample.target.horizons), len(sample.levels)

    def quantiles(asked: Asked) -> FloatArray:
        last = recent(sample.history, asked.windows, 1)
        return np.broadcast_to(last[:, :, None], (len(asked), *shape)).copy()

    return Fitted(quantiles=quantiles)
