"""Stock models: from daily bars to an artifact that can be served."""

from trainers.stock.material import Material
from trainers.stock.recipe import Optimisation, Recipe
from trainers.stock.splits import Part, Splits, SplitShares
from trainers.stock.training import Keeping, Trained, train

__all__ = ["Keeping", "Material", "Optimisation", "Part", "Recipe", "SplitShares", "Splits", "Trained", "train"]
