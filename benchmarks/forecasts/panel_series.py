"""A panel of daily bars from a file, and the series that tasks and rivals are made of. Legend: S stocks, D sessions."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
HORIZONS = (1, 5, 10, 20)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PanelSeries:
    """Daily bars; every array but the dates is [S, D], NaN where unknown. Closes are carried forward over gaps."""

    open: FloatArray
    high: FloatArray
    low: FloatArray
    close: FloatArray
    volume: FloatArray
    dates: NDArray[np.datetime64]

    @classmethod
    def read(cls, path: Path) -> "PanelSeries":
        """From an .npz with `ohlcv` [S, D, 5] and `dates` [D] as yyyy-mm-dd."""
        with np.load(path) as held:
            bars = np.moveaxis(held["ohlcv"].astype(np.float64), -1, 0)
            dates = held["dates"].astype("datetime64[D]")
        return cls(open=bars[0], high=bars[1], low=bars[2], close=carried(bars[3]), volume=bars[4], dates=dates)

    def first(self, stocks: int) -> "PanelSeries":
        """The first so many stocks."""
        return PanelSeries(
            open=self.open[:stocks],
            high=self.high[:stocks],
            low=self.low[:stocks],
            close=self.close[:stocks],
            volume=self.volume[:stocks],
            dates=self.dates,
        )

    @property
    def years(self) -> NDArray[np.int64]:
        """Of each session [D]."""
        return self.dates.astype("datetime64[Y]").astype(np.int64) + 1970

    @property
    def returns(self) -> FloatArray:
        """Log return from the session before."""
        return np.diff(np.log(self.close), axis=1, prepend=np.nan)

    @property
    def variance(self) -> FloatArray:
        """Parkinson's variance of the day (1980), floored, carried forward over gaps.

        The floor is the 1 % quantile of the first 250 sessions, or 1e-7: days without a range would have a log of -inf.
        """
        with np.errstate(invalid="ignore"):
            variance = np.log(self.high / self.low) ** 2 / (4 * np.log(2))
        variance[~np.isfinite(variance)] = np.nan
        floor = max(float(np.nanquantile(variance[:, :250], 0.01)), 1e-7)
        return carried(np.maximum(variance, floor))


def carried(values: FloatArray) -> FloatArray:
    """Each gap filled with the value before it; NaN before the first."""
    filled = values.copy()
    for t in range(1, values.shape[1]):
        gap = np.isnan(filled[:, t])
        filled[gap, t] = filled[gap, t - 1]
    return filled


def rolling(values: FloatArray, sessions: int) -> FloatArray:
    """Mean of the last so many sessions, the day's own included; NaN where fewer are there."""
    means = sliding_window_view(values, sessions, axis=1).mean(-1)
    return np.concatenate([np.full((len(values), sessions - 1), np.nan), means], axis=1)


def ahead(values: FloatArray, sessions: int) -> FloatArray:
    """Mean of the next so many sessions, the day's own left out; NaN where fewer are there."""
    means = rolling(values, sessions)[:, sessions:]
    return np.concatenate([means, np.full((len(values), sessions), np.nan)], axis=1)


def moved(values: FloatArray, sessions: int) -> FloatArray:
    """What stood so many sessions before; NaN before the first."""
    return np.concatenate([np.full((len(values), sessions), np.nan), values[:, :-sessions]], axis=1)


def later(values: FloatArray, sessions: int) -> FloatArray:
    """What stands so many sessions later; NaN after the last."""
    return moved(values[:, ::-1], sessions)[:, ::-1]


def across(values: FloatArray) -> FloatArray:
    """The mean of each day's stocks, for every stock."""
    known = np.isfinite(values)
    mean = np.where(known, values, 0).sum(0) / np.maximum(known.sum(0), 1)
    return np.broadcast_to(np.where(known.any(0), mean, np.nan), values.shape)
