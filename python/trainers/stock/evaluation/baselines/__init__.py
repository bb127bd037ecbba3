"""Baseline forecasts without a network.

They forecast quantiles [N, H, Q] in the target's unit for the same windows as the network and with the same
information. Most baselines appear twice: fitted and calibrated on the same parts as the network, and refitted on all
that it has seen.
"""

from trainers.stock.evaluation.baselines.baseline import (
    BaselineModel,
    FitScope,
    FittedBaseline,
    InformationSet,
    MeasuredWindows,
    NoForecastError,
    ReplacedSymbols,
)
from trainers.stock.evaluation.baselines.quantiles import NAIVE, OWN_SCALE, SCALED
from trainers.stock.evaluation.baselines.table import BaselinePlan, all_baselines, quick_baselines

__all__ = [
    "NAIVE",
    "OWN_SCALE",
    "SCALED",
    "BaselineModel",
    "BaselinePlan",
    "FitScope",
    "FittedBaseline",
    "InformationSet",
    "MeasuredWindows",
    "NoForecastError",
    "ReplacedSymbols",
    "all_baselines",
    "quick_baselines",
]
