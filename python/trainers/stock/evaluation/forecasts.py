"""A model's forecasts of many windows, and the units of their conformal offsets."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from predictor.arrays import FloatArray
from predictor.inference import Engine
from predictor.networks import OutputMap
from trainers.stock.data import ROWS, History, TrainingWindows
from trainers.stock.forecasting import joined, network_forecasts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastUnits:
    """Location and scale of N windows, in which networks forecast and conformal offsets are measured."""

    location: FloatArray
    """[N, H, 1] level at each horizon."""
    scale: FloatArray
    """[N, H, 1] volatility over each horizon."""

    def rows(self, chosen: slice) -> "ForecastUnits":
        """Select some of the windows."""
        return ForecastUnits(location=self.location[chosen], scale=self.scale[chosen])

    def normalise(self, values: FloatArray) -> FloatArray:
        """Convert values [N, H, Q] of the target to these units."""
        return (values - self.location) / self.scale

    def restore(self, normalised: FloatArray) -> FloatArray:
        """Convert values [N, H, Q] in these units to the target's unit."""
        return self.location + self.scale * normalised


def units_of(history: History, windows: TrainingWindows) -> ForecastUnits:
    """The units of these windows."""
    location, scale = (level.numpy() for level in history.level(windows))
    return ForecastUnits(location=location[..., None], scale=(scale * history.pipeline.target.spread)[..., None])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelForecasts:
    """A model's forecasts of N windows."""

    raw: FloatArray
    """[N, H, Q] quantiles in the target's unit, before conformal offsets."""
    calibrated: FloatArray
    """[N, H, Q] quantiles after conformal offsets, as served."""
    scores: FloatArray | None
    """[N, H] scores of a ranking model."""


def forecasts_of(
    engine: Engine, output: OutputMap, history: History, windows: TrainingWindows, universe: Sequence[str] = ()
) -> ModelForecasts:
    """Forecast windows of a history that the model's pipeline has encoded.

    Args:
        engine: The network.
        output: Map from the network's output to quantiles.
        history: Encoded inputs.
        windows: [N] by date.
        universe: Symbols in the order of the network's nodes, for graph models.
    """
    forecasts = network_forecasts(engine, history, windows, universe)
    levels = (forecasts.units, *history.level(windows))
    return ModelForecasts(
        raw=_mapped(output, *levels, torch.zeros_like(output.offsets)),
        calibrated=_mapped(output, *levels, output.offsets),
        scores=None if forecasts.scores is None else forecasts.scores.double().numpy(),
    )


def _mapped(output: OutputMap, units: Tensor, location: Tensor, scale: Tensor, offsets: Tensor) -> FloatArray:
    """[N, H, Q] quantiles in the target's unit, computed in blocks of windows."""
    parts = zip(units.split(ROWS), location.split(ROWS), scale.split(ROWS), strict=True)
    return joined((output.values(*part, offsets) for part in parts), len(units)).numpy()
