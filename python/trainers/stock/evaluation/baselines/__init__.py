"""Forecasts that need no network: every score is compared with theirs.

All of them give quantiles [N, H, Q] in the target's unit for the same windows as the network, from what was known then,
and from the same information: what is fitted appears twice, fitted and calibrated on the parts that the network was
fitted and calibrated on, and refitted on all that it has seen.
"""

from trainers.stock.evaluation.baselines.baseline import (
    BaselineModel,
    Fit,
    FittedBaseline,
    InformationSet,
    MeasuredWindows,
    NoForecastError,
    Replaced,
)
from trainers.stock.evaluation.baselines.quantiles import NAIVE, OWN_SCALE, SCALED
from trainers.stock.evaluation.baselines.table import BaselinePlan, all_baselines, quick_baselines

__all__ = [
    "NAIVE",
    "OWN_SCALE",
    "SCALED",
    "BaselineModel",
    "BaselinePlan",
    "Fit",
    "FittedBaseline",
    "InformationSet",
    "MeasuredWindows",
    "NoForecastError",
    "Replaced",
    "all_baselines",
    "quick_baselines",
]
