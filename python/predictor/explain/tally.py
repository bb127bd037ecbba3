"""What is known so far about every explained point and window, and which of them need more nodes."""

from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from predictor.explain.contributions import Contributions
from predictor.explain.integration import Gradients
from predictor.explain.path import Parts
from predictor.explain.quadrature import roughest


@final
class Tally:
    """Contributions, gaps and node counts of P points and N windows; each pair settles by itself."""

    def __init__(self, *, ends: Tensor, floor: Tensor, distance: Parts) -> None:
        """Start with nothing settled.

        Args:
            ends: [2, P, N] forecasts at the baseline and at the windows, in the target's unit.
            floor: [P, N] smallest difference that gaps are measured against.
            distance: float64 [N, ...] how far each number moves.
        """
        self._baseline, self._prediction = ends
        self._floor = floor
        self._parted = distance
        self._distance = distance.cells()
        self._cells = ends.new_zeros(ends.shape[1], *self._distance.shape)
        self._nodes = torch.zeros_like(floor, dtype=torch.int32)
        self._gap = torch.full_like(floor, torch.inf)
        self._converged = torch.zeros_like(floor, dtype=torch.bool)
        self._open = torch.ones_like(floor, dtype=torch.bool)

    @property
    def open_points(self) -> Tensor:
        """Indices of the points that some window still needs."""
        return self._open.any(1).nonzero().squeeze(1)

    @property
    def open_rows(self) -> Tensor:
        """Indices of the windows that some point still needs."""
        return self._open.any(0).nonzero().squeeze(1)

    def put(self, gradients: Gradients, count: int, tolerance: float) -> None:
        """Take the gradients [open points, open rows, ...] of `count` nodes for the pairs that are open.

        A pair has converged when its gap is small. It settles when its cells are smooth too: with few nodes the errors
        of cells may cancel in their sum, which the gap is all about.
        """
        where = (self.open_points[:, None], self.open_rows[None, :])
        wanted = self._open[where]
        cells, rough = (part * self._distance[self.open_rows] for part in gradients)
        self._cells[where] = torch.where(wanted[..., None], cells, self._cells[where])
        self._nodes[self._open] = count
        difference = (self._prediction - self._baseline)[where]
        least = torch.maximum(difference.abs(), self._floor[where])
        gap = (cells.sum(2) - difference).abs() / least
        self._gap[where] = torch.where(wanted, gap, self._gap[where])
        smooth = _size(rough) <= roughest(count, tolerance) * torch.maximum(_size(cells), least)
        self._converged = self._gap <= tolerance
        self._open[where] = wanted & ~(self._converged[where] & smooth)

    @property
    def all_settled(self) -> bool:
        """Whether no pair needs more nodes."""
        return not bool(self._open.any())

    def contributions(self) -> list[Contributions]:
        """One for each point."""
        return [self._contributions(p) for p in range(len(self._baseline))]

    def _contributions(self, p: int) -> Contributions:
        parts, neighbours = _parted(self._parted.of_cells(self._cells[p]))
        return Contributions(
            observed=_array(parts.observed),
            known=_array(parts.known),
            static=_array(parts.static),
            location=_array(parts.location.sum(1)),
            scale=_array(parts.scale.sum(1)),
            conformal=_array(parts.offsets.sum((1, 2))),
            neighbours=_array(neighbours),
            prediction=_array(self._prediction[p]),
            baseline_prediction=_array(self._baseline[p]),
            relative_gap=_array(self._gap[p]),
            converged=self._converged[p].cpu().numpy(),
            nodes=self._nodes[p].cpu().numpy(),
        )


def _parted(parts: Parts) -> tuple[Parts, Tensor]:
    """What the explained stock's own inputs contribute, and [N, M - 1] what each other stock's do in all."""
    if parts.location.dim() == 2:  # noqa: PLR2004 - [N, H]: there are no other stocks
        return parts, parts.location.new_zeros(len(parts.location), 0)
    groups = parts[:-1]
    others = torch.stack([part[:, 1:].flatten(1).unflatten(1, (part.shape[1] - 1, -1)).sum(2) for part in groups]).sum(
        0
    )
    observed, known, static, location, scale = (part[:, 0] for part in groups)
    return Parts(observed, known, static, location, scale, parts.offsets), others


def _size(cells: Tensor) -> Tensor:
    """[P, N] sum of the absolute values of all cells [P, N, width]."""
    return cells.abs().sum(2)


def _array(values: Tensor) -> NDArray[np.float64]:
    return values.cpu().numpy()
