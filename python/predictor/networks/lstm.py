"""A recurrent forecaster: LSTM over the encoder's sessions, one quantile head a horizon."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from predictor.networks.context import CONTEXT_ARITHMETIC, HorizonContext
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.quantiles import HEAD_ARITHMETIC, QuantileHead
from predictor.networks.rows import ROW_ARITHMETIC, row_width, session_rows
from predictor.networks.settings import MOST_HIDDEN, MOST_LAYERS, check_dropout, check_whole
from predictor.networks.target import Target

LSTM_ARITHMETIC: Mapping[str, str | float] = {
    "row": ROW_ARITHMETIC,
    "gates": "input, forget, cell, output",
    **CONTEXT_ARITHMETIC,
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
        check_whole("hidden", self.hidden, MOST_HIDDEN)
        check_whole("layers", self.layers, MOST_LAYERS)
        check_dropout(self.dropout)


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
