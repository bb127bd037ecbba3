"""Losses and batches of the training of stock networks."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Generic, NamedTuple, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from predictor.arrays import BoolArray
from predictor.networks import GraphForecaster, PanelOutput, compute_pinball_loss, describe_fault, get_kind
from trainers.loop import BatchSplitter, ContractError, Loss, ResidentSource, SampleSplitter
from trainers.stock.data import (
    WINDOWS_PER_BATCH,
    History,
    PanelBatch,
    PanelGatherer,
    PanelSplitter,
    TrainingHistory,
    TrainingWindows,
    WindowBatch,
    WindowGatherer,
)
from trainers.stock.recipe import StockRecipe

TINY = 1e-12
"""Keeps a correlation finite if all scores or outcomes of a day are equal."""
SHARE: Final = 0.05
"""Share of windows without any static value, and share of windows that each variable is hidden from."""

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)

BatchT = TypeVar("BatchT")


class QuantileTask:
    """Pinball loss in units of each window's volatility, which gives all stocks and horizons equal weight."""

    def __init__(self, network: nn.Module, levels: tuple[float, ...]) -> None:
        self._network = network
        self._levels = torch.tensor(levels)

    def loss(self, batch: WindowBatch) -> Loss:
        """Mean over the known targets of a batch."""
        self._levels = _move_to_device_of(batch.target, self._levels)
        is_known, count = _mask_known(batch.target)
        quantiles: Tensor = self._network(batch.inputs)
        return Loss(mean=_average_pinball(quantiles, batch.target, self._levels, is_known, count), count=count)


class Ranking(NamedTuple):
    """Ranking loss of P panels at H horizons."""

    loss: Tensor
    """[P, H] 1 minus the correlation of scores and outcomes' ranks, between 0 and 2."""
    known: Tensor
    """[P, H] stocks whose outcome is known."""

    def mean(self) -> Tensor:
        """Scalar mean over days and horizons, weighted by known outcomes."""
        return (self.loss * self.known).sum() / self.known.sum().clamp(min=1)


def compute_ranking_loss(scores: Tensor, outcomes: Tensor) -> Ranking:
    """One minus the information coefficient of each day's cross-section.

    The coefficient is Pearson's correlation of the scores with the outcomes' ranks (Qlib's CSRankNorm label), so
    outliers of outcomes and the scale of scores do not matter. A day with fewer than two known outcomes has a loss of
    1 without a gradient.

    Args:
        scores: [P, S, H]
        outcomes: [P, S, H] in any unit, NaN where unknown; ties are ranked in their given order.
    """
    is_known = torch.isfinite(outcomes)
    count = is_known.sum(1, keepdim=True)
    order = torch.where(is_known, outcomes, torch.inf).argsort(dim=1, stable=True).argsort(dim=1)
    ranks = _subtract_means(order.to(scores.dtype), is_known, count)
    ours = _subtract_means(scores, is_known, count)
    spread = (ours.square().sum(1) * ranks.square().sum(1) + TINY).sqrt()
    return Ranking(loss=1 - (ours * ranks).sum(1) / spread, known=count.squeeze(1))


def _subtract_means(values: Tensor, is_known: Tensor, count: Tensor) -> Tensor:
    """Deviations from the day's mean of known values, 0 where unknown."""
    mean = (values * is_known).sum(1, keepdim=True) / count.clamp(min=1)
    return (values - mean) * is_known


