"""The two tasks on a panel of stocks: what is forecast, from which columns, and which days are learnt from.

Legend: S stocks, D sessions, F columns, K known columns, H horizons. Every column of a day is known at its close.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from benchmarks.forecasts.daily_levels import daily_levels
from benchmarks.forecasts.panel_series import (
    HORIZONS,
    FloatArray,
    PanelSeries,
    across,
    ahead,
    carried,
    later,
    moved,
    rolling,
)
from predictor.networks import Target, TargetKind, WindowNormaliser

FIRST_DAY = 62
"""Days before it lack the longest feature."""
MONTH_DAYS, QUARTER_DAYS = 30.4, 91.3
EXTREME = 6.0
"""Multiples of the volatility beyond which a return says no more."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One year of a walk-forward: what is learnt ends before the year begins."""

    first_test: int
    """Position of the year's first session; no outcome that reaches it is learnt from."""
    test: NDArray[np.int64]
    """Decision days of the year."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PanelForecasting:
    """A task for all models alike."""

    target: Target
    labels: FloatArray
    """[S, D, H]"""
    level: tuple[FloatArray, FloatArray]
    """Location and scale of every day's window, [S, D] each."""
    observed: FloatArray
    """[S, D, F] columns for the network, NaN where unknown."""
    known: FloatArray
    """[D + reach, K] columns that are known ahead."""
    tabular: Mapping[str, FloatArray]
    """[S, D, columns] for each rival by name."""
    series: PanelSeries

    def folds(self) -> Iterator[Fold]:
        """The years from the third on."""
        years = self.series.years
        for year in sorted(set(years.tolist()))[2:]:
            test = np.flatnonzero(years == year)
            yield Fold(first_test=int(test[0]), test=test[test < len(years) - self.target.reach])

    def judged(self, fold: Fold, horizon: int) -> NDArray[np.int64]:
        """The fold's decision days whose outcome over that horizon is known."""
        years = self.series.years
        days = np.flatnonzero(years == years[fold.first_test])
        return days[days < len(years) - self.target.lag - horizon]

    def learnt(self, fold: Fold, horizon: int) -> NDArray[np.int64]:
        """Decision days whose outcome over that horizon ends before the fold's year begins."""
        return np.arange(FIRST_DAY, fold.first_test - self.target.lag - horizon)


def volatility_task(series: PanelSeries) -> PanelForecasting:
    """The log of the mean Parkinson variance over the next days."""
    variance = series.variance
    level = daily_levels(WindowNormaliser(centred=True, decay=1.0), np.log(variance))
    averages = {days: np.log(rolling(variance, days)) for days in (1, 5, 22, 60)}
    lags = np.stack([averages[days] for days in (1, 5, 22)], axis=-1)
    market = np.stack([across(lags[..., k]) for k in range(3)], axis=-1)
    target = Target(kind=TargetKind.LOG_VOLATILITY, lag=0, horizons=HORIZONS)
    return PanelForecasting(
        target=target,
        labels=np.stack([np.log(ahead(variance, h)) for h in HORIZONS], axis=-1),
        level=level,
        observed=_volatility_columns(series, averages, *level),
        known=known_columns(series.dates, target.reach),
        tabular={"HAR": lags, "LightGBM": np.concatenate([lags, market, ranked_features(series)], axis=-1)},
        series=series,
    )


def return_task(series: PanelSeries) -> PanelForecasting:
    """The log return over the next days from the next close on, which is the first that can still be had."""
    target = Target(kind=TargetKind.LOG_RETURN, lag=1, horizons=HORIZONS)
    logs, features = np.log(series.close), ranked_features(series)
    start = later(logs, target.lag)
    return PanelForecasting(
        target=target,
        labels=np.stack([later(logs, target.lag + h) - start for h in HORIZONS], axis=-1),
        level=daily_levels(WindowNormaliser(), series.returns),
        observed=features,
        known=known_columns(series.dates, target.reach),
        tabular={"LightGBM": features},
        series=series,
    )


