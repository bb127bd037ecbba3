"""What a trial may change of a recipe, and within which bounds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from predictor.networks import Setting, configured, kind_named, write_config
from trainers.stock.recipe import Recipe

CHOICES: Final[Mapping[str, tuple[int, ...]]] = {
    "hidden": (16, 32, 64),
    "layers": (1, 2, 3),
    "blocks": (1, 2),
    "heads": (2, 4, 8),
    "neighbours": (5, 10, 20),
    "frequencies": (0, 2, 4, 8),
}
"""Sizes of networks that are tried, where a kind has them; the widths are multiples of all heads."""

DROPOUT: Final = (0.0, 0.6)
LEARNING_RATE: Final = (1e-4, 1e-2)
WEIGHT_DECAY: Final = (1e-5, 1.0)
BATCH_SIZES: Final = (32, 64, 128, 256)


class Suggesting(Protocol):
    """What is asked for values: a trial of the study, or one that repeats chosen values."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """A number between both; `log` draws its logarithm evenly."""
        ...

    def suggest_categorical(self, name: str, choices: tuple[int, ...]) -> int:
        """One of the choices."""
        ...


def suggested(trial: Suggesting, recipe: Recipe) -> Recipe:
    """The recipe with a trial's values in place of its own."""
    return replace(
        recipe,
        config=configured(kind_named(recipe.kind), _network(trial, recipe)),
        optimisation=replace(
            recipe.optimisation,
            learning_rate=trial.suggest_float("learning_rate", *LEARNING_RATE, log=True),
            weight_decay=trial.suggest_float("weight_decay", *WEIGHT_DECAY, log=True),
            batch_size=trial.suggest_categorical("batch_size", BATCH_SIZES),
        ),
    )


def _network(trial: Suggesting, recipe: Recipe) -> dict[str, Setting]:
    settings = write_config(recipe.config)
    sizes = {name: trial.suggest_categorical(name, choices) for name, choices in CHOICES.items() if name in settings}
    return {**settings, **sizes, "dropout": trial.suggest_float("dropout", *DROPOUT)}
