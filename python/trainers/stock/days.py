"""Whole days for models of panels: every stock's window that ends on a day, and what came after it."""

from typing import NamedTuple, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from predictor.arrays import BoolArray
from predictor.networks import Inputs
from trainers.loop import ResidentSource
from trainers.stock.data import Batch, Windows


class Gathering(Protocol):
    """What windows are gathered from, such as a `History`."""

    def gather(self, windows: Windows) -> Batch:
        """Inputs and targets of these windows."""
        ...


class PanelBatch(NamedTuple):
    """P panels of S stocks each: N = P * S rows, panel by panel, absent stocks included."""

    inputs: Inputs
    """Absent rows are wholly unknown, with location 0 and scale 1."""
    nodes: Tensor
    """int64 [N] each row's place in the universe."""
    target: Tensor
    """float32 [N, H] in units of each window's volatility, NaN where unknown and for absent rows."""
    panels: int


@final
class Days:
    """Panels of all stocks by the position of their day on the date axis.

    A stock is present on a day if it can be forecast. A covariate may be known of a stock that is not traded, and makes
    it nobody's neighbour.
    """

    def __init__(self, history: Gathering, *, forecastable: BoolArray, nodes: NDArray[np.int64] | None = None) -> None:
        """Bind to a history.

        Args:
            history: windows are gathered from it when they are wanted, and never stored.
            forecastable: [S, T] where one of its S stocks has what it must have to be forecast, a bar above all.
            nodes: [S] each stock's place in the network's universe, -1 = unknown; None if they stand in its order.
        """
        self._history = history
        self._forecastable = forecastable
        self._stocks = np.arange(len(forecastable), dtype=np.int64)
        self._nodes = self._stocks if nodes is None else nodes

    def gather(self, positions: NDArray[np.int64]) -> PanelBatch:
        """The panels of these days."""
        symbols = np.tile(self._stocks, len(positions))
        windows = Windows(symbols=symbols, positions=np.repeat(positions, len(self._stocks)))
        batch = self._history.gather(windows)
        inputs = batch.inputs
        device = inputs.observed.device
        present = torch.from_numpy(self._forecastable[windows.symbols, windows.positions]).to(device)
        return PanelBatch(
            inputs=_with_absent(inputs, present),
            nodes=torch.from_numpy(self._nodes[symbols]).to(device),
            target=torch.where(present[:, None], batch.target, torch.nan),
            panels=len(positions),
        )

    def source(
        self, positions: NDArray[np.int64], *, days: int, seed: int = 0, shuffle: bool = True
    ) -> ResidentSource[PanelBatch]:
        """Batches of so many days, in an order that depends on seed and epoch alone."""

        def gather(index: Tensor) -> PanelBatch:
            batch = self.gather(positions[index.numpy()])
            return batch._replace(inputs=batch.inputs.for_learning())

        return ResidentSource(gather, samples=len(positions), batch_size=days, seed=seed, shuffle=shuffle)


def _with_absent(inputs: Inputs, present: Tensor) -> Inputs:
    """The inputs with absent rows wholly unknown."""
    there = present[:, None, None]
    return inputs._replace(
        observed=torch.where(there, inputs.observed, 0.0),
        mask=inputs.mask & there,
        location=torch.where(present[:, None], inputs.location, 0.0),
        scale=torch.where(present[:, None], inputs.scale, 1.0),
    )


@final
class ByPanels:
    """Cuts a batch into whole panels where memory is short; a ranking compares the stocks of one."""

    def samples(self, batch: PanelBatch) -> int:
        """How many panels it holds."""
        return batch.panels

    def cost(self, batch: PanelBatch) -> int:
        """The rows of a panel."""
        return len(batch.nodes) // batch.panels

    def piece(self, batch: PanelBatch, start: int, stop: int) -> PanelBatch:
        """The panels from `start` to before `stop`."""
        rows = self.cost(batch)
        first, last = start * rows, stop * rows
        return PanelBatch(
            inputs=batch.inputs.rows(first, last),
            nodes=batch.nodes[first:last],
            target=batch.target[first:last],
            panels=stop - start,
        )
