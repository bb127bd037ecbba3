"""What a baseline is asked, and what it answers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.networks import Target
from predictor.windows import back_from
from trainers.stock.asking import joined
from trainers.stock.data import ROWS, History, Windows
from trainers.stock.splits import Part

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Baseline:
    """The forecasts of one baseline."""

    name: str
    forecasts: FloatArray
    """[N, H, Q]"""
    notes: tuple[str, ...] = ()
    """What a reader must know about them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """N windows to forecast, and what may be learnt from."""

    history: History
    """Inputs and labels."""
    train: Part
    """The part that fitted numbers may come from."""
    windows: Windows
    """[N] what to forecast."""
    levels: tuple[float, ...]
    """[Q]"""
    learnt: Windows = field(init=False)
    """The windows of the training part."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "learnt", self.history.windows(self.train))

    @property
    def target(self) -> Target:
        """What is forecast."""
        return self.history.pipeline.target

    @property
    def shape(self) -> tuple[int, int, int]:
        """N, H and Q."""
        return len(self.windows), len(self.target.horizons), len(self.levels)

    def learnt_at_most(self, count: int) -> Windows:
        """The training windows, or evenly spaced ones where there are more; bounds the time and memory of a fit."""
        return self.learnt.thinned(count)


def recent(history: History, windows: Windows, sessions: int) -> FloatArray:
    """[N, sessions] the target's daily series up to each window's day; NaN where unknown or before the first bar."""
    return back_from(history.daily, windows.symbols, windows.positions, sessions)


def in_blocks(windows: Windows, compute: Callable[[Windows], FloatArray]) -> FloatArray:
    """What is computed of windows, a bounded number of them at a time: [N, …] from a function of n windows."""
    parts = (torch.from_numpy(compute(block)) for block in _blocks(windows))
    return joined(parts, len(windows)).numpy()


def _blocks(windows: Windows) -> Iterator[Windows]:
    for k in range(0, len(windows), ROWS):
        rows = slice(k, k + ROWS)
        yield Windows(symbols=windows.symbols[rows], positions=windows.positions[rows])
