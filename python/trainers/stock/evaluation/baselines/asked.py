"""What baselines are asked about."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from trainers.stock.asking import joined
from trainers.stock.data import ROWS, History, Windows
from trainers.stock.evaluation.units import Units, units_of

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """N windows with their units, which are measured once for all who need them: that takes longer than most else."""

    windows: Windows
    units: Units

    @classmethod
    def of(cls, history: History, windows: Windows) -> Self:
        """These windows of a history."""
        return cls(windows=windows, units=units_of(history, windows))

    def __len__(self) -> int:
        return len(self.windows)

    def in_blocks(self, compute: "Callable[[Asked], FloatArray]") -> FloatArray:
        """[N, …] what is computed of so many windows, a bounded number of them at a time."""
        parts = (compute(Asked(windows=few, units=self.units.rows(rows))) for rows, few in _blocks(self.windows))
        return joined(map(torch.from_numpy, parts), len(self)).numpy()


def in_blocks(windows: Windows, compute: Callable[[Windows], FloatArray]) -> FloatArray:
    """The same of windows whose units nobody needs."""
    return joined((torch.from_numpy(compute(few)) for _, few in _blocks(windows)), len(windows)).numpy()


def _blocks(windows: Windows) -> Iterator[tuple[slice, Windows]]:
    for k in range(0, len(windows), ROWS):
        rows = slice(k, k + ROWS)
        yield rows, Windows(symbols=windows.symbols[rows], positions=windows.positions[rows])
