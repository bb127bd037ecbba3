"""Forecasts of a frozen network and their conformal calibration."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from predictor.arrays import FloatArray
from predictor.artifact import Conformal
from predictor.errors import ConfigurationError
from predictor.inference import Engine
from predictor.networks import GraphForecaster
from trainers.stock.data import History, PanelGatherer, TrainingWindows


class NetworkForecasts(NamedTuple):
    """Forecasts of N windows, H horizons and Q quantiles."""

    units: Tensor
    """float32 [N, H, Q] quantiles in units of each window's volatility, before calibration."""
    scores: Tensor | None
    """float32 [N, H]; None unless the model ranks."""


def forecast_with_network(
    engine: Engine, history: History, windows: TrainingWindows, universe: Sequence[str] = ()
) -> NetworkForecasts:
    """Forecast windows with a network.

    A panel network reads all stocks with a bar on each day; `universe` has its symbols in the order of its nodes.
    """
    if isinstance(engine.network, GraphForecaster):
        return _forecast_by_day(engine, history, windows, universe)
    return NetworkForecasts(
        units=join_parts((engine.compute_units(batch.inputs) for batch in history.batches(windows)), len(windows)),
        scores=None,
    )


def join_parts(parts: Iterable[Tensor], count: int) -> Tensor:
    """Concatenate parts as [count, ...].

    Each part is copied at once: small tensors left between large temporary ones would fragment memory.
    """
    result, first = torch.empty(0), 0
    for part in parts:
        if first == 0:
            result = part.new_empty((count, *part.shape[1:]))
        result[first : first + len(part)] = part
        first += len(part)
    return result


def forecast_values(
    engine: Engine, history: History, windows: TrainingWindows, universe: Sequence[str] = ()
) -> FloatArray:
    """[N, H, Q] calibrated quantiles in the target's own unit."""
    units = forecast_with_network(engine, history, windows, universe).units
    location, scale = history.location_and_scale(windows)
    return engine.calibrate(units, location, scale).numpy()


def _forecast_by_day(
    engine: Engine, history: History, windows: TrainingWindows, universe: Sequence[str]
) -> NetworkForecasts:
    node_of = {symbol: node for node, symbol in enumerate(universe)}
    nodes = np.array([node_of.get(symbol, -1) for symbol in history.bars.symbols])
    panels = PanelGatherer(history.gather, forecastable=history.forecastable, nodes=nodes)
    positions, first = np.unique(windows.positions, return_index=True)
    units: list[Tensor] = []
    scores: list[Tensor] = []
    for position, rows in zip(positions, np.split(windows.symbols, first[1:]), strict=True):
        batch = panels.gather(np.array([position]))
        output = engine.compute_panel(batch.inputs, batch.nodes)
        units.append(output.quantiles[torch.from_numpy(rows)])
        scores.append(output.scores[torch.from_numpy(rows)])
    return NetworkForecasts(units=torch.cat(units), scores=torch.cat(scores))


MEDIAN: Final = 0.5


def calibrate(
    units: FloatArray, outcomes: FloatArray, levels: tuple[float, ...], *, sessions: int, horizons: tuple[int, ...]
) -> Conformal:
    """Offsets from forecasts and outcomes of the calibration split.

    Args:
        units: [N, H, Q] quantiles in units of each window's volatility.
        outcomes: [N, H] in the same unit, NaN where unknown.
        levels: [Q]
        sessions: number of distinct decision days.
        horizons: [H] trading days.

    Raises:
        ConfigurationError: a horizon has no known outcome, or a forecast is not finite.
    """
    if not np.isfinite(units).all():
        raise ConfigurationError(
            "forecasts of the split calibration are not finite; the weights are damaged or too large"
        )
    for h, horizon in enumerate(horizons):
        if not np.isfinite(outcomes[:, h]).any():
            raise ConfigurationError(
                f"split calibration has no known outcome {horizon} sessions ahead; give more bars or leave the horizon "
                "out"
            )
    offsets = [
        tuple(
            0.0 if level == MEDIAN else _compute_offset(outcomes[:, h] - units[:, h, q], level)
            for q, level in enumerate(levels)
        )
        for h in range(len(horizons))
    ]
    return Conformal(offsets=tuple(offsets), effective_samples=tuple(sessions / h for h in horizons))


def _compute_offset(residuals: FloatArray, level: float) -> float:
    """The `level` quantile of residuals with the (n + 1) correction, rounded away from the median."""
    ordered = np.sort(residuals[np.isfinite(residuals)])
    count = len(ordered)
    exact = round((count + 1) * level, 9)  # 0.55 * 100 is a little more than 55
    rank = np.ceil(exact) if level > MEDIAN else np.floor(exact)
    return float(ordered[int(np.clip(rank, 1, count)) - 1])