@final
class PanelTask:
    """Pinball loss in units of each window's volatility plus a weighted ranking loss, both over known targets."""

    def __init__(
        self, network: nn.Module, *, levels: tuple[float, ...], spread: Tensor, ranking_weight: float = 0.1
    ) -> None:
        """Bind the task to a network.

        Args:
            network: called with inputs, nodes and panels; returns a `PanelOutput`.
            levels: of its quantiles (Q).
            spread: [H] growth of the target's scale with the horizon, to rank outcomes in the target's unit.
            ranking_weight: weight of the ranking loss, the only loss of the scores.

        Raises:
            ContractError: the weight is not above 0.
        """
        if not ranking_weight > 0:
            raise ContractError(f"the ranking weight is {ranking_weight}; it must be above 0, or scores learn nothing")
        self._network = network
        self._levels = torch.tensor(levels)
        self._spread = spread.to(torch.float32)
        self._weight = ranking_weight

    def loss(self, batch: PanelBatch) -> Loss:
        """Mean over the known targets of the batch, with both losses as parts.

        Raises:
            ContractError: the network's output is not a `PanelOutput` of the batch's sizes.
        """
        is_known, count = _mask_known(batch.target)
        output = self._output(batch)
        pinball = _average_pinball(output.quantiles, batch.target, self._levels, is_known, count)
        location, scale = batch.inputs.location.float(), batch.inputs.scale.float()
        self._spread = _move_to_device_of(batch.target, self._spread)
        outcomes = _reshape_by_day(location + scale * self._spread * batch.target, batch.panels)
        ranking = compute_ranking_loss(_reshape_by_day(output.scores.float(), batch.panels), outcomes).mean()
        parts = {"pinball": pinball, "ranking": ranking}
        return Loss(mean=pinball + self._weight * ranking, count=count, parts=parts)

    def quantile_loss(self, batch: PanelBatch) -> Loss:
        """The pinball loss without the ranking loss.

        Raises:
            ContractError: as `loss`.
        """
        is_known, count = _mask_known(batch.target)
        quantiles = self._output(batch).quantiles
        return Loss(mean=_average_pinball(quantiles, batch.target, self._levels, is_known, count), count=count)

    def _output(self, batch: PanelBatch) -> PanelOutput:
        self._levels = _move_to_device_of(batch.target, self._levels)
        output: object = self._network(batch.inputs, batch.nodes, batch.panels)
        rows, horizons = batch.target.shape
        fault = describe_fault(output, rows=rows, horizons=horizons, quantiles=len(self._levels))
        if fault is not None or not isinstance(output, PanelOutput):
            raise ContractError(
                f"{fault}; the batch has {rows} rows, {horizons} horizons and {len(self._levels)} levels"
            )
        return output


def _move_to_device_of(other: Tensor, constant: Tensor) -> Tensor:
    """Move a constant to another tensor's device, outside inference mode.

    The first selection loss runs in inference mode, and no backward pass accepts a tensor that was created there.
    """
    if constant.device == other.device:
        return constant
    with torch.inference_mode(mode=False):
        return constant.to(other.device)


def _mask_known(targets: Tensor) -> tuple[Tensor, int]:
    """Mask and number of known targets; call it before the forward, because it waits for a GPU."""
    is_known = torch.isfinite(targets)
    return is_known, int(is_known.sum())


def _average_pinball(quantiles: Tensor, targets: Tensor, levels: Tensor, is_known: Tensor, count: int) -> Tensor:
    """Mean pinball loss over the known targets and the levels."""
    losses = compute_pinball_loss(quantiles.float(), torch.where(is_known, targets, 0.0), levels).mean(-1)
    return (losses * is_known).sum() / max(count, 1)


