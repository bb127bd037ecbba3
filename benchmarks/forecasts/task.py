"""A forecasting task: the series, splits and windows of all systems. It needs only numpy, because peers import it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IndexArray = NDArray[np.int64]

LEVELS: Final = (0.1, 0.5, 0.9)
"""Quantile levels of all systems."""
SPLITS: Final = ("train", "validation", "test")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """N windows in chronological order, with all series of a decision adjacent.

    Legend: E steps of the encoder, H steps of the horizon, F observed, K known, C static covariates.
    """

    series: IndexArray
    """[N] index of the series."""
    decisions: IndexArray
    """[N] last step that a forecaster may read."""
    past: FloatArray
    """[N, E] the target up to the decision."""
    future: FloatArray
    """[N, H] the target after it."""
    observed: FloatArray
    """[N, E, F]"""
    known: FloatArray
    """[N, E + H, K]"""
    static: FloatArray
    """[N, C]"""

    def __len__(self) -> int:
        return len(self.series)

    def batches(self, size: int) -> Iterator["Windows"]:
        """All windows in order, `size` at a time."""
        for start in range(0, len(self), size):
            rows = slice(start, start + size)
            yield Windows(
                series=self.series[rows],
                decisions=self.decisions[rows],
                past=self.past[rows],
                future=self.future[rows],
                observed=self.observed[rows],
                known=self.known[rows],
                static=self.static[rows],
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Series on one time axis. Every series and observed covariate is standardised by its training part.

    Legend: S series, T steps, F observed, K known, C static covariates.
    """

    name: str
    target: FloatArray
    """[S, T]"""
    observed: FloatArray
    """[S, T, F]"""
    known: FloatArray
    """[S, T, K] calendar, about -0.5 to 0.5."""
    static: FloatArray
    """[S, C]"""
    center: NDArray[np.float64]
    """[S] subtracted from the target before the division by `unit`."""
    unit: NDArray[np.float64]
    """[S]"""
    ranges: NDArray[np.float64]
    """[S, T] daily range volatility, which all systems get as target or covariate; [S, 0] if unknown."""
    starts: tuple[int, int, int]
    """First step of training, validation and test; each split ends where the next begins, the last at T."""
    encoder: int = 60
    """Steps that a forecaster reads (E)."""
    horizon: int = 20
    """Steps that a forecaster predicts (H)."""

    @property
    def learnt(self) -> int:
        """End of the training part; training must not use later steps."""
        return self.starts[1]

    @property
    def seen(self) -> int:
        """End of the validation part; no fitted number may use later steps."""
        return self.starts[2]

    def windows(self, split: str) -> Windows:
        """The windows whose H targets all lie inside a split; encoders may reach back over its start.

        Raises:
            ValueError: the split has none.
        """
        part = SPLITS.index(split)
        found = self.between(self.starts[part], (*self.starts, self.target.shape[1])[part + 1])
        if not len(found):
            raise ValueError(
                f"{self.name}: split {split!r} has no window: a window needs {self.encoder} steps before and "
                f"{self.horizon} steps inside it; use longer series, or a smaller encoder and horizon"
            )
        return found

    def between(self, first: int, stop: int) -> Windows:
        """The windows whose H targets all lie in [first, stop)."""
        decisions = np.arange(max(self.encoder - 1, first - 1), stop - self.horizon)
        count = self.target.shape[0]
        return self._gathered(np.tile(np.arange(count), len(decisions)), np.repeat(decisions, count))

    def _gathered(self, series: IndexArray, decisions: IndexArray) -> Windows:
        row = series[:, None]
        past = decisions[:, None] + np.arange(1 - self.encoder, 1)
        future = decisions[:, None] + np.arange(1, self.horizon + 1)
        return Windows(
            series=series,
            decisions=decisions,
            past=self.target[row, past],
            future=self.target[row, future],
            observed=self.observed[row, past],
            known=self.known[row, np.concatenate([past, future], axis=1)],
            static=self.static[series],
        )

    def save(self, path: Path) -> None:
        """Write the task to an .npz file, for systems in other environments."""
        np.savez_compressed(
            path,
            name=np.array(self.name),
            target=self.target,
            observed=self.observed,
            known=self.known,
            static=self.static,
            center=self.center,
            unit=self.unit,
            ranges=self.ranges,
            sizes=np.array([*self.starts, self.encoder, self.horizon]),
        )

    @classmethod
    def load(cls, path: Path) -> "Task":
        """Read what `save` wrote."""
        with np.load(path) as kept:
            first, second, third, encoder, horizon = (int(size) for size in kept["sizes"])
            return cls(
                name=str(kept["name"]),
                target=kept["target"],
                observed=kept["observed"],
                known=kept["known"],
                static=kept["static"],
                center=kept["center"],
                unit=kept["unit"],
                ranges=kept["ranges"],
                starts=(first, second, third),
                encoder=encoder,
                horizon=horizon,
            )


def standardised(values: NDArray[np.float64], learnt: int) -> NDArray[np.float64]:
    """Standardise values [T] by mean and standard deviation of the first `learnt` values."""
    center, unit = center_and_unit(values, learnt)
    return (values - center) / unit


def center_and_unit(values: NDArray[np.float64], learnt: int) -> tuple[float, float]:
    """Mean and standard deviation of the first `learnt` values."""
    part = values[:learnt]
    return float(part.mean()), float(part.std() + 1e-12)
