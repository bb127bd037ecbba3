"""The straight path from the baseline to a batch of windows, along which all inputs of a forecast move."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from predictor.errors import ConfigurationError, WindowShapeError
from predictor.networks import Inputs, OutputMap


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Baseline:
    """The reference window of contributions, usually the average training day.

    Observed features are scaled, so their baseline is the training mean 0. The mask does not vary. Conformal offsets
    start at 0. All numbers come from the training split.
    """

    name: str
    """Name such as `train_mean`, which every attribution carries."""
    known: NDArray[np.float32]
    """[K] one value per known feature, for every session."""
    static: NDArray[np.float32]
    """[C]"""
    location: NDArray[np.float64]
    """[H] level of the target, in its unit."""
    scale: NDArray[np.float64]
    """[H] volatility of the target, in its unit, positive."""

    def __post_init__(self) -> None:
        if not (self.scale > 0).all():
            raise ConfigurationError(f"baseline {self.name!r} has scale {self.scale.min():g}, but it must be positive")


class FixedInputs(NamedTuple):
    """Inputs that an explanation does not vary."""

    mask: Tensor
    """bool [..., T, F]"""
    nodes: Tensor | None
    """int64 [..., M] index of each stock in the graph; None for a row-wise network."""

    def take(self, rows: Tensor | slice) -> "FixedInputs":
        """Select windows; `rows` is [R] indices or a slice."""
        return FixedInputs(self.mask[rows], None if self.nodes is None else self.nodes[rows])

    def repeat(self, times: int) -> "FixedInputs":
        """Repeat all windows `times` times."""
        return FixedInputs(_repeat(self.mask, times), None if self.nodes is None else _repeat(self.nodes, times))


class PathParts(NamedTuple):
    """One tensor per group of varied numbers: values, gradients or contributions.

    Shapes below are the last dimensions. For a graph network, a dimension of M stocks precedes them, the explained
    one first; offsets belong to the explained stock.
    """

    observed: Tensor
    """[..., T, F]"""
    known: Tensor
    """[..., T + D, K]"""
    static: Tensor
    """[..., C]"""
    location: Tensor
    """[..., H]"""
    scale: Tensor
    """[..., H]"""
    offsets: Tensor
    """[..., H, Q]"""

    @property
    def width(self) -> int:
        """Numbers per row of the first dimension."""
        return sum(part[0].numel() for part in self)

    def cells(self) -> Tensor:
        """Concatenate all numbers of each row to float64 [rows, width]."""
        return torch.cat([part.flatten(1).to(torch.float64) for part in self], dim=1)

    def split_cells(self, cells: Tensor) -> "PathParts":
        """Split other numbers [rows, width] into these groups."""
        groups = cells.split([part[0].numel() for part in self], dim=1)
        return PathParts(*(group.view(part.shape) for group, part in zip(groups, self, strict=True)))

    def inputs(self, mask: Tensor) -> Inputs:
        """The network's inputs with these values; `mask` is bool [..., T, F]."""
        return Inputs(self.observed, self.known, self.static, mask, self.location, self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathBlock:
    """A rectangle of windows and nodes for one forward."""

    first_row: int
    rows: int
    first_node: int
    nodes: int

    @property
    def size(self) -> int:
        """Number of rows of the forward."""
        return self.rows * self.nodes

    @property
    def row_slice(self) -> slice:
        """The windows."""
        return slice(self.first_row, self.first_row + self.rows)

    @property
    def node_slice(self) -> slice:
        """The nodes."""
        return slice(self.first_node, self.first_node + self.nodes)

    def split(self) -> "tuple[PathBlock, PathBlock]":
        """Split the block in two: by windows, or by nodes if it has one window."""
        if self.rows > 1:
            half = self.rows // 2
            return (
                PathBlock(first_row=self.first_row, rows=half, first_node=self.first_node, nodes=self.nodes),
                PathBlock(
                    first_row=self.first_row + half,
                    rows=self.rows - half,
                    first_node=self.first_node,
                    nodes=self.nodes,
                ),
            )
        half = self.nodes // 2
        return (
            PathBlock(first_row=self.first_row, rows=1, first_node=self.first_node, nodes=half),
            PathBlock(first_row=self.first_row, rows=1, first_node=self.first_node + half, nodes=self.nodes - half),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StraightPath:
    """The path from the baseline (position 0) to N windows (position 1), with the windows' fixed inputs."""

    start: PathParts
    end: PathParts
    fixed: FixedInputs

    @classmethod
    def between(
        cls, baseline: Baseline, inputs: Inputs, offsets: Tensor, nodes: Tensor | None = None
    ) -> "StraightPath":
        """Build the path on the device of the model's conformal offsets [H, Q].

        Raises:
            WindowShapeError: baseline and windows have different numbers of known or static features.
        """
        _check_width("known", inputs.known, baseline.known)
        _check_width("static", inputs.static, baseline.static)
        windows = Inputs(*(copy_outside_inference(group, offsets.device) for group in inputs))
        end = PathParts(
            windows.observed,
            windows.known,
            windows.static,
            windows.location,
            windows.scale,
            offsets.expand(len(windows.location), -1, -1),
        )
        start = PathParts(
            torch.zeros_like(windows.observed),
            _expand(windows.known, baseline.known),
            _expand(windows.static, baseline.static),
            _expand(windows.location, baseline.location),
            _expand(windows.scale, baseline.scale),
            torch.zeros_like(end.offsets),
        )
        fixed = FixedInputs(windows.mask, None if nodes is None else copy_outside_inference(nodes, offsets.device))
        return cls(start=start, end=end, fixed=fixed)

    @property
    def rows(self) -> int:
        """Number of windows (N)."""
        return len(self.fixed.mask)

    @property
    def device(self) -> torch.device:
        """Device of all tensors."""
        return self.fixed.mask.device

    @property
    def scale(self) -> Tensor:
        """[N, H] volatility of the explained windows."""
        return self.end.scale if self.fixed.nodes is None else self.end.scale[:, 0]

    def take(self, rows: Tensor) -> "StraightPath":
        """Select windows; `rows` is [R] ascending indices."""
        if len(rows) == self.rows:
            return self
        return StraightPath(
            start=PathParts(*(part[rows] for part in self.start)),
            end=PathParts(*(part[rows] for part in self.end)),
            fixed=self.fixed.take(rows),
        )

    def distance(self) -> PathParts:
        """Distance of each number from the baseline, float64 [N, ...]."""
        return PathParts(
            *(end.to(torch.float64) - start.to(torch.float64) for start, end in zip(self.start, self.end, strict=True))
        )

    def at(self, block: PathBlock, positions: Tensor) -> tuple[PathParts, FixedInputs]:
        """Values and fixed inputs at the block's nodes, [nodes x rows, ...] with windows as the fastest index.

        Positions 0 and 1 return baseline and windows bit by bit.
        """
        weights = positions[block.node_slice]
        values = PathParts(
            *(
                _interpolate(start[block.row_slice], end[block.row_slice], weights)
                for start, end in zip(self.start, self.end, strict=True)
            )
        )
        return values, self.fixed.take(block.row_slice).repeat(block.nodes)


def copy_outside_inference(values: Tensor, device: torch.device) -> Tensor:
    """A copy outside inference mode, because autograd cannot save inference tensors."""
    return values.to(device, copy=True)


def _repeat(values: Tensor, times: int) -> Tensor:
    return values.expand(times, *values.shape).flatten(0, 1)


def _interpolate(start: Tensor, end: Tensor, weights: Tensor) -> Tensor:
    """[nodes x rows, ...]; `lerp` returns both ends exactly."""
    column = weights.to(end.dtype).view(-1, *(1,) * end.dim())
    return torch.lerp(start.unsqueeze(0), end.unsqueeze(0), column).flatten(0, 1)


def _expand(like: Tensor, values: ArrayLike) -> Tensor:
    """The baseline's values with the shape, dtype and device of the windows."""
    return torch.as_tensor(values, dtype=like.dtype, device=like.device).expand_as(like)


def _check_width(group: str, windows: Tensor, baseline: ArrayLike) -> None:
    have, want = windows.shape[-1], torch.as_tensor(baseline).shape
    if (have,) != tuple(want):
        raise WindowShapeError(
            f"the windows have {have} {group} features, but the baseline's values have shape {list(want)}"
        )


WindowForecasts = Callable[[PathParts, FixedInputs], Tensor]
"""Returns quantiles [N, H, Q] of the explained windows, in the target's unit."""


@final
class RowForecasts:
    """Forecasts of a row-wise network."""

    def __init__(self, view: nn.Module, output: OutputMap) -> None:
        self._view = view
        self._output = output

    def __call__(self, parts: PathParts, fixed: FixedInputs) -> Tensor:
        """Quantiles [N, H, Q], with one row of the network per window."""
        units = self._view(parts.inputs(fixed.mask))
        return self._output.map_tensors(units, parts.location, parts.scale, parts.offsets)


@final
class PanelForecasts:
    """Forecasts of a network that reads several stocks: each window is a small panel of the stocks that it depends on.

    The first stock is the explained one; the others are its neighbours.
    """

    def __init__(self, view: nn.Module, output: OutputMap) -> None:
        self._view = view
        self._output = output

    def __call__(self, parts: PathParts, fixed: FixedInputs) -> Tensor:
        """Quantiles [N, H, Q] of each panel's first stock, with one panel of the network per window."""
        assert fixed.nodes is not None  # noqa: S101 - the explainer checked the request
        windows, members = fixed.nodes.shape
        stocks = Inputs(*(group.flatten(0, 1) for group in parts.inputs(fixed.mask)))
        units: Tensor = self._view(stocks, fixed.nodes.flatten(), windows).quantiles.unflatten(0, (windows, members))
        return self._output.map_tensors(units[:, 0], parts.location[:, 0], parts.scale[:, 0], parts.offsets)
