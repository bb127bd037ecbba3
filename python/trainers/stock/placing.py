"""Where the inputs of a history are kept while a network learns from them: on the host, or on the network's device."""

from typing import Final, Protocol, final

import torch
from torch import Tensor

from predictor.arrays import BoolArray
from predictor.bars import BarPanel
from predictor.windows import Pipeline
from trainers.loop import free_bytes
from trainers.stock.data import History, StoredInputs, TrainingWindows, WindowBatch, places

SHARE: Final = 4
"""A history goes to the device if its inputs take at most this part of the memory that is free there: network,
optimizer and activations need the rest. From the host every window would be transferred again in every epoch."""


class TrainingHistory(Protocol):
    """What objectives are made from, such as a `History`."""

    bars: BarPanel
    pipeline: Pipeline

    @property
    def forecastable(self) -> BoolArray:
        """[S, T] where a symbol has what it must have to be forecast."""
        ...

    def gather(self, windows: TrainingWindows) -> WindowBatch:
        """Inputs and targets of these windows."""
        ...


def placed(history: History, device: torch.device) -> TrainingHistory:
    """The history, with its inputs on the device if that is a GPU and has room for them."""
    free = free_bytes(device)
    if free is None or size_of(history.stored) > free // SHARE:
        return history
    return DeviceHistory(history, device)


def size_of(stored: StoredInputs) -> int:
    """Bytes of the inputs, rows that symbols share counted once."""
    return sum(_own(tensor).numel() * tensor.element_size() for tensor in stored)


@final
class DeviceHistory:
    """A history whose inputs are gathered on a device; levels and targets are measured on the host, in float64."""

    def __init__(self, history: History, device: torch.device) -> None:
        self.bars = history.bars
        self.pipeline = history.pipeline
        self._history = history
        self._device = device
        self._stored = StoredInputs(*(_moved(tensor, device) for tensor in history.stored))

    @property
    def forecastable(self) -> BoolArray:
        """As `History.forecastable`."""
        return self._history.forecastable

    def gather(self, windows: TrainingWindows) -> WindowBatch:
        """As `History.gather`, the same bits on the device."""
        location, scale = self._history.level(windows)
        target = self._history.normalised(windows, location, scale)
        small = (*places(windows), location, scale, target)
        symbols, positions, location, scale, target = (tensor.to(self._device, non_blocking=True) for tensor in small)
        return WindowBatch(inputs=self._stored.gather(symbols, positions, location, scale), target=target)


def _own(tensor: Tensor) -> Tensor:
    """One of the rows, where all share its memory."""
    return tensor[:1] if tensor.ndim and tensor.stride(0) == 0 else tensor


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device, where rows share their memory as they did."""
    return _own(tensor).to(device).expand(tensor.shape)