def _volatility_columns(
    series: PanelSeries, averages: Mapping[int, FloatArray], location: FloatArray, scale: FloatArray
) -> FloatArray:
    """[S, D, F] volatility at four speeds, returns, gaps and volume beyond the market's mean; and that mean itself.

    Apart from each other, what is common to all stocks can be learnt carefully, from few days, and the rest from many.
    """
    own = {days: (average - location) / scale for days, average in averages.items()}
    daily = np.sqrt(rolling(series.variance, 22))
    logs, volume = np.log(series.close), carried(np.log(np.where(series.volume > 0, series.volume, np.nan)))
    returns, gaps = series.returns / daily, (np.log(series.open) - moved(logs, 1)) / daily
    beyond = [
        *own.values(),
        np.clip(returns, -EXTREME, EXTREME),
        np.log(np.abs(returns) + 0.05),
        np.clip(gaps, -EXTREME, EXTREME),
        np.log(np.abs(gaps) + 0.05),
        volume - rolling(volume, 60),
        (logs - moved(logs, 20)) / daily,
    ]
    columns = [
        *(column - across(column) for column in beyond),
        rolling(volume + logs, 20),
        location,
        *(across(own[days]) for days in (1, 5, 22)),
        across(series.returns) / across(daily),
    ]
    return np.stack(columns, axis=-1)


def ranked_features(series: PanelSeries) -> FloatArray:
    """[S, D, 13] price and volume features, each as its rank among the day's stocks, from -0.5 to 0.5; 0 if unknown."""
    logs, returns = np.log(series.close), series.returns
    money = np.log(np.where(series.volume > 0, series.volume, np.nan) * series.close)
    spread = np.where(series.high > series.low, series.high - series.low, np.nan)
    with np.errstate(invalid="ignore"):
        features = [
            *(returns if days == 1 else logs - moved(logs, days) for days in (1, 5, 10, 20, 60)),
            *(_rolled(returns, days, np.nanstd) for days in (20, 5)),
            np.log(series.high / series.low),
            np.log(series.open) - moved(logs, 1),
            (series.close - series.low) / spread,
            money - _rolled(money, 20, np.nanmean),
            _rolled(money, 20, np.nanmean),
            logs - _rolled(logs, 60, np.nanmax),
        ]
    return np.stack([_day_ranks(feature) for feature in features], axis=-1)


def known_columns(dates: NDArray[np.datetime64], reach: int) -> FloatArray:
    """[D + reach, 7] weekday as five columns, and the place in the quarter, which earnings follow, on a circle."""
    following = np.busday_offset(dates[-1], np.arange(1, reach + 1))
    days = np.concatenate([dates, following])
    weekday = (days.astype(np.int64) + 3) % 7
    months = days.astype("datetime64[M]")
    place = (months.astype(np.int64) % 3 * MONTH_DAYS + (days - months).astype(np.int64)) / QUARTER_DAYS
    circle = np.stack([np.sin(2 * np.pi * place), np.cos(2 * np.pi * place)], axis=-1)
    return np.concatenate([np.eye(5)[np.minimum(weekday, 4)], circle], axis=-1)


def _rolled(values: FloatArray, days: int, reduce: Callable[..., FloatArray]) -> FloatArray:
    """A statistic of the known ones among the last so many days; NaN for the first days."""
    windows = sliding_window_view(values, days, axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of windows without any value
        found = reduce(windows, -1)
    return np.concatenate([np.full((len(values), days - 1), np.nan), found], axis=1)


def _day_ranks(values: FloatArray) -> FloatArray:
    """Ranks of each day; unknown ones are ranked at the panel's median, and then put in the middle."""
    unknown = np.isnan(values)
    filled = np.where(unknown, np.median(np.where(unknown, 0, values)), values)
    ranks = filled.argsort(0).argsort(0) / (len(values) - 1) - 0.5
    return np.where(unknown, 0.0, ranks)
