"""Per-window location and scale: forecasts are learnt in units of the window's own volatility and undone here.

Normalising by the window itself matters more than the network behind it: one model then serves calm and wild
stocks. (Reversible instance normalisation, Kim et al. 2022, with a fixed location and no learnt affine map.)
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from predictor.errors import ConfigurationError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Normaliser:
    """Exponentially weighted level and volatility of a daily series over one window.

    Weights fall by `decay` a session, newest first, by repeated multiplication; sums run oldest first; sessions
    without a value are left out of both sums.
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

    def measure(self, daily: FloatArray, sessions: int) -> tuple[FloatArray, FloatArray]:
        """Location and scale of the windows that end at each of the last `sessions`; NaN if a window holds no value.

        Args:
            daily: [S, T], NaN where unknown. Sessions before the first count as unknown.
            sessions: how many of the last sessions to measure, 1 to T.

        Returns:
            Location and scale, each [S, sessions].
        """
        before = np.full((daily.shape[0], self.window - 1), np.nan)
        windows = sliding_window_view(np.concatenate([before, daily], axis=1), self.window, axis=1)[:, -sessions:]
        location, scale = np.empty((2, len(daily), sessions))
        for s, t in product(range(0, len(daily), _SYMBOLS), range(0, sessions, _SESSIONS)):
            block = slice(s, s + _SYMBOLS), slice(t, t + _SESSIONS)
            location[block], scale[block] = self._measure(windows[block])
        return location, scale

    def _measure(self, windows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Location and scale [S, B] of windows [S, B, W]."""
        values = np.ascontiguousarray(np.moveaxis(windows, -1, 0))
        present = ~np.isnan(values)
        weights = self._weights()[:, None, None] * present
        total = _ordered_sum(weights)
        known = np.where(present, values, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            location = _ordered_sum(weights * known) / total if self.centred else 0.0 * total / total
            deviation = known - location
            scale = np.sqrt(_ordered_sum(weights * (deviation * deviation)) / total)
        return location, np.maximum(scale, self.floor)

    def _weights(self) -> FloatArray:
        """[W] oldest first."""
        weights = np.ones(self.window)
        for k in range(1, self.window):
            weights[k] = weights[k - 1] * self.decay
        return weights[::-1]


_SYMBOLS, _SESSIONS = 16, 256
"""Measured at once; bounds the memory of a long history."""


def _ordered_sum(values: FloatArray) -> FloatArray:
    """Sum over the first axis, oldest first with one accumulator (a plain sum pairs its terms)."""
    return np.add.accumulate(values, axis=0)[-1]
