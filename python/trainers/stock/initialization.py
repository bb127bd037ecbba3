"""Where a network starts: its highway at least squares, its head at the quantiles of what the highway leaves.

The highway's map stays what it is: steps of an optimizer only add noise to a solution that is exact. The rest of the
network learns what no linear map knows, and the highway's gate how far to trust it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from predictor.networks import Highway, PanelForecastNetwork, QuantileHead
from trainers.loop import InitialWeights, take_weights
from trainers.stock.data import WindowBatch

PENALTIES: Final = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Of the ridge regression, a window, for inputs of variance about 1."""
FARTHEST: Final = 8.0
"""Targets beyond so many units of their window's volatility count as that: a crash must not decide all weights."""
TRIED_ON: Final = 0.2
"""Share of the training windows, the newest, on which a penalty is chosen; then all of them are used."""

Batches = Callable[[], Iterable[WindowBatch]]


@torch.no_grad()
def initialize(network: nn.Module, batches: Batches, levels: tuple[float, ...]) -> None:
    """Set a fresh network's highway map for good, if it has one, and the bias of its head, from training windows.

    Args:
        network: on the CPU; everything else stays as it is.
        batches: gives the training windows by date, oldest first, as often as it is asked.
        levels: [Q] of the head.
    """
    highway = _solved_highway(network, batches)
    rest = [batch.target if highway is None else batch.target - highway.linear(batch.inputs) for batch in batches()]
    quantiles = np.nanquantile(torch.cat(rest).numpy(), levels, axis=0).T.astype(np.float32)
    for module in network.modules():
        if isinstance(module, QuantileHead):
            module.start_at(torch.from_numpy(quantiles))


@torch.no_grad()
def initialize_from(network: nn.Module, weights: Mapping[str, Tensor], batches: Batches) -> InitialWeights:
    """Fill a fresh network with another's weights; its highway is solved again, and its graph gets its edges later.

    Args:
        network: of the same kind and sizes, on the CPU.
        weights: by name, in the network's shapes.
        batches: gives the training windows by date, oldest first, as often as it is asked.

    Raises:
        WeightsMismatchError: naming every weight that does not fit.
    """
    _solved_highway(network, batches)
    anew = _anew(network)
    return take_weights(network, weights, new=anew, dropped=anew)


def _anew(network: nn.Module) -> tuple[str, ...]:
    """What each training determines for itself: the highway from its windows, the edges from its stocks."""
    if isinstance(network, PanelForecastNetwork):
        return ("neighbours", "weights")
    return () if _highway_of(network) is None else ("highway.weight",)


def _highway_of(network: nn.Module) -> Highway | None:
    """None where it has none."""
    highway = getattr(network, "highway", None)
    return highway if isinstance(highway, Highway) else None


def _solved_highway(network: nn.Module, batches: Batches) -> Highway | None:
    """The network's highway, its map set for good; None where it has none."""
    highway = _highway_of(network)
    if highway is not None:
        highway.weight.copy_(_least_squares(highway, batches))
        highway.weight.requires_grad = False
    return highway


class _NormalEquations(NamedTuple):
    """The normal equations of targets [N, H] on cells [N, C] and a constant, summed over windows; float64."""

    squares: Tensor
    """[C + 1, C + 1]"""
    products: Tensor
    """[C + 1, H]"""
    power: Tensor
    """[H] squares of the targets."""

    def plus(self, cells: Tensor, targets: Tensor) -> "_NormalEquations":
        """With more windows: cells [N, C] and targets [N, H]."""
        rows = torch.cat([cells, torch.ones_like(cells[:, :1])], dim=1)
        squares, products = self.squares + rows.T @ rows, self.products + rows.T @ targets
        return _NormalEquations(squares, products, self.power + targets.square().sum(0))

    def solved(self, penalty: float) -> Tensor:
        """[C + 1, H] weights of the ridge regression; the constant is free."""
        ridge = torch.full((len(self.squares),), penalty, dtype=torch.float64) * self.squares[-1, -1]
        ridge[-1] = 0
        return torch.linalg.solve(self.squares + ridge.diag(), self.products)

    def error(self, weights: Tensor) -> float:
        """Sum of squared errors of weights [C + 1, H], over all horizons."""
        explained = (weights * (2 * self.products - self.squares @ weights)).sum(0)
        return float((self.power - explained).sum())


def _least_squares(highway: Highway, batches: Batches) -> Tensor:
    """[H, C] the ridge regression whose penalty does best on the newest windows; 0 where none beats the mean.

    Windows with an unknown target are left out; without any other it is 0 too.
    """
    total = sum(int(_known(batch).sum()) for batch in batches())
    if total == 0:
        return torch.zeros_like(highway.weight)
    older, newer = _summed(highway, batches, cut=total - int(TRIED_ON * total))
    mean = torch.zeros_like(older.products)
    mean[-1] = older.products[-1] / older.squares[-1, -1]
    best = min(PENALTIES, key=lambda penalty: newer.error(older.solved(penalty)))
    if newer.error(mean) <= newer.error(older.solved(best)):
        return torch.zeros_like(highway.weight)
    whole = _NormalEquations(*(a + b for a, b in zip(older, newer, strict=True)))
    return whole.solved(best)[:-1].T.to(highway.weight.dtype)


def _summed(highway: Highway, batches: Batches, *, cut: int) -> tuple[_NormalEquations, _NormalEquations]:
    """The sums of the first `cut` windows and of those after them."""
    horizons, cells = highway.weight.shape
    empty = _NormalEquations(*(torch.zeros(shape, dtype=torch.float64) for shape in _shapes(cells + 1, horizons)))
    older, newer, seen = empty, empty, 0
    for batch in batches():
        known = _known(batch)
        rows, targets = (
            highway.cells(batch.inputs)[known].double(),
            batch.target[known].double().clamp(-FARTHEST, FARTHEST),
        )
        first = max(0, min(len(rows), cut - seen))
        older, newer = older.plus(rows[:first], targets[:first]), newer.plus(rows[first:], targets[first:])
        seen += len(rows)
    return older, newer


def _shapes(cells: int, horizons: int) -> tuple[tuple[int, ...], ...]:
    return (cells, cells), (cells, horizons), (horizons,)


def _known(batch: WindowBatch) -> Tensor:
    """[N] windows all of whose targets are known."""
    return batch.target.isfinite().all(dim=1)
