"""A recipe for trainings that take a second."""

from predictor.networks import LSTMConfig, Target, WindowNormaliser
from trainers.stock import Optimisation, StockRecipe

SMALL_RECIPE = StockRecipe(
    calendar="XNYS",
    config=LSTMConfig(hidden=4, layers=1),
    target=Target(horizons=(1, 3)),
    encoder_length=10,
    scale="window",
    normaliser=WindowNormaliser(window=20),
    optimisation=Optimisation(max_epochs=1, device="cpu"),
)
"""Two horizons, few bars and one epoch."""
