"""The units in which forecasts are learnt: location and scale of each window and horizon, undone on the output.

Normalising by the window itself matters more than the network behind it: one model then serves calm and wild
stocks. (Reversible instance normalisation, Kim et al. 2022, with a fixed location and no learnt affine map.)
There are two kinds: `window` measures the window's own level and volatility, `fitted` (predictor.networks.econometric)
forecasts them as econometrics does, with numbers that were fitted on the training part.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np

from predictor.arrays import FloatArray
from predictor.bars import AdjustedBars
from predictor.canonical import Json, Record
from predictor.errors import ConfigurationError
from predictor.networks.target import Target

DailySeries = tuple[FloatArray, ...]
"""Daily series that a normaliser reads, [S, T] each; or windows of them, [N, W] each, oldest first. NaN = unknown."""


class WindowLevels(NamedTuple):
    """Location and scale of N windows in the target's unit, for H horizons or, with one column, for all of them."""

    location: FloatArray
    """[N, H or 1]"""
    scale: FloatArray
    """[N, H or 1] positive; NaN if a window holds no value."""


class Normaliser(Protocol):
    """How a window's levels follow from the daily series up to its last session."""

    @property
    def kind(self) -> str:
        """Its kind's name, as in artifacts: `window`, `fitted`."""
        ...

    @property
    def window(self) -> int:
        """Sessions (W) that it looks back over."""
        ...

    @property
    def floor(self) -> float:
        """The smallest scale, that of a window whose prices do not move."""
        ...

    @property
    def is_per_horizon(self) -> bool:
        """Whether horizons have levels of their own; else all of them share one location and one scale."""
        ...

    def series(self, target: Target, bars: AdjustedBars) -> DailySeries:
        """The daily series that it reads; the first decides how many values of a window are known."""
        ...

    def levels(self, windows: DailySeries) -> WindowLevels:
        """The levels [N, H or 1] of N windows, from their last W sessions of each series."""
        ...

    def stages(self, windows: DailySeries) -> Mapping[str, FloatArray]:
        """What is computed for N windows on the way to the levels, [N, ...] by name, to compare implementations by."""
        ...

    def settings(self) -> Mapping[str, Json]:
        """Every number that levels are computed with, as artifacts keep them beside the kind."""
        ...


@dataclass(frozen=True, slots=True)
class NormaliserKind:
    """A kind of normaliser: its name in artifacts, and how one is read back from its settings there."""

    name: str
    read: Callable[[Record, Target], Normaliser]
    """Raises ArtifactError if a setting is missing or of another type, ConfigurationError if they contradict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowNormaliser:
    """Exponentially weighted level and volatility of the target's daily series over one window.

    Weights fall by `decay` a session, newest first, by repeated multiplication; sums run oldest first; sessions
    without a value are left out of both sums. The scale is a day's: of returns the target's spread makes it that of a
    horizon.
    """

    window: int = 60
    """Sessions."""
    decay: float = 0.94
    """Weight of a session relative to the next, in (0, 1]; RiskMetrics' 0.94 for daily data; 1 weighs all alike."""
    centred: bool = False
    """False: location is 0 and scale the root mean square (returns). True: mean and standard deviation."""
    floor: float = 1e-4
    """Smallest scale: a flat window's volatility."""

    def __post_init__(self) -> None:
        if self.window < 2:  # noqa: PLR2004 - one value has no volatility
            raise ConfigurationError(f"normaliser window is {self.window} sessions, but must be at least 2")
        if not 0 < self.decay <= 1:
            raise ConfigurationError(f"normaliser decay is {self.decay:g}, but must be above 0 and at most 1")
        if not 0 < self.floor < 1:
            raise ConfigurationError(f"normaliser floor is {self.floor:g}, but must be between 0 and 1")

    @property
    def kind(self) -> str:
        """As `Normaliser.kind`."""
        return "window"

    @property
    def is_per_horizon(self) -> bool:
        """As `Normaliser.is_per_horizon`."""
        return False

    def series(self, target: Target, bars: AdjustedBars) -> DailySeries:
        """The target's own daily series."""
        return (target.daily(bars),)

    def levels(self, windows: DailySeries) -> WindowLevels:
        """As `Normaliser.levels`, [N, 1]; NaN if a window holds no value."""
        (series,) = windows
        values = np.ascontiguousarray(series[:, -self.window :].T)
        present = ~np.isnan(values)
        weights = self._weights()[:, None] * present
        total = ordered_sum(weights)
        known = np.where(present, values, 0.0)
        with np.errstate(all="ignore"):
            location = ordered_sum(weights * known) / total if self.centred else 0.0 * total / total
            deviation = known - location
            scale = np.sqrt(ordered_sum(weights * (deviation * deviation)) / total)
        return WindowLevels(location=location[:, None], scale=np.maximum(scale, self.floor)[:, None])

    def stages(self, windows: DailySeries) -> Mapping[str, FloatArray]:  # noqa: ARG002 - as the others'
        """As `Normaliser.stages`: there are none [N, ...] before the levels."""
        return {}

    def settings(self) -> Mapping[str, Json]:
        """As `Normaliser.settings`."""
        return asdict(self)

    def _weights(self) -> FloatArray:
        """[W] oldest first."""
        weights = np.ones(self.window)
        for k in range(1, self.window):
            weights[k] = weights[k - 1] * self.decay
        return weights[::-1]


def _read(record: Record, _target: Target) -> WindowNormaliser:
    return WindowNormaliser(
        window=record.integer("window"),
        decay=record.number("decay"),
        centred=record.flag("centred"),
        floor=record.number("floor"),
    )


WINDOW: Final = NormaliserKind("window", _read)


def ordered_sum(values: FloatArray) -> FloatArray:
    """Sum over the first axis of [W, ...], oldest first with one accumulator (a plain sum pairs its terms)."""
    return np.add.accumulate(values, axis=0)[-1]
