"""Forecasts that need no network: every score stands beside theirs.

All of them give quantiles [N, H, Q] in the target's unit for the same windows as the network, from what was known then;
what is fitted is fitted on the training part alone.
"""

from trainers.stock.evaluation.baselines.case import Baseline, Case
from trainers.stock.evaluation.baselines.naive import NAIVE
from trainers.stock.evaluation.baselines.table import Plan, all_baselines, quick_baselines

__all__ = ["NAIVE", "Baseline", "Case", "Plan", "all_baselines", "quick_baselines"]
