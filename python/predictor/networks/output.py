"""From a network's output to the forecast: calibrated, never crossing, in the target's own unit, in float64."""

from dataclasses import dataclass

import torch
from torch import Tensor

from predictor.networks.quantiles import anchor_index


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputMap:
    """The last steps of a forecast. Shapes: N rows, H horizons, Q quantiles."""

    spread: Tensor
    """float64 [H] how the target's scale grows with the horizon."""
    offsets: Tensor
    """float64 [H, Q] conformal offsets in units of the window's scale; 0 at the median."""
    levels: tuple[float, ...]

    def values(self, units: Tensor, location: Tensor, scale: Tensor, offsets: Tensor | None = None) -> Tensor:
        """Quantiles [N, H, Q] in the target's unit from a network's output.

        Args:
            units: [N, H, Q] in units of the window's scale, rising along Q.
            location: float64 [N, H]
            scale: float64 [N, H]
            offsets: [H, Q] or [N, H, Q] in place of the model's own.
        """
        shifted = units.to(torch.float64) + (self.offsets if offsets is None else offsets)
        return restore(uncrossed(shifted, anchor_index(self.levels)), location, scale, self.spread)


def uncrossed(quantiles: Tensor, anchor: int) -> Tensor:
    """Quantiles [N, H, Q] with those that passed their neighbour on the way to the anchor put level with it."""
    above = quantiles[..., anchor:].cummax(-1).values
    below = quantiles[..., : anchor + 1].flip(-1).cummin(-1).values.flip(-1)
    return torch.cat([below[..., :-1], above], dim=-1)


def normalise(values: Tensor, location: Tensor, scale: Tensor, spread: Tensor) -> Tensor:
    """Targets [N, H] in units of the window's scale; location and scale are [N, H], spread is [H]."""
    return (values - location) / (scale * spread)


def restore(units: Tensor, location: Tensor, scale: Tensor, spread: Tensor) -> Tensor:
    """The way back: [N, H, Q] in units of the window's scale to the target's own unit."""
    return location[..., None] + (scale * spread)[..., None] * units
