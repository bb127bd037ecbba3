"""The straight path from the baseline to a batch of windows: everything that a forecast reads moves at once."""

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
    """The window that contributions count from, usually the average training day.

    Observed features are scaled, so their training mean is 0; which cells are known is not varied; the conformal
    offsets count from 0. All numbers come from the training split.
    """

    name: str
    """Such as `train_mean`; travels with every attribution."""
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
    """What an explanation does not vary."""

    mask: Tensor
    """bool [..., T, F]"""
    nodes: Tensor | None
    """int64 [..., M] each stock's place in a graph; None for a network that reads row by row."""

    def take(self, rows: Tensor | slice) -> "FixedInputs":
        """The mask and nodes of some of the windows; `rows` is [R] indices or a slice."""
        return FixedInputs(self.mask[rows], None if self.nodes is None else self.nodes[rows])

    def repeated(self, times: int) -> "FixedInputs":
        """All windows, repeated `times` times."""
        return FixedInputs(_repeated(self.mask, times), None if self.nodes is None else _repeated(self.nodes, times))


class PathParts(NamedTuple):
    """One tensor for each group of numbers that an explanation varies: values, gradients or contributions.

    Leading dimensions differ; the last ones are given here. Where the network looks across M stocks, they stand in
    front of these, the explained one first; offsets belong to the explained one.
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
        """Numbers per row; the first dimension counts rows."""
        return sum(part[0].numel() for part in self)

    def cells(self) -> Tensor:
        """All numbers of each row side by side, float64 [rows, width]."""
        return torch.cat([part.flatten(1).to(torch.float64) for part in self], dim=1)

    def of_cells(self, cells: Tensor) -> "PathParts":
        """Other numbers [rows, width], parted as these are."""
        groups = cells.split([part[0].numel() for part in self], dim=1)
        return PathParts(*(group.view(part.shape) for group, part in zip(groups, self, strict=True)))

    def inputs(self, mask: Tensor) -> Inputs:
        """The network's inputs with these values; `mask` is bool, of the shape [..., T, F]."""
        return Inputs(self.observed, self.known, self.static, mask, self.location, self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathBlock:
    """A rectangle of windows and nodes; one forward runs all of it."""

    first_row: int
    rows: int
    first_node: int
    nodes: int

    @property
    def size(self) -> int:
        """Rows of the forward."""
        return self.rows * self.nodes

    @property
    def row_slice(self) -> slice:
        """The windows."""
        return slice(self.first_row, self.first_row + self.rows)

    @property
    def node_slice(self) -> slice:
        """The nodes."""
        return slice(self.first_node, self.first_node + self.nodes)

    def halves(self) -> "tuple[PathBlock, PathBlock]":
        """Two blocks that cover this one; windows are parted before the nodes of one window."""
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
    """From the baseline (position 0) to N windows (position 1); what is held stays the windows' own."""

    start: PathParts
    end: PathParts
    held: FixedInputs

    @classmethod
    def between(
        cls, baseline: Baseline, inputs: Inputs, offsets: Tensor, nodes: Tensor | None = None
    ) -> "StraightPath":
        """The path on the device of the model's conformal offsets [H, Q].

        Raises:
            WindowShapeError: baseline and windows have other numbers of known or static features.
        """
        _check_width("known", inputs.known, baseline.known)
        _check_width("static", inputs.static, baseline.static)
        own = Inputs(*(copied(group, offsets.device) for group in inputs))
        end = PathParts(
            own.observed,
            own.known,
            own.static,
            own.location,
            own.scale,
            offsets.expand(len(own.location), -1, -1),
        )
        start = PathParts(
            torch.zeros_like(own.observed),
            _filled(own.known, baseline.known),
            _filled(own.static, baseline.static),
            _filled(own.location, baseline.location),
            _filled(own.scale, baseline.scale),
            torch.zeros_like(end.offsets),
        )
        held = FixedInputs(own.mask, None if nodes is None else copied(nodes, offsets.device))
        return cls(start=start, end=end, held=held)

    @property
    def rows(self) -> int:
        """Windows (N)."""
        return len(self.held.mask)

    @property
    def device(self) -> torch.device:
        """Where everything is."""
        return self.held.mask.device

    @property
    def scale(self) -> Tensor:
        """[N, H] volatility of the explained windows."""
        return self.end.scale if self.held.nodes is None else self.end.scale[:, 0]

    def take(self, rows: Tensor) -> "StraightPath":
        """The path of some of the windows; `rows` is [R] indices in ascending order."""
        if len(rows) == self.rows:
            return self
        return StraightPath(
            start=PathParts(*(part[rows] for part in self.start)),
            end=PathParts(*(part[rows] for part in self.end)),
            held=self.held.take(rows),
        )

    def distance(self) -> PathParts:
        """How far each number moves; float64 [N, ...]."""
        return PathParts(
            *(end.to(torch.float64) - start.to(torch.float64) for start, end in zip(self.start, self.end, strict=True))
        )

    def at(self, block: PathBlock, positions: Tensor) -> tuple[PathParts, FixedInputs]:
        """Values and what is held at the block's nodes, [nodes x rows, ...] with the windows running fastest.

        Positions 0 and 1 give baseline and windows to the last bit.
        """
        weights = positions[block.node_slice]
        values = PathParts(
            *(
                _interpolated(start[block.row_slice], end[block.row_slice], weights)
                for start, end in zip(self.start, self.end, strict=True)
            )
        )
        return values, self.held.take(block.row_slice).repeated(block.nodes)


def copied(values: Tensor, device: torch.device) -> Tensor:
    """A copy in the same shape, outside inference mode: autograd may not keep tensors that were made under it."""
    return values.to(device, copy=True)


def _repeated(values: Tensor, times: int) -> Tensor:
    return values.expand(times, *values.shape).flatten(0, 1)


def _interpolated(start: Tensor, end: Tensor, weights: Tensor) -> Tensor:
    """[nodes x rows, ...]; `lerp` hits both ends exactly."""
    column = weights.to(end.dtype).view(-1, *(1,) * end.dim())
    return torch.lerp(start.unsqueeze(0), end.unsqueeze(0), column).flatten(0, 1)


def _filled(like: Tensor, values: ArrayLike) -> Tensor:
    """The baseline's values in the shape, dtype and place of the windows' own."""
    return torch.as_tensor(values, dtype=like.dtype, device=like.device).expand_as(like)


def _check_width(group: str, windows: Tensor, baseline: ArrayLike) -> None:
    have, want = windows.shape[-1], torch.as_tensor(baseline).shape
    if (have,) != tuple(want):
        raise WindowShapeError(
            f"the windows hold {have} {group} features, but the baseline's values for them have shape {list(want)}"
        )


WindowForecasts = Callable[[PathParts, FixedInputs], Tensor]
"""Returns quantiles [N, H, Q] of the explained windows, in the target's unit."""


@final
class RowForecasts:
    """For a network that reads each window by itself."""

    def __init__(self, view: nn.Module, output: OutputMap) -> None:
        self._view = view
        self._output = output

    def __call__(self, parts: PathParts, held: FixedInputs) -> Tensor:
        """Quantiles [N, H, Q]: one row of the network per window."""
        units = self._view(parts.inputs(held.mask))
        return self._output.values(units, parts.location, parts.scale, parts.offsets)


@final
class PanelForecasts:
    """For a network that looks across the stocks of a panel: each window is a small panel of all that it depends on.

    Its first stock is the explained one; the others are those that the network reads for it.
    """

    def __init__(self, view: nn.Module, output: OutputMap) -> None:
        self._view = view
        self._output = output

    def __call__(self, parts: PathParts, held: FixedInputs) -> Tensor:
        """Quantiles [N, H, Q]: one panel of the network per window; only its first stock counts."""
        assert held.nodes is not None  # noqa: S101 - the explainer checked the request
        windows, members = held.nodes.shape
        stocks = Inputs(*(group.flatten(0, 1) for group in parts.inputs(held.mask)))
        units: Tensor = self._view(stocks, held.nodes.flatten(), windows).quantiles.unflatten(0, (windows, members))
        return self._output.values(units[:, 0], parts.location[:, 0], parts.scale[:, 0], parts.offsets)
