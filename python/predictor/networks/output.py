"""A network's output: the quantile head, and the map to calibrated quantiles in the target's unit."""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from predictor.arrays import FloatArray
from predictor.errors import ConfigurationError

HEAD_ARITHMETIC: Final = "the level nearest to 0.5, plus or minus sums of softplus steps away from it"


def check_quantiles(levels: tuple[float, ...]) -> None:
    """Raise ConfigurationError unless the levels ascend within (0, 1)."""
    if not levels or not all(0 < q < 1 for q in levels) or not all(a < b for a, b in pairwise(levels)):
        raise ConfigurationError(f"quantiles are {list(levels)}, but must be ascending levels between 0 and 1")


def find_anchor_index(levels: tuple[float, ...]) -> int:
    """Index of the level nearest to the median; the other quantiles are steps away from it."""
    return min(range(len(levels)), key=lambda q: abs(levels[q] - 0.5))


class QuantileHead(nn.Module):
    """Quantiles of each horizon from its context: an anchor plus or minus sums of softplus steps.

    The steps are positive, so quantiles never cross. Shapes: N rows, H horizons, W width, Q quantiles.
    """

    def __init__(self, width: int, *, horizons: int, levels: tuple[float, ...]) -> None:
        super().__init__()
        check_quantiles(levels)
        self.anchor: Final = find_anchor_index(levels)
        weight = torch.empty(horizons, width, len(levels))
        if not weight.is_meta:  # meta tensors only need shapes, and arithmetic would import torch's compiler
            weight = weight.normal_() * (0.1 / max(width, 1) ** 0.5)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(horizons, len(levels)))

    def forward(self, context: Tensor) -> Tensor:
        """Map [N, H, W] to [N, H, Q], ascending along Q."""
        by_horizon = torch.baddbmm(self.bias.unsqueeze(1), context.transpose(0, 1), self.weight)
        return self.rising(by_horizon.transpose(0, 1))

    def rising(self, raw: Tensor) -> Tensor:
        """Convert [N, H, Q], an anchor and the steps before softplus, to quantiles."""
        a = self.anchor
        middle, steps = raw[..., a], functional.softplus(raw).unbind(-1)
        upper_half = accumulate(steps[a + 1 :], torch.add, initial=middle)
        lower_half = accumulate(reversed(steps[:a]), torch.sub, initial=middle)
        return torch.stack([*reversed(list(lower_half)[1:]), *upper_half], dim=-1)

    @torch.no_grad()
    def start_at(self, quantiles: Tensor) -> None:
        """Start at quantiles [H, Q], ascending along Q, for any context."""
        a = self.anchor
        self.weight.zero_()
        steps = torch.diff(quantiles, dim=-1).clamp(min=1e-3)
        self.bias[:, a] = quantiles[:, a]
        raw = steps + torch.log(-torch.expm1(-steps))  # inverse softplus without exp(steps), which can overflow
        self.bias[:, a + 1 :] = raw[:, a:]
        self.bias[:, :a] = raw[:, :a]


def compute_pinball_loss(quantiles: Tensor, targets: Tensor, levels: Tensor) -> Tensor:
    """[N, H, Q] pinball loss of quantiles [N, H, Q] at targets [N, H] (Koenker & Bassett 1978)."""
    error = targets.unsqueeze(-1) - quantiles
    return torch.maximum(levels * error, (levels - 1) * error)


class PanelOutput(NamedTuple):
    """Forecasts of N rows, panel by panel. Legend: N rows, H horizons, Q quantiles."""

    quantiles: Tensor
    """float32 [N, H, Q] in units of the window's scale, ascending along Q."""
    scores: Tensor
    """float32 [N, H] without unit: larger for stocks that are expected to do better than others of the panel."""


