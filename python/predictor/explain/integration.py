"""Quadrature of gradients along a path in limited blocks, and forecasts with features at the baseline."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeVar, final

import numpy as np
import torch
from torch import Tensor, nn

from predictor.arrays import FloatArray
from predictor.call_context import Deadline
from predictor.explain.path import (
    Baseline,
    PanelForecasts,
    PathBlock,
    PathParts,
    RowForecasts,
    StraightPath,
    WindowForecasts,
)
from predictor.memory import is_out_of_memory, prepare_retry
from predictor.networks import OutputMap

NODE_COUNTS = (3, 6, 12, 24, 48, 96, 192, 384)
"""Numbers of nodes in the order tried. Three suffice for most windows; the gap and the roughness decide, so a small
first number does not reduce the accuracy."""

ResultT = TypeVar("ResultT")

Point = tuple[int, int]
"""Indices (h, q) of a horizon and a quantile."""


@cache
def compute_gauss_legendre(count: int) -> tuple[FloatArray, FloatArray]:
    """Positions in (0, 1) and weights that sum to 1, each [count]; exact for polynomials of degree 2 count - 1."""
    positions, weights = np.polynomial.legendre.leggauss(count)
    return _make_read_only((positions + 1) / 2), _make_read_only(weights / 2)


@cache
def compute_highest_legendre(count: int) -> FloatArray:
    """[count] factors of the weighted values at the nodes for the coefficient of the Legendre polynomial of degree
    count - 1, the highest that the nodes resolve. It shows first that a function is rough.
    """
    positions, _ = np.polynomial.legendre.leggauss(count)
    highest = np.polynomial.legendre.Legendre.basis(count - 1)(positions)
    return _make_read_only((2 * count - 1) * highest)


def limit_roughness(count: int, tolerance: float) -> float:
    """Largest coefficient of the highest degree, relative to the mean, for which the mean is within the tolerance.

    The coefficients of a smooth function decay like powers of some r. The highest resolved one, of degree n - 1, is
    r^(n - 1). The error of the mean is r^(2 n), because n nodes integrate all lower degrees exactly.
    """
    return tolerance ** ((count - 1) / (2 * count))


def _make_read_only(values: FloatArray) -> FloatArray:
    values.setflags(write=False)
    return values


class Gradients(NamedTuple):
    """Gradients of each point's forecast along the path, float64 [P, N, width] both, with all cells in one axis."""

    mean: Tensor
    rough: Tensor
    """Coefficient of the highest Legendre polynomial that the nodes resolve; small if they resolve the function."""


class _Rule(NamedTuple):
    """A quadrature rule; float64 [nodes] each."""

    positions: Tensor
    weights: Tensor
    highest: Tensor

    @classmethod
    def of(cls, count: int, device: torch.device) -> "_Rule":
        return cls(
            *(
                torch.tensor(values, device=device)
                for values in (*compute_gauss_legendre(count), compute_highest_legendre(count))
            )
        )


@final
class PathIntegrator:
    """Computes forecasts and gradients along paths. Legend: N windows, P points, H horizons, Q quantiles."""

    def __init__(self, forecasting: WindowForecasts, *, max_rows: int) -> None:
        self._forecast = forecasting
        self._max_rows = max_rows

    def ends(self, path: StraightPath, deadline: Deadline) -> Tensor:
        """Forecasts at the baseline and at the windows, float64 [2, N, H, Q]."""
        return self.forecasts(path, (0.0, 1.0), deadline)

    def forecasts(self, path: StraightPath, at: Sequence[float], deadline: Deadline) -> Tensor:
        """Forecasts at P positions between the baseline (0) and the windows (1), float64 [P, N, H, Q]."""
        positions = torch.tensor(at, dtype=torch.float64, device=path.device)
        forecasts = positions.new_empty(len(at), path.rows, *path.end.offsets.shape[1:])

        def run(block: PathBlock) -> Tensor:
            with torch.no_grad():
                return self._forecast(*path.at(block, positions))

        for block, values in self._run_blocks(path.rows, len(at), run, deadline):
            forecasts[block.node_slice, block.row_slice] = values.unflatten(0, (block.nodes, block.rows))
        return forecasts

    def gradients(self, path: StraightPath, points: Sequence[Point], count: int, deadline: Deadline) -> Gradients:
        """Integrate the gradients of each point's forecast along the path with `count` nodes."""
        rule = _Rule.of(count, path.device)
        mean = torch.zeros(len(points), path.rows, path.end.width, dtype=torch.float64, device=path.device)
        rough = torch.zeros_like(mean)

        def run(block: PathBlock) -> list[Tensor]:
            return self._sum_gradients(path, points, block, rule)

        for block, sums in self._run_blocks(path.rows, count, run, deadline):
            for p, (own_mean, own_rough) in enumerate(sums):
                mean[p, block.row_slice] += own_mean
                rough[p, block.row_slice] += own_rough
        return Gradients(mean, rough)

    def _sum_gradients(
        self, path: StraightPath, points: Sequence[Point], block: PathBlock, rule: "_Rule"
    ) -> list[Tensor]:
        """Sums over the block's nodes, one [2, rows, width] per point: one forward, and one backward per point."""
        values, fixed = path.at(block, rule.positions)
        leaves = PathParts(*(part.requires_grad_() for part in values))
        forecast = self._forecast(leaves, fixed)
        by_row = rule.weights[block.node_slice].repeat_interleave(block.rows)
        highest = rule.highest[block.node_slice]
        sums: list[Tensor] = []
        for k, (h, q) in enumerate(points):
            gradients = torch.autograd.grad(
                forecast[:, h, q],
                leaves,
                by_row,
                retain_graph=k < len(points) - 1,
                materialize_grads=True,  # an unused input has gradient 0
            )
            by_node = PathParts(*gradients).cells().unflatten(0, (block.nodes, block.rows))
            sums.append(torch.stack([by_node.sum(0), torch.tensordot(highest, by_node, dims=1)]))
        return sums

    def _run_blocks(
        self, rows: int, nodes: int, run: Callable[[PathBlock], ResultT], deadline: Deadline
    ) -> Iterator[tuple[PathBlock, ResultT]]:
        """Run everything block by block; halve the size of blocks if memory runs out."""
        max_rows = self._max_rows
        pending = [PathBlock(first_row=0, rows=rows, first_node=0, nodes=nodes)]
        while pending:
            block = pending.pop()
            if block.size > max_rows:
                pending.extend(reversed(block.split()))
                continue
            deadline.check()
            result = _run_or_free(run, block)
            if result is None:
                max_rows = block.size // 2
                pending.append(block)
            else:
                yield block, result


