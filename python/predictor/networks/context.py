"""From an encoder's last state to a context for each horizon, which the quantile head reads."""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from predictor.networks.dropout import Dropout
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.target import Target

NORM_EPSILON: Final = 1e-5

CONTEXT_ARITHMETIC: Final[Mapping[str, str | float]] = {
    "context": "last state, static, known of the session that the horizon ends on",
    "activation": "elu, alpha 1",
    "norm": "layer norm, variance over n",
    "norm_epsilon": NORM_EPSILON,
}


class HorizonContext(nn.Module):
    """The state meets, for each horizon, the static features and the known ones of the session it ends on.

    Legend: N rows, H horizons, W width of the state and of the context.
    """

    ends: Tensor

    def __init__(self, width: int, *, sizes: InputSizes, target: Target, dropout: float) -> None:
        super().__init__()
        ends = [sizes.encoder_length - 1 + target.lag + h for h in target.horizons]
        self.register_buffer("ends", torch.tensor(ends), persistent=False)
        self.mix = nn.Linear(width + sizes.static + sizes.known, width)
        self.norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.dropout = Dropout(dropout)

    def forward(self, state: Tensor, inputs: Inputs) -> Tensor:
        """Map the state [N, W] to [N, H, W]."""
        of_window = torch.cat([state, inputs.static], dim=-1)
        of_horizon = inputs.known.index_select(1, self.ends)
        window, horizon = self.mix.weight.split([of_window.shape[-1], of_horizon.shape[-1]], dim=1)
        # the window's part is one for all horizons, so it is computed once
        shared = functional.linear(of_window, window, self.mix.bias).unsqueeze(1)
        return self.dropout(self.norm(functional.elu(shared + functional.linear(of_horizon, horizon))))
