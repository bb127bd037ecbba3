"""Normalisers: location and scale of each window and horizon, applied to targets and reverted on the output.

Normalising each window matters more than the network: it lets one model serve calm and volatile stocks. (Reversible
instance normalisation, Kim et al. 2022, with a fixed location and no learnt affine map.) The kind `window` measures
the window's level and volatility; `fitted` (predictor.networks.econometric) forecasts them with coefficients fitted on
the training split.
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
"""Daily series of a normaliser, [S, T] each, or windows of them, [N, W] each, oldest first. NaN = unknown."""


class WindowLevels(NamedTuple):
    """Location and scale of N windows in the target's unit, for each of H horizons or in one column for all."""

    location: FloatArray
    """[N, H or 1]"""
    scale: FloatArray
    """[N, H or 1] positive; NaN for a window without values."""


class Normaliser(Protocol):
    """Computes a window's levels from the daily series up to its last session."""

    @property
    def kind(self) -> str:
        """Name of the kind in artifacts: `window` or `fitted`."""
        ...

    @property
    def window(self) -> int:
        """Number of sessions that it reads (W)."""
        ...

    @property
    def floor(self) -> float:
        """The smallest scale, for windows with constant prices."""
        ...

    @property
    def is_per_horizon(self) -> bool:
        """Whether each horizon has its own levels; otherwise all share one location and scale."""
        ...

    def series(self, target: Target, bars: AdjustedBars) -> DailySeries:
        """The daily series that it reads; the first determines the number of known values of a window."""
        ...

    def compute_levels(self, windows: DailySeries) -> WindowLevels:
        """Levels [N, H or 1] of N windows, from the last W sessions of each series."""
        ...

    def stages(self, windows: DailySeries) -> Mapping[str, FloatArray]:
        """Intermediate results for N windows, [N, ...] by name, to compare implementations."""
        ...

    def settings(self) -> Mapping[str, Json]:
        """All settings for an artifact, without the kind."""
        ...


@dataclass(frozen=True, slots=True)
class NormaliserKind:
    """A kind of normaliser: its name in artifacts, and the reader of its settings."""

    name: str
    read: Callable[[Record, Target], Normaliser]
    """Raises ArtifactError if a setting is missing or of another type, ConfigurationError if they contradict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowNormaliser:
    """Exponentially weighted level and volatility of the target's daily series over one window.

    Weights are powers of `decay` by repeated multiplication, 1 for the newest session. Sums run from the oldest session
    and skip sessions without a value. The scale is daily; for returns, the target's spread scales it to a horizon.
    """

    window: int = 60
    """Sessions."""
    decay: float = 0.94
    """Weight of a session relative to the next, in (0, 1]; 0.94 as in RiskMetrics; 1 for equal weights."""
    centred: bool = False
    """False: location is 0 and scale the root mean square (returns). True: mean and standard deviation."""
    floor: float = 1e-4
    """Smallest scale, for constant windows."""

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
        """The target's daily series."""
        return (target.daily(bars),)

    def compute_levels(self, windows: DailySeries) -> WindowLevels:
        """As `Normaliser.compute_levels`, [N, 1]; NaN for a window without values."""
        (series,) = windows
        values = np.ascontiguousarray(series[:, -self.window :].T)
        present = ~np.isnan(values)
        decayed = np.ones(self.window)
        for k in range(1, self.window):
            decayed[k] = decayed[k - 1] * self.decay
        weights = decayed[::-1, None] * present  # oldest first
        total = sum_in_order(weights)
        known = np.where(present, values, 0.0)
        with np.errstate(all="ignore"):
            location = sum_in_order(weights * known) / total if self.centred else 0.0 * total / total
            deviation = known - location
            scale = np.sqrt(sum_in_order(weights * (deviation * deviation)) / total)
        return WindowLevels(location=location[:, None], scale=np.maximum(scale, self.floor)[:, None])

    def stages(self, windows: DailySeries) -> Mapping[str, FloatArray]:  # noqa: ARG002 - the signature of the protocol
        """As `Normaliser.stages`; there are none."""
        return {}

    def settings(self) -> Mapping[str, Json]:
        """As `Normaliser.settings`."""
        return asdict(self)


def _read(record: Record, _target: Target) -> WindowNormaliser:
    return WindowNormaliser(
        window=record.integer("window"),
        decay=record.number("decay"),
        centred=record.flag("centred"),
        floor=record.number("floor"),
    )


WINDOW: Final = NormaliserKind("window", _read)


def sum_in_order(values: FloatArray) -> FloatArray:
    """Sum over the first axis of [W, ...], from the oldest with one accumulator; `np.sum` adds pairwise."""
    return np.add.accumulate(values, axis=0)[-1]
