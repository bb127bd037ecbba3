"""Stock models: from daily bars to an artifact that can be served.

The names load on first use, so that `python -m trainers.stock` can handle Ctrl+C before torch loads.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trainers.stock.recipe import Optimisation, Recipe
    from trainers.stock.splits import Part, Splits, SplitShares
    from trainers.stock.training import Keeping, Trained, train
    from trainers.stock.training_data import Material, Parent

__all__ = [
    "Keeping",
    "Material",
    "Optimisation",
    "Parent",
    "Part",
    "Recipe",
    "SplitShares",
    "Splits",
    "Trained",
    "train",
]

_HOMES: Final = {
    "Keeping": "training",
    "Material": "training_data",
    "Optimisation": "recipe",
    "Parent": "training_data",
    "Part": "splits",
    "Recipe": "recipe",
    "SplitShares": "splits",
    "Splits": "splits",
    "Trained": "training",
    "train": "training",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"trainers.stock.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'trainers.stock' has no attribute {name!r}")
