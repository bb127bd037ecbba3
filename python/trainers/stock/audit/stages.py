"""Everything between bars and forecast, as arrays that can be compared."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, final

import numpy as np
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.model import Model
from trainers.stock.asking import values
from trainers.stock.data import History, Windows

Stages = Mapping[str, NDArray[Any]]
"""Arrays by name."""

FORECAST: Final = "forecast"


class Staged(Protocol):
    """A history of bars on its way to forecasts."""

    def at(self, position: int) -> Stages:
        """What is made of the session at this position of the date axis; `FORECAST` is among it."""
        ...


Staging = Callable[[BarPanel], Staged]
"""What takes a whole history of bars, every session's future included, as training and evaluation do."""


@final
class ModelStages:
    """The way of bars through a model, over the whole history at once.

    Args:
        model: of one network.
        covariates: what stands beside the bars.
        bars: the history.
    """

    def __init__(self, model: Model, covariates: CovariateSource, bars: BarPanel) -> None:
        self._model = model
        self._history = History(bars, model.pipeline, covariates)
        self._usable = self._history.forecastable

    def at(self, position: int) -> Stages:
        """Inputs and forecasts of all stocks that can be forecast then."""
        symbols = np.flatnonzero(self._usable[:, position])
        windows = Windows(symbols=symbols, positions=np.full(len(symbols), position))
        inputs = self._history.gather(windows).inputs
        forecast = values(self._model.engine, self._history, windows, self._model.manifest.universe)
        return {name: group.numpy() for name, group in inputs._asdict().items()} | {FORECAST: forecast}


def different(before: Stages, after: Stages) -> tuple[str, ...]:
    """Names of the arrays that are not the same in every bit."""
    return tuple(name for name, array in before.items() if not _same_bits(array, after[name]))


def forecast_gap(before: Stages, after: Stages) -> float | None:
    """Largest difference of two forecasts relative to the largest forecast; None if they are not of the same stocks."""
    mine, theirs = before[FORECAST], after[FORECAST]
    if mine.shape != theirs.shape:
        return None
    return float(np.abs(mine - theirs).max(initial=0.0) / np.abs(mine).max(initial=np.finfo(np.float64).tiny))


def _same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
