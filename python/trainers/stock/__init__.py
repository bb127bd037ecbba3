"""Training of stock models; names load on first use, so that Ctrl+C works before torch loads."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trainers.stock.recipe import Optimisation, StockRecipe
    from trainers.stock.splits import DataSplits, RollingSplits, SplitPart, SplitShares
    from trainers.stock.training import CheckpointSettings, TrainingResult, train
    from trainers.stock.training_data import ParentArtifact, TrainingMaterial

__all__ = [
    "CheckpointSettings",
    "DataSplits",
    "Optimisation",
    "ParentArtifact",
    "RollingSplits",
    "SplitPart",
    "SplitShares",
    "StockRecipe",
    "TrainingMaterial",
    "TrainingResult",
    "train",
]

_MODULES: Final = {
    "CheckpointSettings": "training",
    "TrainingMaterial": "training_data",
    "Optimisation": "recipe",
    "ParentArtifact": "training_data",
    "SplitPart": "splits",
    "StockRecipe": "recipe",
    "SplitShares": "splits",
    "DataSplits": "splits",
    "RollingSplits": "splits",
    "TrainingResult": "training",
    "train": "training",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"trainers.stock.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'trainers.stock' has no attribute {name!r}")
