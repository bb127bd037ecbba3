"""neuralforecast's TFT and LSTM: the modules as its `fit` and `predict` call them, without its data loader."""

from collections.abc import Callable
from typing import final

import torch
from neuralforecast.losses.pytorch import MQLoss
from neuralforecast.models import LSTM, TFT
from torch import Tensor, nn

from benchmarks.forecasts.speed_work import (
    CLIP,
    DROPOUT,
    ENCODER,
    HEADS,
    HIDDEN,
    HORIZON,
    KNOWN,
    LEVELS,
    LSTM_HIDDEN,
    LSTM_LAYERS,
    OBSERVED,
    RATE,
    STATIC,
    Kind,
    Windows,
    Work,
    forecast_with,
)


@final
class WithNeuralforecast:
    """The peer's TFT and LSTM; the target's past is a separate input, so covariates are the other observed features."""

    def call(self, kind: Kind, work: Work) -> Callable[[], object]:
        """A training step with the library's default optimizer, or a forecast."""
        torch.manual_seed(0)
        network, windows = _network(kind), Windows.of(work)
        return _step(network, windows) if work == "step" else forecast_with(network.eval(), _batch(windows))


def _network(kind: Kind) -> nn.Module:
    shared = {
        "h": HORIZON,
        "input_size": ENCODER,
        "hist_exog_list": [f"observed {k}" for k in range(OBSERVED)],
        "futr_exog_list": [f"known {k}" for k in range(KNOWN)],
        "stat_exog_list": [f"static {k}" for k in range(STATIC)],
        "loss": MQLoss(quantiles=list(LEVELS)),
        "scaler_type": "identity",
        "max_steps": 1,
    }
    if kind == "tft":
        return TFT(hidden_size=HIDDEN, n_head=HEADS, dropout=DROPOUT, **shared)
    return LSTM(
        encoder_hidden_size=LSTM_HIDDEN,
        encoder_n_layers=LSTM_LAYERS,
        encoder_dropout=DROPOUT,
        decoder_hidden_size=LSTM_HIDDEN,
        **shared,
    )


def _batch(windows: Windows) -> dict[str, Tensor]:
    return {
        "insample_y": windows.observed[..., :1],
        "hist_exog": windows.observed[..., 1:],
        "futr_exog": windows.known,
        "stat_exog": windows.static,
    }


def _step(network: nn.Module, windows: Windows) -> Callable[[], None]:
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    batch, levels, target = _batch(windows), torch.tensor(LEVELS), windows.target.unsqueeze(-1)

    def step() -> None:
        optimizer.zero_grad()
        error = target - network(batch)
        torch.maximum(levels * error, (levels - 1) * error).mean().backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()

    return step


SUBJECT = WithNeuralforecast()