def _reshape_by_day(values: Tensor, panels: int) -> Tensor:
    """Reshape rows [P * S, H] to [P, S, H]."""
    return values.unflatten(0, (panels, -1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StockObjective(Generic[BatchT]):
    """Losses and batches of a training run."""

    loss: Callable[[BatchT], Loss]
    selection_loss: Callable[[BatchT], Loss]
    """The quantile loss that early stopping compares."""
    train: ResidentSource[BatchT]
    selection: ResidentSource[BatchT]
    splitter: BatchSplitter[BatchT]


def choose_objective(
    network: nn.Module,
    history: TrainingHistory,
    train: TrainingWindows,
    selection: TrainingWindows,
    recipe: StockRecipe,
) -> StockObjective[Any]:
    """Batches of whole days for a panel network, of windows for others."""
    if isinstance(network, GraphForecaster):
        return build_day_objective(network, history, train, selection, recipe)
    return build_window_objective(network, history, train, selection, recipe)


def count_batches(history: History, train: TrainingWindows, recipe: StockRecipe) -> int:
    """Number of batches per epoch."""
    size = recipe.optimisation.batch_size
    if not get_kind(recipe.kind).is_panel_model:
        return ceil(len(train) / size)
    return ceil(len(np.unique(train.positions)) / _count_days_per_batch(size, len(history.bars.symbols)))


def build_window_objective(
    network: nn.Module,
    history: TrainingHistory,
    train: TrainingWindows,
    selection: TrainingWindows,
    recipe: StockRecipe,
) -> StockObjective[WindowBatch]:
    """Windows of all stocks and days, shuffled."""
    settings, task = recipe.optimisation, QuantileTask(network, recipe.quantiles)
    return StockObjective(
        loss=task.loss,
        selection_loss=task.loss,
        train=_batch_windows(
            StaticDropout(history, seed=settings.seed).gather,
            train,
            settings.batch_size,
            seed=settings.seed,
            shuffle=True,
        ),
        selection=_batch_windows(history.gather, selection, WINDOWS_PER_BATCH, seed=0, shuffle=False),
        splitter=SampleSplitter(),
    )


def build_day_objective(
    network: nn.Module,
    history: TrainingHistory,
    train: TrainingWindows,
    selection: TrainingWindows,
    recipe: StockRecipe,
) -> StockObjective[PanelBatch]:
    """Whole days, shuffled; a batch has the number of days closest to the recipe's number of windows, at least one."""
    settings, stocks, forecastable = recipe.optimisation, len(history.bars.symbols), history.forecastable
    training_panels = PanelGatherer(StaticDropout(history, seed=settings.seed).gather, forecastable=forecastable)
    selection_panels = PanelGatherer(history.gather, forecastable=forecastable)
    task = PanelTask(
        network,
        levels=recipe.quantiles,
        spread=torch.from_numpy(recipe.target.spread),
        ranking_weight=settings.ranking_weight,
    )
    return StockObjective(
        loss=task.loss,
        selection_loss=task.quantile_loss,
        train=training_panels.source(
            np.unique(train.positions),
            days_per_batch=_count_days_per_batch(settings.batch_size, stocks),
            seed=settings.seed,
        ),
        selection=selection_panels.source(
            np.unique(selection.positions),
            days_per_batch=_count_days_per_batch(WINDOWS_PER_BATCH, stocks),
            shuffle=False,
        ),
        splitter=PanelSplitter(),
    )


def _count_days_per_batch(windows: int, stocks: int) -> int:
    return max(1, round(windows / stocks))


def _batch_windows(
    gather_windows: WindowGatherer, windows: TrainingWindows, batch_size: int, *, seed: int, shuffle: bool
) -> ResidentSource[WindowBatch]:
    def gather(index: torch.Tensor) -> WindowBatch:
        rows = index.numpy()
        batch = gather_windows(TrainingWindows(symbols=windows.symbols[rows], positions=windows.positions[rows]))
        return batch._replace(inputs=batch.inputs.as_float32())

    return ResidentSource(gather, samples=len(windows), batch_size=batch_size, seed=seed, shuffle=shuffle)


@final
class StaticDropout:
    """Hides static values of some training windows, so that a network learns to forecast without them.

    A share of windows has no static value, as for an unknown symbol, and each variable is hidden from another share, as
    for a symbol of a new sector. The choice depends only on seed, symbol, session and variable, so a resumed training
    repeats it.
    """

    def __init__(self, history: TrainingHistory, *, seed: int) -> None:
        features = history.pipeline.features
        self._history = history
        self._seed = seed
        self._groups = torch.tensor(features.static_groups, dtype=torch.int64)
        self._unknown = torch.from_numpy(features.statics.unknown)
        self._variables = len(features.statics.names)

    def gather(self, windows: TrainingWindows) -> WindowBatch:
        """Inputs and targets of these windows."""
        batch = self._history.gather(windows)
        if self._variables == 0:
            return batch
        static_inputs = batch.inputs.static
        self._unknown = _move_to_device_of(static_inputs, self._unknown)
        hidden = torch.from_numpy(self.hidden(windows))[:, self._groups]
        static = torch.where(hidden.to(static_inputs.device), self._unknown, static_inputs)
        return batch._replace(inputs=batch.inputs._replace(static=static))

    def hidden(self, windows: TrainingWindows) -> BoolArray:
        """[N, V] whether a variable is hidden from a window."""
        draws = np.empty((len(windows), self._variables + 1))
        for k in range(self._variables + 1):  # numbers in [0, 1), a hash of seed, variable, symbol and session
            mixed = _mix_bits(np.full(len(windows), self._seed, np.uint64))
            for part in (np.full(len(windows), k), windows.symbols, windows.positions):
                mixed = _mix_bits(mixed + _ODD + part.astype(np.uint64))
            draws[:, k] = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return (draws[:, :1] < SHARE) | (draws[:, 1:] < SHARE)


def _mix_bits(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))
