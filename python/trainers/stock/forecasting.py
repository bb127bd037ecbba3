"""A frozen network's forecasts for windows of a history, whichever way it reads them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from predictor.arrays import FloatArray
from predictor.inference import Engine
from predictor.networks import PanelForecastNetwork
from trainers.stock.data import History, PanelDays, TrainingWindows


class NetworkForecasts(NamedTuple):
    """Answers for N windows. Legend: H horizons, Q quantiles."""

    units: Tensor
    """float32 [N, H, Q] quantiles in units of each window's volatility, before calibration."""
    scores: Tensor | None
    """float32 [N, H] of a ranking model."""


def network_forecasts(
    engine: Engine, history: History, windows: TrainingWindows, universe: Sequence[str] = ()
) -> NetworkForecasts:
    """The network's answers.

    Args:
        engine: the network.
        history: inputs of all its stocks.
        windows: [N] what to forecast, by date.
        universe: symbols in the order of the network's nodes, where it looks across stocks; each day it then reads all
            stocks of the history that have a bar.
    """
    if isinstance(engine.network, PanelForecastNetwork):
        return _by_day(engine, history, windows, universe)
    return NetworkForecasts(
        units=joined((engine.units(batch.inputs) for batch in history.batches(windows)), len(windows)), scores=None
    )


def joined(parts: Iterable[Tensor], count: int) -> Tensor:
    """Parts one after another, [count, ...].

    Each goes to its place as it comes: small parts that stay between large arrays that come and go would keep the
    memory of these from being used again.
    """
    whole, first = torch.empty(0), 0
    for part in parts:
        if first == 0:
            whole = part.new_empty((count, *part.shape[1:]))
        whole[first : first + len(part)] = part
        first += len(part)
    return whole


def forecast_values(
    engine: Engine, history: History, windows: TrainingWindows, universe: Sequence[str] = ()
) -> FloatArray:
    """[N, H, Q] calibrated quantiles in the target's own unit."""
    units = network_forecasts(engine, history, windows, universe).units
    location, scale = history.level(windows)
    return engine.calibrated(units, location, scale).numpy()


def _by_day(engine: Engine, history: History, windows: TrainingWindows, universe: Sequence[str]) -> NetworkForecasts:
    places = {symbol: k for k, symbol in enumerate(universe)}
    nodes = np.array([places.get(symbol, -1) for symbol in history.bars.symbols])
    days = PanelDays(history, forecastable=history.forecastable, nodes=nodes)
    positions, first = np.unique(windows.positions, return_index=True)
    units: list[Tensor] = []
    scores: list[Tensor] = []
    for position, rows in zip(positions, np.split(windows.symbols, first[1:]), strict=True):
        batch = days.gather(np.array([position]))
        output = engine.panel(batch.inputs, batch.nodes)
        units.append(output.quantiles[torch.from_numpy(rows)])
        scores.append(output.scores[torch.from_numpy(rows)])
    return NetworkForecasts(units=torch.cat(units), scores=torch.cat(scores))
