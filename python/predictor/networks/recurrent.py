"""Recurrent forecasters: an LSTM or a GRU over the encoder's sessions; its last state meets each horizon."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from predictor.networks.context import CONTEXT_ARITHMETIC, HorizonContext
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.quantiles import HEAD_ARITHMETIC, QuantileHead
from predictor.networks.rows import ROW_ARITHMETIC, row_width, session_rows
from predictor.networks.settings import MOST_HIDDEN, MOST_LAYERS, Dropout, Hidden, Layers, check_dropout, check_whole
from predictor.networks.target import Target

LSTM_ARITHMETIC: Mapping[str, str | float] = {
    "row": ROW_ARITHMETIC,
    "gates": "input, forget, cell, output",
    **CONTEXT_ARITHMETIC,
    "head": HEAD_ARITHMETIC,
}
"""What the settings leave open and another implementation must know: orders, functions, epsilons."""

GRU_ARITHMETIC: Mapping[str, str | float] = {
    **LSTM_ARITHMETIC,
    "gates": "reset, update, new; the reset gate multiplies the state after its linear map",
}
"""As `LSTM_ARITHMETIC`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LSTMConfig:
    """Sizes of the LSTM forecaster."""

    hidden: Hidden = 32
    """Width of the LSTM's state and of the layer before the head."""
    layers: Layers = 2
    dropout: Dropout = 0.5
    """Share of values dropped between layers and before the head, in [0, 1), while training."""

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GRUConfig:
    """Sizes of the GRU forecaster."""

    hidden: Hidden = 32
    """Width of the GRU's state and of the layer before the head."""
    layers: Layers = 2
    dropout: Dropout = 0.5
    """Share of values dropped between layers and before the head, in [0, 1), while training."""

    def __post_init__(self) -> None:
        _check(self)


def _check(config: LSTMConfig | GRUConfig) -> None:
    check_whole("hidden", config.hidden, MOST_HIDDEN)
    check_whole("layers", config.layers, MOST_LAYERS)
    check_dropout(config.dropout)


class LSTMForecaster(nn.Module):
    """LSTM (Hochreiter & Schmidhuber 1997) over observed and known features; direct forecasts of all horizons."""

    def __init__(self, config: LSTMConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]) -> None:
        super().__init__()
        between = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(row_width(sizes), config.hidden, config.layers, batch_first=True, dropout=between)
        self.context = HorizonContext(config.hidden, sizes=sizes, target=target, dropout=config.dropout)
        self.head = QuantileHead(config.hidden, horizons=len(target.horizons), levels=levels)

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's own volatility."""
        states, _ = self.lstm(session_rows(inputs))
        return self.head(self.context(states[:, -1], inputs))


class GRUForecaster(nn.Module):
    """The same with a GRU (Cho et al. 2014): three gates in place of four, so a quarter fewer recurrent weights."""

    def __init__(self, config: GRUConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]) -> None:
        super().__init__()
        between = config.dropout if config.layers > 1 else 0.0
        self.gru = nn.GRU(row_width(sizes), config.hidden, config.layers, batch_first=True, dropout=between)
        self.context = HorizonContext(config.hidden, sizes=sizes, target=target, dropout=config.dropout)
        self.head = QuantileHead(config.hidden, horizons=len(target.horizons), levels=levels)

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's own volatility."""
        states, _ = self.gru(session_rows(inputs))
        return self.head(self.context(states[:, -1], inputs))
