"""The network and what follows it as one module, in operations that ONNX has."""

from typing import Final

import torch
from torch import Tensor, nn

from predictor.networks import Inputs, InputSizes, OutputMap, PanelForecasting, anchor_index, restore

NODES: Final = "nodes"
"""The input beside the groups of a network that looks across stocks."""


class WholeModel(nn.Module):
    """From the groups of `Inputs` that the model has to calibrated quantiles in the target's unit.

    Shapes: N rows, H horizons, Q quantiles. For a network that looks across stocks, N rows are one panel.
    """

    offsets: Tensor
    spread: Tensor

    def __init__(self, network: nn.Module, output: OutputMap, sizes: InputSizes, *, per_horizon: bool) -> None:
        """Receive the parts; `per_horizon` says whether location and scale come as [N, H], else as [N]."""
        super().__init__()
        self.per_horizon: Final = per_horizon
        self.network = network
        self.sizes: Final = sizes
        self.anchor: Final = anchor_index(output.levels)
        self.across_stocks: Final = isinstance(network, PanelForecasting)
        self.register_buffer("offsets", output.offsets.clone())
        self.register_buffer("spread", output.spread.clone())

    @property
    def absent(self) -> tuple[str, ...]:
        """Groups that are always empty."""
        return tuple(name for name in ("known", "static") if getattr(self.sizes, name) == 0)

    @property
    def input_names(self) -> tuple[str, ...]:
        """What `forward` takes, in order."""
        groups = tuple(name for name in Inputs._fields if name not in self.absent)
        return (*groups, NODES) if self.across_stocks else groups

    @property
    def output_names(self) -> tuple[str, ...]:
        """What `forward` gives, in order."""
        return ("values", "scores") if self.across_stocks else ("values",)

    def arguments(self, inputs: Inputs, nodes: Tensor) -> tuple[Tensor, ...]:
        """The tensors of `input_names`; `nodes` int64 [N] is left out where nobody reads it."""
        if not self.per_horizon:
            inputs = inputs._replace(location=inputs.location[:, 0], scale=inputs.scale[:, 0])
        given = {**inputs._asdict(), NODES: nodes}
        return tuple(given[name] for name in self.input_names)

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Quantiles float64 [N, H, Q], and scores float32 [N, H] of a network that ranks."""
        groups = dict(zip(self.input_names, given, strict=True))
        inputs = self._inputs(groups)
        if not self.across_stocks:
            return (self._values(self.network(inputs), inputs),)
        found = self.network(inputs, groups[NODES])
        return self._values(found.quantiles, inputs), found.scores

    def _inputs(self, groups: dict[str, Tensor]) -> Inputs:
        """With groups of width 0 in place of those that are absent."""
        rows, sizes = groups["location"].shape[0], self.sizes
        sessions = sizes.encoder_length + sizes.future_length
        empty = {
            "known": groups["observed"].new_zeros(rows, sessions, 0),
            "static": groups["observed"].new_zeros(rows, 0),
        }
        inputs = Inputs(*((groups | {name: empty[name] for name in self.absent})[name] for name in Inputs._fields))
        if self.per_horizon:
            return inputs
        location, scale = (part[:, None].expand(-1, len(self.spread)) for part in (inputs.location, inputs.scale))
        return inputs._replace(location=location, scale=scale)

    def _values(self, units: Tensor, inputs: Inputs) -> Tensor:
        """The same numbers as `OutputMap.values`; ONNX knows no running maximum, so uncrossing goes level by level."""
        levels = list((units.to(torch.float64) + self.offsets).unbind(-1))
        for q in range(self.anchor + 1, len(levels)):
            levels[q] = torch.maximum(levels[q], levels[q - 1])
        for q in range(self.anchor - 1, -1, -1):
            levels[q] = torch.minimum(levels[q], levels[q + 1])
        return restore(torch.stack(levels, dim=-1), inputs.location, inputs.scale, self.spread)
