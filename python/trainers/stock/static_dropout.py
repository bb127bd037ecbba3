"""Training windows that lack their static values now and then, so that a network learns what to do without them.

A share of the windows sees no static value at all, as of a symbol that nobody has heard of; and each variable is hidden
from predictor.arrays import BoolArray, FloatArray
from a share of its own, as of a symbol whose sector is new. Which windows these are follows from seed, symbol, session
and variable alone, so a training that goes on later sees what it would have seen.
"""

from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from trainers.stock.data import Batch, Windows
from trainers.stock.placing import TrainingHistory

SHARE: Final = 0.05
"""Of windows that see no static value, and again of windows that one variable is hidden from."""

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)


@final
class StaticDropout:
    """Gathers training windows of a history, some of them without static values."""

    def __init__(self, history: TrainingHistory, *, seed: int) -> None:
        features = history.pipeline.features
        self._history = history
        self._seed = seed
        self._groups = torch.tensor(features.static_groups, dtype=torch.int64)
        self._unknown = torch.from_numpy(features.statics.unknown)
        self._variables = len(features.statics.names)

    def gather(self, windows: Windows) -> Batch:
        """Inputs and targets of these windows."""
        batch = self._history.gather(windows)
        if self._variables == 0:
            return batch
        whole = batch.inputs.static
        self._unknown = self._unknown.to(whole.device)
        hidden = torch.from_numpy(self.hidden(windows))[:, self._groups]
        static = torch.where(hidden.to(whole.device), self._unknown, whole)
        return batch._replace(inputs=batch.inputs._replace(static=static))

    def hidden(self, windows: Windows) -> BoolArray:
        """[N, V] which variables each window does not see."""
        draws = np.stack([_uniform(self._seed, windows, k) for k in range(self._variables + 1)], axis=1)
        return (draws[:, :1] < SHARE) | (draws[:, 1:] < SHARE)


def _uniform(seed: int, windows: Windows, variable: int) -> FloatArray:
    """[N] numbers in [0, 1) that depend on the arguments alone."""
    mixed = _mixed(np.full(len(windows), seed, np.uint64))
    for part in (np.full(len(windows), variable), windows.symbols, windows.positions):
        mixed = _mixed(mixed + _ODD + part.astype(np.uint64))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): each bit of the input moves all of the result."""
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))
