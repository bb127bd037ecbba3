"""What a network learns from and is selected by: its loss, its batches, and how these are cut."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from predictor.networks import PanelForecasting, kind_named
from trainers.loop import BySamples, Cutting, Loss, ResidentSource
from trainers.stock.data import ROWS, Batch, History, Windows
from trainers.stock.days import ByPanels, Days, Gathering, PanelBatch
from trainers.stock.hiding import Hiding
from trainers.stock.placing import Inputting
from trainers.stock.ranking import PanelTask
from trainers.stock.recipe import Recipe
from trainers.stock.task import QuantileTask

BatchT = TypeVar("BatchT")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lesson(Generic[BatchT]):
    """All that the loop needs beside the network itself."""

    loss: Callable[[BatchT], Loss]
    judge: Callable[[BatchT], Loss]
    """The quantile loss, by which epochs are compared with each other and with the start."""
    train: ResidentSource[BatchT]
    selection: ResidentSource[BatchT]
    cutting: Cutting[BatchT]


def lesson_of(
    network: nn.Module, history: Inputting, train: Windows, selection: Windows, recipe: Recipe
) -> Lesson[Any]:
    """By whole days for a network that looks across stocks, by windows for others."""
    if isinstance(network, PanelForecasting):
        return by_days(network, history, train, selection, recipe)
    return by_windows(network, history, train, selection, recipe)


def batches_of(history: History, train: Windows, recipe: Recipe) -> int:
    """How many batches these windows make, as a lesson cuts them."""
    size = recipe.optimisation.batch_size
    if not kind_named(recipe.kind).is_panel_model:
        return ceil(len(train) / size)
    return ceil(len(np.unique(train.positions)) / _days(size, len(history.bars.symbols)))


def by_windows(
    network: nn.Module, history: Inputting, train: Windows, selection: Windows, recipe: Recipe
) -> Lesson[Batch]:
    """Windows of all stocks and days, shuffled."""
    settings, task = recipe.optimisation, QuantileTask(network, recipe.quantiles)
    return Lesson(
        loss=task.loss,
        judge=task.loss,
        train=_windows(
            Hiding(history, seed=settings.seed), train, settings.batch_size, seed=settings.seed, shuffle=True
        ),
        selection=_windows(history, selection, ROWS, seed=0, shuffle=False),
        cutting=BySamples(),
    )


def by_days(
    network: nn.Module, history: Inputting, train: Windows, selection: Windows, recipe: Recipe
) -> Lesson[PanelBatch]:
    """Whole days, shuffled; a batch has as many as come nearest to the recipe's number of windows, at least one."""
    settings, stocks, there = recipe.optimisation, len(history.bars.symbols), history.forecastable
    taught, days = Days(Hiding(history, seed=settings.seed), forecastable=there), Days(history, forecastable=there)
    task = PanelTask(
        network,
        levels=recipe.quantiles,
        spread=torch.from_numpy(recipe.target.spread),
        ranking_weight=settings.ranking_weight,
    )
    return Lesson(
        loss=task.loss,
        judge=task.quantile_loss,
        train=taught.source(np.unique(train.positions), days=_days(settings.batch_size, stocks), seed=settings.seed),
        selection=days.source(np.unique(selection.positions), days=_days(ROWS, stocks), shuffle=False),
        cutting=ByPanels(),
    )


def _days(windows: int, stocks: int) -> int:
    return max(1, round(windows / stocks))


def _windows(
    history: Gathering, windows: Windows, batch_size: int, *, seed: int, shuffle: bool
) -> ResidentSource[Batch]:
    def gather(index: torch.Tensor) -> Batch:
        rows = index.numpy()
        batch = history.gather(Windows(symbols=windows.symbols[rows], positions=windows.positions[rows]))
        return batch._replace(inputs=batch.inputs.for_learning())

    return ResidentSource(gather, samples=len(windows), batch_size=batch_size, seed=seed, shuffle=shuffle)
