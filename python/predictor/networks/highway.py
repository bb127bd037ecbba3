"""A linear path from the window to the horizons, beside a network."""

from typing import Final

import torch
from torch import Tensor, nn

from predictor.networks.inputs import Inputs, InputSizes

MOST_CELLS: Final = 2048
"""Observed cells that the path reads at most; more could hardly be fitted, and would hardly be worth it."""

HIGHWAY_ARITHMETIC: Final = (
    f"linear in the observed cells of the newest sessions, at most {MOST_CELLS}; added to every quantile of a horizon"
)


class Highway(nn.Module):
    """Autoregressive highway (Lai et al. 2018, LSTNet, section 3.6; Zeng et al. 2023, DLinear).

    What is as simple as an average of the past needs no network, and no network learns it as well. The map has no bias,
    and is zero before it is fitted. Shapes: N rows, H horizons, F observed features, R sessions that are read.
    """

    def __init__(self, sizes: InputSizes, *, horizons: int) -> None:
        super().__init__()
        self.sessions: Final = max(1, min(sizes.encoder_length, MOST_CELLS // sizes.observed))
        self.weight = nn.Parameter(torch.zeros(horizons, self.sessions * sizes.observed))

    def cells(self, inputs: Inputs) -> Tensor:
        """[N, R F] what is read, oldest session first."""
        return inputs.observed[:, -self.sessions :].flatten(1)

    def forward(self, inputs: Inputs) -> Tensor:
        """[N, H] what is added to the quantiles."""
        return nn.functional.linear(self.cells(inputs), self.weight)
