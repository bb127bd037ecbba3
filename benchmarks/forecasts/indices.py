"""The tasks `ret` and `vol`: daily S&P 500 and NASDAQ composite, 1999 to 2018, from the package `arch`."""

from importlib import import_module
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.forecasts.task import Task, center_and_unit, standardised
from predictor.bars import BarPanel

Series = NDArray[np.float64]

TASKS: Final = ("ret", "vol")
INDICES: Final = ("sp500", "nasdaq")
TRAIN_ENDS: Final = "2013-12-31"
VALIDATION_ENDS: Final = "2015-12-31"
MIN_RANGE: Final = 1e-4
VOLUME_DAYS: Final = 20


def index_task(name: str) -> Task:
    """Daily log returns (`ret`) or the log of Parkinson's range volatility (`vol`) of both indices.

    Observed covariates are the other of the two quantities, the gap from yesterday's close to today's open, and the
    volume relative to its mean over 20 days. Known covariates are day of week and day of year.
    """
    frames = [_bars(index) for index in INDICES]
    dates = pd.DatetimeIndex(frames[0].index[1:])
    days = dates.to_numpy().astype("datetime64[D]")
    ends = [int(np.count_nonzero(days <= np.datetime64(end))) for end in (TRAIN_ENDS, VALIDATION_ENDS)]
    starts = (0, ends[0], ends[1])
    measured = [_measured(bars) for bars in frames]
    other = {"ret": "vol", "vol": "ret"}[name]
    target = np.stack([standardised(m[name], starts[1]) for m in measured])
    observed = [[standardised(m[key], starts[1]) for key in (other, "gap", "volume")] for m in measured]
    calendar = np.stack([dates.day_of_week.to_numpy() / 4 - 0.5, dates.day_of_year.to_numpy() / 366 - 0.5], axis=-1)
    units = [center_and_unit(m[name], starts[1]) for m in measured]
    return Task(
        name=name,
        target=target.astype(np.float32),
        observed=np.moveaxis(np.array(observed), 1, 2).astype(np.float32),
        known=np.stack([calendar] * len(frames)).astype(np.float32),
        static=np.eye(len(frames), dtype=np.float32),
        center=np.array([center for center, _ in units]),
        unit=np.array([unit for _, unit in units]),
        ranges=np.exp([m["vol"] for m in measured]),
        starts=starts,
    )


def index_panel() -> BarPanel:
    """Bars of both indices on their common sessions."""
    frames = [_bars(index) for index in INDICES]
    dates = frames[0].index.intersection(frames[1].index)
    names = ("Open", "High", "Low", "Close", "Volume")
    values = (np.stack([frame.loc[dates, name].to_numpy(np.float64) for frame in frames]) for name in names)
    opened, high, low, close, volume = values
    sessions = pd.DatetimeIndex(dates).strftime("%Y%m%d").to_numpy(np.int32)
    return BarPanel(symbols=INDICES, sessions=sessions, open=opened, high=high, low=low, close=close, volume=volume)


def _bars(index: str) -> pd.DataFrame:
    """Daily bars by date."""
    return import_module(f"arch.data.{index}").load().sort_index()


def _measured(bars: pd.DataFrame) -> dict[str, Series]:
    """All quantities [T], from the second day."""
    column = {name: bars[name].to_numpy(np.float64) for name in ("Open", "High", "Low", "Adj Close", "Volume")}
    close = column["Adj Close"]
    daily_range = np.maximum(np.log(column["High"] / column["Low"]), MIN_RANGE)
    volume = pd.Series(np.log(np.where(column["Volume"] > 0, column["Volume"], np.nan)[1:])).ffill()
    return {
        "ret": np.log(close[1:] / close[:-1]),
        "vol": np.log(daily_range / np.sqrt(4 * np.log(2)))[1:],
        "gap": np.log(column["Open"][1:] / close[:-1]),
        "volume": (volume - volume.rolling(VOLUME_DAYS, min_periods=1).mean()).to_numpy(),
    }
