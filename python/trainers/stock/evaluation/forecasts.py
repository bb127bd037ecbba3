"""A model's forecasts of many windows, and the units that their quantiles are moved in."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from predictor.arrays import FloatArray
from predictor.inference import Engine
from predictor.networks import OutputMap
from trainers.stock.data import ROWS, History, Windows
from trainers.stock.forecasting import joined, network_forecasts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Units:
    """Level and unit of N windows: those of the network's output and of its conformal offsets."""

    location: FloatArray
    """[N, H, 1] each window's level at each horizon."""
    scale: FloatArray
    """[N, H, 1] its volatility over each horizon."""

    def rows(self, chosen: slice) -> "Units":
        """Those of some of the windows."""
        return Units(location=self.location[chosen], scale=self.scale[chosen])

    def normalise(self, values: FloatArray) -> FloatArray:
        """[N, H, Q] values [N, H, Q] of the target in these units."""
        return (values - self.location) / self.scale

    def restore(self, normalised: FloatArray) -> FloatArray:
        """[N, H, Q] the way back, from values [N, H, Q] in these units."""
        return self.location + self.scale * normalised


def units_of(history: History, windows: Windows) -> Units:
    """The units of these windows."""
    location, scale = (level.numpy() for level in history.level(windows))
    return Units(location=location[..., None], scale=(scale * history.pipeline.target.spread)[..., None])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecasts:
    """A model's forecasts of N windows."""

    raw: FloatArray
    """[N, H, Q] quantiles in the target's unit as the network gives them, before the conformal offsets."""
    calibrated: FloatArray
    """[N, H, Q] as they are served."""
    scores: FloatArray | None
    """[N, H] of a ranking model."""


def forecasts_of(
    engine: Engine, output: OutputMap, history: History, windows: Windows, universe: Sequence[str] = ()
) -> Forecasts:
    """A model's forecasts of these windows of a history that its own pipeline has encoded.

    Args:
        engine: the network.
        output: what comes after it.
        history: inputs of all its stocks.
        windows: [N] by date.
        universe: symbols in the order of the network's nodes, where it looks across stocks.
    """
    forecasts = network_forecasts(engine, history, windows, universe)
    levels = (forecasts.units, *history.level(windows))
    return Forecasts(
        raw=_mapped(output, *levels, torch.zeros_like(output.offsets)),
        calibrated=_mapped(output, *levels, output.offsets),
        scores=None if forecasts.scores is None else forecasts.scores.double().numpy(),
    )


def _mapped(output: OutputMap, units: Tensor, location: Tensor, scale: Tensor, offsets: Tensor) -> FloatArray:
    """[N, H, Q] in the target's unit, a bounded number of windows at a time."""
    parts = zip(units.split(ROWS), location.split(ROWS), scale.split(ROWS), strict=True)
    return joined((output.values(*part, offsets) for part in parts), len(units)).numpy()
