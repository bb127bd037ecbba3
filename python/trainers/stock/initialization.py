"""Initial weights: the highway by least squares, the head's bias by quantiles of the highway's residuals.

The highway's map stays fixed, because optimizer steps only add noise to an exact solution. The rest of the network
learns what a linear map cannot, and the highway's gate learns how far to trust the map.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from predictor.networks import GraphForecaster, Highway, QuantileHead
from trainers.loop import InitialWeights, take_weights
from trainers.stock.data import WindowBatch

PENALTIES: Final = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Ridge penalties per window, for inputs of variance about 1."""
FARTHEST: Final = 8.0
"""Bound of targets, in units of their window's volatility: a crash must not decide all weights."""
TRIED_ON: Final = 0.2
"""Share of the newest training windows used to choose the penalty; the final fit uses all windows."""

Batches = Callable[[], Iterable[WindowBatch]]


@torch.no_grad()
def initialize(network: nn.Module, batches: Batches, levels: tuple[float, ...]) -> None:
    """Fit the highway's map, if the network has one, and the bias of its head on training windows.

    The network is on the CPU. `batches` returns the training windows, oldest first, on every call.
    """
    highway = _solve_highway(network, batches)
    rest = [batch.target if highway is None else batch.target - highway.linear(batch.inputs) for batch in batches()]
    quantiles = np.nanquantile(torch.cat(rest).numpy(), levels, axis=0).T.astype(np.float32)
    for module in network.modules():
        if isinstance(module, QuantileHead):
            module.start_at(torch.from_numpy(quantiles))


@torch.no_grad()
def initialize_from(network: nn.Module, weights: Mapping[str, Tensor], batches: Batches) -> InitialWeights:
    """Copy weights into a new network and fit its highway again; a graph's edges are set later.

    The network is on the CPU. `batches` is as for `initialize`.

    Raises:
        WeightsMismatchError: weights do not fit; the message names all of them.
    """
    _solve_highway(network, batches)
    # What every training computes again: a graph's edges, or the highway.
    anew: tuple[str, ...] = ("neighbours", "weights")
    if not isinstance(network, GraphForecaster):
        anew = () if _find_highway(network) is None else ("highway.weight",)
    return take_weights(network, weights, new=anew, dropped=anew)


def _find_highway(network: nn.Module) -> Highway | None:
    highway = getattr(network, "highway", None)
    return highway if isinstance(highway, Highway) else None


def _solve_highway(network: nn.Module, batches: Batches) -> Highway | None:
    """Fit and freeze the network's highway, and return it; None without a highway."""
    highway = _find_highway(network)
    if highway is not None:
        highway.weight.copy_(_solve_least_squares(highway, batches))
        highway.weight.requires_grad = False
    return highway


class _NormalEquations(NamedTuple):
    """Normal equations of targets [N, H] on cells [N, C] and a constant, summed over windows; float64."""

    squares: Tensor
    """[C + 1, C + 1]"""
    products: Tensor
    """[C + 1, H]"""
    power: Tensor
    """[H] squares of the targets."""

    def plus(self, cells: Tensor, targets: Tensor) -> "_NormalEquations":
        """Add windows: cells [N, C] and targets [N, H]."""
        rows = torch.cat([cells, torch.ones_like(cells[:, :1])], dim=1)
        squares, products = self.squares + rows.T @ rows, self.products + rows.T @ targets
        return _NormalEquations(squares, products, self.power + targets.square().sum(0))

    def solved(self, penalty: float) -> Tensor:
        """[C + 1, H] weights of the ridge regression; the constant is not penalised."""
        ridge = torch.full((len(self.squares),), penalty, dtype=torch.float64) * self.squares[-1, -1]
        ridge[-1] = 0
        return torch.linalg.solve(self.squares + ridge.diag(), self.products)

    def error(self, weights: Tensor) -> float:
        """Sum of squared errors of weights [C + 1, H], over all horizons."""
        explained = (weights * (2 * self.products - self.squares @ weights)).sum(0)
        return float((self.power - explained).sum())


def _solve_least_squares(highway: Highway, batches: Batches) -> Tensor:
    """[H, C] ridge regression with the best penalty on the newest windows; 0 if none beats the mean.

    Windows with an unknown target are left out; the result is 0 if no window remains.
    """
    total = sum(int(_find_known(batch).sum()) for batch in batches())
    if total == 0:
        return torch.zeros_like(highway.weight)
    older, newer = _sum_equations(highway, batches, boundary=total - int(TRIED_ON * total))
    mean = torch.zeros_like(older.products)
    mean[-1] = older.products[-1] / older.squares[-1, -1]
    best = min(PENALTIES, key=lambda penalty: newer.error(older.solved(penalty)))
    if newer.error(mean) <= newer.error(older.solved(best)):
        return torch.zeros_like(highway.weight)
    equations = _NormalEquations(*(a + b for a, b in zip(older, newer, strict=True)))
    return equations.solved(best)[:-1].T.to(highway.weight.dtype)


def _sum_equations(highway: Highway, batches: Batches, *, boundary: int) -> tuple[_NormalEquations, _NormalEquations]:
    """Sums over the first `cut` windows, and over the rest."""
    horizons, cells = highway.weight.shape
    shapes = ((cells + 1, cells + 1), (cells + 1, horizons), (horizons,))
    empty = _NormalEquations(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))
    older, newer, count = empty, empty, 0
    for batch in batches():
        is_known = _find_known(batch)
        rows, targets = (
            highway.cells(batch.inputs)[is_known].double(),
            batch.target[is_known].double().clamp(-FARTHEST, FARTHEST),
        )
        first = max(0, min(len(rows), boundary - count))
        older, newer = older.plus(rows[:first], targets[:first]), newer.plus(rows[first:], targets[first:])
        count += len(rows)
    return older, newer


def _find_known(batch: WindowBatch) -> Tensor:
    """[N] whether all targets of a window are known."""
    return batch.target.isfinite().all(dim=1)
