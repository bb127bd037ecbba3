"""Recurrent forecasters: LSTM, GRU, and a hybrid of LSTM and Transformer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from torch import Tensor, nn

from predictor.networks.inputs import ROW_ARITHMETIC, Inputs, InputSizes, compute_row_width, make_session_rows
from predictor.networks.layers import (
    CONTEXT_ARITHMETIC,
    MAX_HIDDEN,
    MAX_LAYERS,
    NORM_EPSILON,
    BlockCount,
    DropoutShare,
    HeadCount,
    HiddenSize,
    HorizonContext,
    LayerCount,
    check_dropout,
    check_heads,
    check_whole,
)
from predictor.networks.network_kind import NetworkKind
from predictor.networks.output import HEAD_ARITHMETIC, QuantileHead
from predictor.networks.target import Target

FEEDFORWARD = 4
"""Width of the Transformer's inner layer relative to its state, as in Vaswani et al."""

HYBRID_ARITHMETIC: Mapping[str, str | float] = {
    "row": ROW_ARITHMETIC,
    "gates": "input, forget, cell, output",
    "attention": "all sessions attend to all, softmax of q k / sqrt(width of a head); the states carry the order",
    "transformer": "layer norm before attention and before the inner layer, residual after each; gelu by erf, x 4",
    **CONTEXT_ARITHMETIC,
    "head": HEAD_ARITHMETIC,
}
"""Conventions that another implementation needs besides the settings: orders, functions, epsilons."""

LSTM_ARITHMETIC: Mapping[str, str | float] = {
    "row": ROW_ARITHMETIC,
    "gates": "input, forget, cell, output",
    **CONTEXT_ARITHMETIC,
    "head": HEAD_ARITHMETIC,
}
"""Conventions that another implementation needs besides the settings: orders, functions, epsilons."""

GRU_ARITHMETIC: Mapping[str, str | float] = {
    **LSTM_ARITHMETIC,
    "gates": "reset, update, new; the reset gate multiplies the state after its linear map",
}
"""As `LSTM_ARITHMETIC`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridConfig:
    """Sizes of the hybrid forecaster."""

    hidden: HiddenSize = 32
    """Width of the LSTM's state, of the Transformer, and of the layer before the head; a multiple of `heads`."""
    layers: LayerCount = 1
    """LSTM layers."""
    blocks: BlockCount = 1
    """Transformer layers over the LSTM's states."""
    heads: HeadCount = 4
    dropout: DropoutShare = 0.3
    """Share of values dropped between layers, in the Transformer and before the head during training, in [0, 1)."""

    def __post_init__(self) -> None:
        check_whole("hidden", self.hidden, MAX_HIDDEN)
        check_whole("layers", self.layers, MAX_LAYERS)
        check_whole("blocks", self.blocks, MAX_LAYERS)
        check_heads(self.heads, self.hidden)
        check_dropout(self.dropout)


class HybridForecaster(nn.Module):
    """LSTM, then Transformer layers (Vaswani et al. 2017, pre-norm) over its states; direct forecasts.

    The LSTM's states encode the order of sessions, so the Transformer needs no positional encoding. All sessions of the
    encoder are in the past, so attention needs no mask.
    """

    def __init__(self, config: HybridConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]) -> None:
        super().__init__()
        between = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(compute_row_width(sizes), config.hidden, config.layers, batch_first=True, dropout=between)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.blocks))
        self.context = HorizonContext(config.hidden, sizes=sizes, target=target, dropout=config.dropout)
        self.head = QuantileHead(config.hidden, horizons=len(target.horizons), levels=levels)

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's own volatility."""
        states, _ = self.lstm(make_session_rows(inputs))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LSTMConfig:
    """Sizes of the LSTM forecaster."""

    hidden: HiddenSize = 32
    """Width of the LSTM's state and of the layer before the head."""
    layers: LayerCount = 2
    dropout: DropoutShare = 0.5
    """Share of values dropped between layers and before the head during training, in [0, 1)."""

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GRUConfig:
    """Sizes of the GRU forecaster."""

    hidden: HiddenSize = 32
    """Width of the GRU's state and of the layer before the head."""
    layers: LayerCount = 2
    dropout: DropoutShare = 0.5
    """Share of values dropped between layers and before the head during training, in [0, 1)."""

    def __post_init__(self) -> None:
        _check(self)


def _check(config: LSTMConfig | GRUConfig) -> None:
    check_whole("hidden", config.hidden, MAX_HIDDEN)
    check_whole("layers", config.layers, MAX_LAYERS)
    check_dropout(config.dropout)


class LSTMForecaster(nn.Module):
    """LSTM (Hochreiter & Schmidhuber 1997) over observed and known features; direct forecasts of all horizons."""

    def __init__(self, config: LSTMConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]) -> None:
        super().__init__()
        between = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(compute_row_width(sizes), config.hidden, config.layers, batch_first=True, dropout=between)
        self.context = HorizonContext(config.hidden, sizes=sizes, target=target, dropout=config.dropout)
        self.head = QuantileHead(config.hidden, horizons=len(target.horizons), levels=levels)

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's own volatility."""
        states, _ = self.lstm(make_session_rows(inputs))
        return self.head(self.context(states[:, -1], inputs))


class GRUForecaster(nn.Module):
    """The same with a GRU (Cho et al. 2014): three gates instead of four, so a quarter fewer recurrent weights."""

    def __init__(self, config: GRUConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]) -> None:
        super().__init__()
        between = config.dropout if config.layers > 1 else 0.0
        self.gru = nn.GRU(compute_row_width(sizes), config.hidden, config.layers, batch_first=True, dropout=between)
        self.context = HorizonContext(config.hidden, sizes=sizes, target=target, dropout=config.dropout)
        self.head = QuantileHead(config.hidden, horizons=len(target.horizons), levels=levels)

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's own volatility."""
        states, _ = self.gru(make_session_rows(inputs))
        return self.head(self.context(states[:, -1], inputs))


LSTM: Final = NetworkKind("lstm", 1, LSTMConfig, LSTMForecaster, LSTM_ARITHMETIC)
GRU: Final = NetworkKind("gru", 1, GRUConfig, GRUForecaster, GRU_ARITHMETIC)
HYBRID: Final = NetworkKind("hybrid", 1, HybridConfig, HybridForecaster, HYBRID_ARITHMETIC)
