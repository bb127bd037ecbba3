"""A linear path from the window to the horizons, beside a network."""

from typing import Final

import torch
from torch import Tensor, nn

from predictor.networks.inputs import Inputs, InputSizes

MOST_CELLS: Final = 2048
"""Observed cells that the path reads at most; more could hardly be fitted, and would hardly be worth it."""

HIGHWAY_ARITHMETIC: Final = (
    f"linear in the observed cells of the newest sessions, at most {MOST_CELLS}; times twice the sigmoid of a linear "
    "map of what the head reads; added to every quantile of a horizon"
)


class Highway(nn.Module):
    """Autoregressive highway (Lai et al. 2018, LSTNet, section 3.6; Zeng et al. 2023, DLinear) with a gate.

    What is as simple as an average of the past needs no network, and no network learns it as well. The map has no bias,
    and is zero before it is fitted. Where it is only a makeshift, as for the days and weeks of traffic, the rest of the
    network would spend its training on undoing it: a gate closes it instead (Srivastava et al. 2015), which begins at 1
    and lies between 0 and 2. Shapes: N rows, H horizons, F observed features, R sessions that are read, W width.
    """

    def __init__(self, sizes: InputSizes, width: int, *, horizons: int) -> None:
        super().__init__()
        self.sessions: Final = max(1, min(sizes.encoder_length, MOST_CELLS // sizes.observed))
        self.weight = nn.Parameter(torch.zeros(horizons, self.sessions * sizes.observed))
        self.gate = nn.Linear(width, 1)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def cells(self, inputs: Inputs) -> Tensor:
        """[N, R F] what is read, oldest session first."""
        return inputs.observed[:, -self.sessions :].flatten(1)

    def linear(self, inputs: Inputs) -> Tensor:
        """[N, H] the map of these inputs, as if the gate were 1."""
        return nn.functional.linear(self.cells(inputs), self.weight)

    def forward(self, inputs: Inputs, states: Tensor) -> Tensor:
        """[N, H, 1] what is added to the quantiles of horizons whose states [N, H, W] the gate reads."""
        return 2 * self.gate(states).sigmoid() * self.linear(inputs).unsqueeze(-1)
