"""The life of a model after its first training: retrain, compare, promote and roll back."""

from trainers.stock.lifecycle.promotion import check_gates, promote, record_moves, roll_back_champion
from trainers.stock.lifecycle.retraining import Retraining, plan_retraining
from trainers.stock.lifecycle.version_comparison import (
    VersionComparison,
    compare_recipes,
    compare_versions,
    load_version,
)

__all__ = [
    "Retraining",
    "VersionComparison",
    "check_gates",
    "compare_recipes",
    "compare_versions",
    "load_version",
    "plan_retraining",
    "promote",
    "record_moves",
    "roll_back_champion",
]
