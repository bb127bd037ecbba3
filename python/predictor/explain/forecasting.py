"""Forecasts of the explained windows from values along a path, for networks that read row by row or across stocks."""

from typing import Protocol, final

from torch import Tensor, nn

from predictor.explain.path import Held, Parts
from predictor.networks import Inputs, OutputMap


class WindowForecasts(Protocol):
    """How a view is asked."""

    def __call__(self, parts: Parts, held: Held) -> Tensor:
        """Quantiles [N, H, Q] of the explained windows, in the target's unit."""
        ...


@final
class ByRow:
    """For a network that reads each window by itself."""

    def __init__(self, view: nn.Module, output: OutputMap) -> None:
        self._view = view
        self._output = output

    def __call__(self, parts: Parts, held: Held) -> Tensor:
        """One row of the network a window."""
        units = self._view(parts.inputs(held.mask))
        return self._output.values(units, parts.location, parts.scale, parts.offsets)


@final
class AcrossStocks:
    """For a network that looks across the stocks of a panel: each window is a small panel of all that it depends on.

    Its first stock is the explained one; the others are those that the network reads for it.
    """

    def __init__(self, view: nn.Module, output: OutputMap) -> None:
        self._view = view
        self._output = output

    def __call__(self, parts: Parts, held: Held) -> Tensor:
        """One panel of the network a window, of which the first stock counts."""
        assert held.nodes is not None  # noqa: S101 - the explainer checked the request
        windows, members = held.nodes.shape
        stocks = Inputs(*(group.flatten(0, 1) for group in parts.inputs(held.mask)))
        units: Tensor = self._view(stocks, held.nodes.flatten(), windows).quantiles.unflatten(0, (windows, members))
        return self._output.values(units[:, 0], parts.location[:, 0], parts.scale[:, 0], parts.offsets)
