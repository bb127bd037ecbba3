"""Our forecasters as users train and serve them: shipped network, task, optimizer and frozen network."""

from collections.abc import Callable
from typing import final

import torch
from torch import nn

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
from predictor.inference import freeze
from predictor.networks import Inputs, InputSizes, LSTMConfig, LSTMForecaster, Target
from predictor.networks.tft import TFTConfig, TFTForecaster
from trainers.loop import adamw
from trainers.loop.device.memory import keep_freed_memory
from trainers.stock.data import WindowBatch
from trainers.stock.objectives import QuantileTask

SIZES = InputSizes(encoder_length=ENCODER, future_length=HORIZON, observed=1 + OBSERVED, known=KNOWN, static=STATIC)
TARGET = Target(horizons=tuple(range(1, HORIZON + 1)))


@final
class Ours:
    """TFT and LSTM of the peer's size, with a forecast for every step of the horizon."""

    def call(self, kind: Kind, work: Work) -> Callable[[], object]:
        """A training step, or a forecast of a frozen network."""
        torch.manual_seed(0)
        network, windows = _network(kind), Windows.of(work)
        return _step(network, windows) if work == "step" else forecast_with(freeze(network), _inputs(windows))


def _network(kind: Kind) -> nn.Module:
    if kind == "tft":
        config = TFTConfig(hidden=HIDDEN, heads=HEADS, dropout=DROPOUT)
        return TFTForecaster(config, sizes=SIZES, target=TARGET, levels=LEVELS)
    lstm = LSTMConfig(hidden=LSTM_HIDDEN, layers=LSTM_LAYERS, dropout=DROPOUT)
    return LSTMForecaster(lstm, sizes=SIZES, target=TARGET, levels=LEVELS)


def _inputs(windows: Windows) -> Inputs:
    rows = len(windows.observed)
    return Inputs(
        observed=windows.observed,
        known=windows.known,
        static=windows.static,
        mask=torch.ones_like(windows.observed, dtype=torch.bool),
        location=torch.zeros(rows, len(TARGET.horizons), dtype=torch.float64),
        scale=torch.ones(rows, len(TARGET.horizons), dtype=torch.float64),
    )


def _step(network: nn.Module, windows: Windows) -> Callable[[], None]:
    task, optimizer = QuantileTask(network, LEVELS), adamw(network.parameters(), lr=RATE)
    batch = WindowBatch(inputs=_inputs(windows), target=windows.target)
    keep_freed_memory()  # as the training loop does

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        task.loss(batch).mean.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()

    return step


SUBJECT = Ours()