def _run_or_free(run: Callable[[PathBlock], ResultT], block: PathBlock) -> ResultT | None:
    """Run a block; return None after freeing its memory if it did not fit."""
    try:
        return run(block)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        prepare_retry(error)
        if block.size == 1:
            raise
        return None


@final
class FeatureForecasts:
    """Forecasts of any model of several features, which explanations by feature share. Stateless and thread-safe.

    Location, scale, conformal offsets, and the neighbours together, count as features.

    Attributes:
        output: The model's output map, on the device of the network's output.
        baseline: The baseline.
        members: Stocks of a window: the explained one and its neighbours.
        integrator: Computes forecasts in batches.
    """

    def __init__(
        self,
        network: nn.Module,
        output: OutputMap,
        baseline: Baseline,
        *,
        known_groups: Sequence[int],
        static_groups: Sequence[int],
        device: torch.device,
        max_rows: int,
        members: int | None = None,
    ) -> None:
        """Store the parts.

        Args:
            network: the served network.
            output: the model's output map.
            baseline: the baseline.
            known_groups: index of the known feature that each column belongs to.
            static_groups: index of the static feature that each column belongs to.
            device: device of the network's output.
            max_rows: see `Explainer`.
            members: see `Explainer`.
        """
        self.output = replace(output, spread=output.spread.to(device), offsets=output.offsets.to(device))
        self.baseline = baseline
        self.members = members or 1
        self._known_columns, self._static_columns = _list_columns(known_groups), _list_columns(static_groups)
        self._is_panel = members is not None
        forecasting = PanelForecasts(network, self.output) if self._is_panel else RowForecasts(network, self.output)
        self.integrator = PathIntegrator(forecasting, max_rows=max(1, max_rows // self.members))

    def list_columns(self, parts: PathParts) -> tuple[list[list[int]], ...]:
        """The columns of each feature in each part of the inputs."""
        observed, _, _, *others = (list(range(part.shape[-1])) for part in parts)
        return ([[f] for f in observed], self._known_columns, self._static_columns, *([columns] for columns in others))

    def index_of(self, part: int, columns: list[int]) -> tuple[Any, ...]:
        """The index of a feature's columns in a part; in a panel, only of the explained stock."""
        # all parts of a panel but the offsets have a dimension of stocks, and the first is the explained one
        leading_index = (slice(None), 0) if self._is_panel and part < len(PathParts._fields) - 1 else (slice(None),)
        return (*leading_index, ..., columns)

    def forecast(self, path: StraightPath, parts: PathParts, deadline: Deadline) -> Tensor:
        """[N, H, Q] forecasts of a path's windows with these inputs, always in batches of the same sizes."""
        return self.integrator.forecasts(replace(path, end=parts), (1.0,), deadline)[0]


def _list_columns(groups: Sequence[int]) -> list[list[int]]:
    """The columns of each group."""
    return [[k for k, column_group in enumerate(groups) if column_group == group] for group in dict.fromkeys(groups)]