def describe_fault(output: object, *, rows: int, horizons: int, quantiles: int) -> str | None:
    """Describe why a network's output is not a `PanelOutput` of these sizes; None if it is.

    The sentence names the actual and the expected output. Without this check, a loss could silently train on a wrong
    output, such as a dict with other keys.
    """
    if not isinstance(output, PanelOutput):
        return f"the network returned {_describe(output)}; expected PanelOutput(quantiles, scores)"
    return _describe_tensor_fault("quantiles", output.quantiles, (rows, horizons, quantiles)) or _describe_tensor_fault(
        "scores", output.scores, (rows, horizons)
    )


def _describe_tensor_fault(name: str, value: object, shape: tuple[int, ...]) -> str | None:
    if not isinstance(value, Tensor):
        return f"PanelOutput.{name} is {_describe(value)}; expected a tensor of shape {list(shape)}"
    if value.shape != shape:
        return f"PanelOutput.{name} has shape {list(value.shape)}; expected {list(shape)}"
    if not value.is_floating_point():
        return f"PanelOutput.{name} is of {value.dtype}; expected floating point"
    return None


def _describe(value: object) -> str:
    match value:
        case Tensor():
            return f"a tensor of shape {list(value.shape)}"
        case dict():
            return f"a dict with the keys {[str(key) for key in value]}"
        case tuple():
            return f"a {type(value).__name__} of {len(value)}"
        case None:
            return "None (is a `return` missing?)"
        case _:
            return f"a {type(value).__name__}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputMap:
    """Maps a network's output to a forecast. Shapes: N rows, H horizons, Q quantiles."""

    spread: Tensor
    """float64 [H] growth of the target's scale with the horizon."""
    offsets: Tensor
    """float64 [H, Q] conformal offsets in units of the window's scale; 0 at the median."""
    levels: tuple[float, ...]
    """[Q] the quantiles' probabilities."""

    def map_tensors(self, units: Tensor, location: Tensor, scale: Tensor, offsets: Tensor | None = None) -> Tensor:
        """Quantiles [N, H, Q] in the target's unit from a network's output.

        Args:
            units: [N, H, Q] in units of the window's scale, ascending along Q.
            location: float64 [N, H]
            scale: float64 [N, H]
            offsets: [H, Q] or [N, H, Q] instead of the model's.
        """
        shifted = units.to(torch.float64) + (self.offsets if offsets is None else offsets)
        return restore(remove_crossings(shifted, find_anchor_index(self.levels)), location, scale, self.spread)

    def map_arrays(self, units: FloatArray, location: FloatArray, scale: FloatArray) -> FloatArray:
        """The same as `map_tensors` for arrays: for few rows, NumPy takes a tenth of torch's time."""
        quantiles = remove_crossings_in_place(units + self.offsets.numpy(), find_anchor_index(self.levels))
        return location[..., None] + (scale * self.spread.numpy())[..., None] * quantiles


def remove_crossings_in_place(quantiles: FloatArray, anchor: int) -> FloatArray:
    """Apply `remove_crossings` to an array in place, and return it."""
    upper_half, lower_half = quantiles[..., anchor:], quantiles[..., anchor::-1]
    np.maximum.accumulate(upper_half, axis=-1, out=upper_half)
    np.minimum.accumulate(lower_half, axis=-1, out=lower_half)
    return quantiles


def remove_crossings(quantiles: Tensor, anchor: int) -> Tensor:
    """Quantiles [N, H, Q] without crossing: one that crosses its neighbour towards the anchor is set equal to it."""
    upper_half = quantiles[..., anchor:].cummax(-1).values
    lower_half = quantiles[..., : anchor + 1].flip(-1).cummin(-1).values.flip(-1)
    return torch.cat([lower_half[..., :-1], upper_half], dim=-1)


def normalise(values: Tensor, location: Tensor, scale: Tensor, spread: Tensor) -> Tensor:
    """Targets [N, H] in units of the window's scale; location and scale are [N, H], spread is [H]."""
    return (values - location) / (scale * spread)


def restore(units: Tensor, location: Tensor, scale: Tensor, spread: Tensor) -> Tensor:
    """Inverse of `normalise`: [N, H, Q] in units of the window's scale to the target's unit."""
    return location[..., None] + (scale * spread)[..., None] * units
