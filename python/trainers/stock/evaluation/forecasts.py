"""A model's forecasts of many windows: the one place where evaluation asks a network."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from predictor.inference import Engine
from predictor.networks import OutputMap
from trainers.stock.asking import ask, joined
from trainers.stock.data import ROWS, History, Windows

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecasts:
    """What a model says of N windows."""

    raw: FloatArray
    """[N, H, Q] quantiles in the target's unit as the network gives them, before the conformal offsets."""
    calibrated: FloatArray
    """[N, H, Q] as they are served."""
    scores: FloatArray | None
    """[N, H] of a ranking model."""


def forecasts_of(
    engine: Engine, output: OutputMap, history: History, windows: Windows, universe: Sequence[str] = ()
) -> Forecasts:
    """What a model says of these windows of a history that its own pipeline has encoded.

    Args:
        engine: the network.
        output: what comes after it.
        history: inputs of all its stocks.
        windows: [N] by date.
        universe: symbols in the order of the network's nodes, where it looks across stocks.
    """
    said = ask(engine, history, windows, universe)
    levels = (said.units, *history.level(windows))
    return Forecasts(
        raw=_mapped(output, *levels, torch.zeros_like(output.offsets)),
        calibrated=_mapped(output, *levels, output.offsets),
        scores=None if said.scores is None else said.scores.double().numpy(),
    )


def _mapped(output: OutputMap, units: Tensor, location: Tensor, scale: Tensor, offsets: Tensor) -> FloatArray:
    """[N, H, Q] in the target's unit, a bounded number of windows at a time."""
    parts = zip(units.split(ROWS), location.split(ROWS), scale.split(ROWS), strict=True)
    return joined((output.values(*part, offsets) for part in parts), len(units)).numpy()
