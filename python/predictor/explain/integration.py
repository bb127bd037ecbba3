"""Forecasts and mean gradients along a path, in blocks that fit into memory and end in time."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, final

import torch
from torch import Tensor

from predictor.deadline import Checkpoint
from predictor.explain.forecasting import WindowForecasts
from predictor.explain.path import Block, Parts, StraightPath
from predictor.explain.quadrature import gauss_legendre

Done = TypeVar("Done")

Point = tuple[int, int]
"""Indices (h, q) of a horizon and a quantile."""


@final
class PathIntegrator:
    """Forecasts along paths. Legend: N windows, P points, H horizons, Q quantiles."""

    def __init__(self, forecasting: WindowForecasts, *, max_rows: int) -> None:
        self._forecast = forecasting
        self._max_rows = max_rows

    def ends(self, path: StraightPath, deadline: Checkpoint) -> Tensor:
        """Forecasts at the baseline and at the windows themselves, float64 [2, N, H, Q]."""
        positions = torch.tensor([0.0, 1.0], dtype=torch.float64, device=path.device)
        found = positions.new_empty(2, path.rows, *path.end.offsets.shape[1:])

        def run(block: Block) -> Tensor:
            with torch.no_grad():
                return self._forecast(*path.at(block, positions))

        for block, values in self._blocks(path.rows, 2, run, deadline):
            found[block.node_slice, block.row_slice] = values.unflatten(0, (block.nodes, block.rows))
        return found

    def mean_gradients(self, path: StraightPath, points: Sequence[Point], count: int, deadline: Checkpoint) -> Parts:
        """Gradients of each point's forecast, averaged along the path with `count` nodes; float64 [P, N, ...]."""
        positions, weights = (torch.tensor(values, device=path.device) for values in gauss_legendre(count))
        found = Parts(
            *(torch.zeros(len(points), *part.shape, dtype=torch.float64, device=part.device) for part in path.end)
        )

        def run(block: Block) -> list[Parts]:
            return self._gradients(path, points, block, positions, weights)

        for block, sums in self._blocks(path.rows, count, run, deadline):
            for p, parts in enumerate(sums):
                for total, part in zip(found, parts, strict=True):
                    total[p, block.row_slice] += part
        return found

    def _gradients(
        self, path: StraightPath, points: Sequence[Point], block: Block, positions: Tensor, weights: Tensor
    ) -> list[Parts]:
        """Weighted sums over the block's nodes, one a point: one forward, one backward a point."""
        values, held = path.at(block, positions)
        leaves = Parts(*(part.requires_grad_() for part in values))
        forecast = self._forecast(leaves, held)
        by_row = weights[block.node_slice].repeat_interleave(block.rows)
        sums: list[Parts] = []
        for k, (h, q) in enumerate(points):
            gradients = torch.autograd.grad(
                forecast[:, h, q],
                leaves,
                by_row,
                retain_graph=k < len(points) - 1,
                materialize_grads=True,  # an input that the network does not read has gradient 0
            )
            sums.append(Parts(*(_over_nodes(gradient, block) for gradient in gradients)))
        return sums

    def _blocks(
        self, rows: int, nodes: int, run: Callable[[Block], Done], deadline: Checkpoint
    ) -> Iterator[tuple[Block, Done]]:
        """Run everything block by block; where memory does not suffice, go on with blocks of half the size."""
        most = self._max_rows
        pending = [Block(first_row=0, rows=rows, first_node=0, nodes=nodes)]
        while pending:
            block = pending.pop()
            if block.size > most:
                pending.extend(reversed(block.halves()))
                continue
            deadline.check()
            done = _unless_memory_lacks(run, block)
            if done is None:
                most = block.size // 2
                pending.append(block)
            else:
                yield block, done


def _unless_memory_lacks(run: Callable[[Block], Done], block: Block) -> Done | None:
    """None if the block did not fit; what it had allocated is free again by then."""
    try:
        return run(block)
    except torch.OutOfMemoryError:
        if block.size == 1:
            raise
        return None


def _over_nodes(gradient: Tensor, block: Block) -> Tensor:
    """[nodes x rows, ...] summed over the nodes in float64: [rows, ...]."""
    return gradient.unflatten(0, (block.nodes, block.rows)).sum(0, dtype=torch.float64)
