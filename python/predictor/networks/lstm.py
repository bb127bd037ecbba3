"""A recurrent forecaster: LSTM over the encoder's sessions, one quantile head a horizon."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from predictor.errors import ConfigurationError
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.quantiles import HEAD_ARITHMETIC, QuantileHead
from predictor.networks.target import Target

MOST_HIDDEN = 4096
MOST_LAYERS = 16
"""Bounds for what an artifact may ask to be built; far beyond what daily bars can teach."""


NORM_EPSILON = 1e-5

LSTM_ARITHMETIC: Mapping[str, str | float] = {
    "row": "observed, known, share of known cells",
    "gates": "input, forget, cell, output",
    "context": "last state, static, known of the session that the horizon ends on",
    "activation": "elu, alpha 1",
    "norm": "layer norm, variance over n",
    "norm_epsilon": NORM_EPSILON,
    "head": HEAD_ARITHMETIC,
}
"""What the settings leave open and another implementation must know: orders, functions, epsilons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LSTMConfig:
    """Sizes of the LSTM forecaster."""

    hidden: int = 32
    """Width of the LSTM's state and of the layer before the head."""
    layers: int = 2
    dropout: float = 0.5
    """Share of values dropped between layers and before the head, in [0, 1), while training."""

    def __post_init__(self) -> None:
        if not 1 <= self.hidden <= MOST_HIDDEN or not 1 <= self.layers <= MOST_LAYERS:
            raise ConfigurationError(
                f"hidden is {self.hidden} and layers {self.layers}, but they must be 1 to {MOST_HIDDEN} and "
                f"1 to {MOST_LAYERS}"
            )
        if not 0 <= self.dropout < 1:
            raise ConfigurationError(f"dropout is {self.dropout:g}, but must be at least 0 and below 1")


class LSTMForecaster(nn.Module):
    """LSTM (Hochreiter & Schmidhuber 1997) over observed and known features; direct forecasts of all horizons.

    Each session's row holds its observed features, its known features and the share of observed cells that are
    known. The last state meets, for each horizon, the known features of the session that the horizon ends on.
    """

    def __init__(self, config: LSTMConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]) -> None:
        super().__init__()
        self.encoder_length = sizes.encoder_length
        self.ends = [sizes.encoder_length - 1 + target.lag + h for h in target.horizons]
        width = sizes.observed + sizes.known + 1
        between = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(width, config.hidden, config.layers, batch_first=True, dropout=between)
        self.mix = nn.Linear(config.hidden + sizes.static + sizes.known, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=NORM_EPSILON)
        self.dropout = nn.Dropout(config.dropout)
        self.head = QuantileHead(config.hidden, horizons=len(target.horizons), levels=levels)

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's own volatility."""
        share_known = inputs.mask.to(inputs.observed.dtype).mean(-1, keepdim=True)
        rows = torch.cat([inputs.observed, inputs.known[:, : self.encoder_length], share_known], dim=-1)
        states, _ = self.lstm(rows)
        last = torch.cat([states[:, -1], inputs.static], dim=-1).unsqueeze(1).expand(-1, len(self.ends), -1)
        context = torch.cat([last, inputs.known[:, self.ends]], dim=-1)
        return self.head(self.dropout(self.norm(functional.elu(self.mix(context)))))
