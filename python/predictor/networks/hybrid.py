"""A recurrent encoder with a Transformer over its states."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from predictor.networks.context import CONTEXT_ARITHMETIC, NORM_EPSILON, HorizonContext
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.quantiles import HEAD_ARITHMETIC, QuantileHead
from predictor.networks.rows import ROW_ARITHMETIC, row_width, session_rows
from predictor.networks.settings import (
    MOST_HIDDEN,
    MOST_LAYERS,
    Blocks,
    Dropout,
    Heads,
    Hidden,
    Layers,
    check_dropout,
    check_heads,
    check_whole,
)
from predictor.networks.target import Target

FEEDFORWARD = 4
"""How much wider the Transformer's inner layer is than its state, as in Vaswani et al."""

HYBRID_ARITHMETIC: Mapping[str, str | float] = {
    "row": ROW_ARITHMETIC,
    "gates": "input, forget, cell, output",
    "attention": "all sessions attend to all, softmax of q k / sqrt(width of a head); the states carry the order",
    "transformer": "layer norm before attention and before the inner layer, residual after each; gelu by erf, x 4",
    **CONTEXT_ARITHMETIC,
    "head": HEAD_ARITHMETIC,
}
"""What the settings leave open and another implementation must know: orders, functions, epsilons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridConfig:
    """Sizes of the hybrid forecaster."""

    hidden: Hidden = 32
    """Width of the LSTM's state, of the Transformer, and of the layer before the head; a multiple of `heads`."""
    layers: Layers = 1
    """LSTM layers."""
    blocks: Blocks = 1
    """Transformer layers over the LSTM's states."""
    heads: Heads = 4
    dropout: Dropout = 0.3
    """Share of values dropped between layers, in the Transformer and before the head, in [0, 1), while training."""

    def __post_init__(self) -> None:
        check_whole("hidden", self.hidden, MOST_HIDDEN)
        check_whole("layers", self.layers, MOST_LAYERS)
        check_whole("blocks", self.blocks, MOST_LAYERS)
        check_heads(self.heads, self.hidden)
        check_dropout(self.dropout)


class HybridForecaster(nn.Module):
    """LSTM, then Transformer layers (Vaswani et al. 2017, pre-norm) over its states; direct forecasts.

    The LSTM's states know the order of sessions, so the Transformer needs no positions of its own. All sessions of
    the encoder lie in the past, so there is nothing to mask.
    """

    def __init__(self, config: HybridConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]) -> None:
        super().__init__()
        between = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(row_width(sizes), config.hidden, config.layers, batch_first=True, dropout=between)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.blocks))
        self.context = HorizonContext(config.hidden, sizes=sizes, target=target, dropout=config.dropout)
        self.head = QuantileHead(config.hidden, horizons=len(target.horizons), levels=levels)

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's own volatility."""
        states, _ = self.lstm(session_rows(inputs))
        for block in self.blocks:
            states = block(states)
        return self.head(self.context(states[:, -1], inputs))


def _block(config: HybridConfig) -> nn.Module:
    return nn.TransformerEncoderLayer(
        config.hidden,
        config.heads,
        FEEDFORWARD * config.hidden,
        config.dropout,
        activation="gelu",
        layer_norm_eps=NORM_EPSILON,
        batch_first=True,
        norm_first=True,
    )
