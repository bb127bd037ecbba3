"""Retrain, compare, promote and roll back the versions of a model."""

from trainers.stock.lifecycle.promotion import (
    check_gates,
    promote,
    promote_if_passed,
    record_moves,
    roll_back_champion,
)
from trainers.stock.lifecycle.retraining_plan import RetrainingPlan, plan_retraining, retrain
from trainers.stock.lifecycle.stock_lifecycle import StockLifecycle
from trainers.stock.lifecycle.version_comparison import (
    VersionComparison,
    compare_recipes,
    compare_versions,
    load_version,
)

__all__ = [
    "RetrainingPlan",
    "StockLifecycle",
    "VersionComparison",
    "check_gates",
    "compare_recipes",
    "compare_versions",
    "load_version",
    "plan_retraining",
    "promote",
    "promote_if_passed",
    "record_moves",
    "retrain",
    "roll_back_champion",
]
