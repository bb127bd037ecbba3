"""Strategies, which turn a day's forecasts into weights, and trading terms.

The absolute weights of a day sum to at most 1: there is no leverage, and the rest is cash without interest. A stock
without a forecast has no weight.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from statistics import NormalDist
from typing import Annotated

import numpy as np

from predictor.arrays import BoolArray, FloatArray
from predictor.errors import ConfigurationError
from predictor.flags import Flag
from predictor.networks import TargetKind
from predictor.sessions import EVERY_DAY
from trainers.stock.backtest.forecasts import DailyForecasts

SESSIONS_A_YEAR = 252
"""Average of an exchange."""
DAYS_A_YEAR = 365
"""For markets that trade every day of the week."""
BASIS_POINT = 1e-4

MAX_HALT = 20
"""Consecutive sessions without a bar after which a position is closed as delisted."""

MONTHS_A_YEAR = 12
WEEK = 5
"""Sessions."""

EQUAL_WEIGHT = "equal weight"
MOMENTUM = "momentum 12-1"
REVERSAL = "reversal 5"


@dataclass(frozen=True, slots=True, kw_only=True)
class TradingTerms:
    """Trading terms of a book."""

    horizon: Annotated[
        int,
        Flag("Holding period in sessions; default: 5 if the model forecasts it, else its first horizon.", minimum=1),
    ]
    """Decisions use the forecast of this horizon."""
    rebalance: Annotated[int, Flag("Sessions between traded decisions.", minimum=1)] = 1
    delay: int = 1
    """Sessions from the close before a decision to the close at which it is traded."""
    cost_bps: Annotated[float, Flag("Trading cost in basis points of purchases and sales.")] = 10.0
    borrow_bps: Annotated[float, Flag("Borrowing cost in basis points per year of short positions.")] = 50.0
    """Charged per session."""
    delisting_return: Annotated[
        float,
        Flag(
            f"Simple return on the last close of a position without a bar for {MAX_HALT} sessions or at the end; "
            "-1 loses everything.",
            minimum=-1,
        ),
    ] = 0.0
    sessions_a_year: int = SESSIONS_A_YEAR
    """For annualised figures; backtests and audits use the model's calendar."""

    def __post_init__(self) -> None:
        for name, minimum in (("horizon", 1), ("rebalance", 1), ("delay", 0)):
            value: int = getattr(self, name)
            if value < minimum:
                raise ConfigurationError(f"{name} is {value} sessions, but must be at least {minimum}")
        for name in ("cost_bps", "borrow_bps"):
            paid: float = getattr(self, name)
            if not 0 <= paid <= 1 / BASIS_POINT:
                raise ConfigurationError(f"{name} is {paid:g}, but must be from 0 to {1 / BASIS_POINT:g} basis points")
        if not -1 <= self.delisting_return < inf:
            raise ConfigurationError(
                f"delisting_return is {self.delisting_return:g}, but must be at least -1 and finite"
            )

    @property
    def tranches(self) -> int:
        """Number of equal parts of the book; each decision renews one, so each is held for about the horizon."""
        return -(-self.horizon // self.rebalance)

    @property
    def cost(self) -> float:
        """Trading cost as a share of each unit traded."""
        return BASIS_POINT * self.cost_bps

    @property
    def borrow(self) -> float:
        """Borrowing cost per session as a share of each short unit."""
        return BASIS_POINT * self.borrow_bps / self.sessions_a_year


class Strategy(StrEnum):
    """How a strategy uses forecasts."""

    RANK = "rank"
    """Long the best share of the day's stocks, short the worst, half of the book each."""
    SIGN = "sign"
    """Each stock by the sign of its median forecast, with equal weights; flat within the threshold."""
    VOL_TARGET = "vol-target"
    """Long every stock, scaled down to the target volatility by the width of its forecast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySettings:
    """A strategy and its settings."""

    strategy: Annotated[
        Strategy,
        Flag(
            "rank: long the best, short the worst; sign: by the median's sign; vol-target: long, scaled by risk.",
            shown_default="rank; of one stock: sign",
        ),
    ] = Strategy.RANK
    share: Annotated[float, Flag("rank: share of the day's stocks on each side, at least one stock.")] = 0.1
    threshold_bps: Annotated[
        float, Flag("sign: medians within this many basis points of log return of 0 are flat.")
    ] = 0.0
    volatility: Annotated[float, Flag("vol-target: targeted yearly volatility of each stock.")] = 0.15

    def __post_init__(self) -> None:
        if not 0 < self.share <= 0.5:  # noqa: PLR2004 - both sides together are all
            raise ConfigurationError(f"share is {self.share:g}, but must be above 0 and at most 0.5")
        if not self.threshold_bps >= 0:
            raise ConfigurationError(f"threshold is {self.threshold_bps:g} basis points, but must be at least 0")
        if not 0 < self.volatility < np.inf:
            raise ConfigurationError(f"volatility is {self.volatility:g} a year, but must be above 0 and finite")

    @classmethod
    def default(cls, symbols: int) -> "StrategySettings":
        """The default of a number of symbols; a single one cannot be ranked."""
        return cls(strategy=Strategy.SIGN if symbols == 1 else Strategy.RANK)


def count_sessions_a_year(calendar: str) -> int:
    """Sessions per year of the calendar of this name."""
    return DAYS_A_YEAR if calendar == EVERY_DAY else SESSIONS_A_YEAR


def decide_weights(
    forecasts: DailyForecasts, horizon: int, strategy_settings: StrategySettings, a_year: int = SESSIONS_A_YEAR
) -> FloatArray:
    """[D, S] weights that the strategy decides after each session's close.

    Raises:
        ConfigurationError: The horizon is not forecast, or the strategy cannot use this kind of forecast.
    """
    index = forecasts.find_horizon(horizon)
    match strategy_settings.strategy:
        case Strategy.RANK:
            if forecasts.scores is None:
                _require_returns(forecasts, Strategy.RANK)
            return go_long_and_short(forecasts.ranking[..., index], strategy_settings.share)
        case Strategy.SIGN:
            _require_returns(forecasts, Strategy.SIGN)
            median = forecasts.median[..., index]
            is_known = np.isfinite(median)
            is_large = is_known & (np.abs(median) > BASIS_POINT * strategy_settings.threshold_bps)
            return np.where(is_large, np.sign(np.where(is_known, median, 0.0)), 0.0) * go_long_equally(is_known)
        case Strategy.VOL_TARGET:
            expected = estimate_volatility(forecasts, index, a_year)
            is_known = np.isfinite(expected)
            scaled = np.minimum(1.0, strategy_settings.volatility / np.where(is_known, expected, np.inf))
            return scaled * go_long_equally(is_known)


def go_long_and_short(scores: FloatArray, share: float) -> FloatArray:
    """[D, S] weights: half of the book long the largest scores [D, S] of a day, half short the smallest.

    Each side holds this share of the day's finite scores, at least one. A day with fewer than two, or with equal scores
    only, stays flat. The order of the stocks breaks ties.
    """
    weights = np.zeros_like(scores)
    for day, row in zip(weights, scores, strict=True):
        columns = np.flatnonzero(np.isfinite(row))
        if len(columns) == 0 or row[columns].min() == row[columns].max():
            continue
        count = max(1, int(round(share * len(columns), 9)))  # 0.29 * 100 is a little less than 29
        order = columns[np.argsort(row[columns], kind="stable")]
        day[order[-count:]] = 0.5 / count
        day[order[:count]] = -0.5 / count
    return weights


def go_long_equally(is_known: BoolArray) -> FloatArray:
    """[D, S] the whole book long with equal weights of the known stocks."""
    return is_known / np.maximum(is_known.sum(axis=1, keepdims=True), 1)


def estimate_volatility(forecasts: DailyForecasts, index: int, a_year: int = SESSIONS_A_YEAR) -> FloatArray:
    """[D, S] annualised standard deviation of the forecast at one horizon.

    For log returns, the width of the band between the outermost quantiles relative to a normal distribution's.
    """
    if forecasts.kind is TargetKind.LOG_VOLATILITY:
        return np.exp(forecasts.median[..., index]) * np.sqrt(a_year)
    low, high = forecasts.levels[0], forecasts.levels[-1]
    if low == high:
        raise ConfigurationError("vol-target needs two quantiles, but the model forecasts one; use another --strategy")
    normal = NormalDist().inv_cdf(high) - NormalDist().inv_cdf(low)
    width = forecasts.values[..., index, -1] - forecasts.values[..., index, 0]
    return width / normal * np.sqrt(a_year / forecasts.horizons[index])


def _require_returns(forecasts: DailyForecasts, strategy: Strategy) -> None:
    if forecasts.kind is not TargetKind.LOG_RETURN:
        raise ConfigurationError(
            f"strategy {strategy} needs forecasts of log-return, but the model forecasts {forecasts.kind}; "
            f"use {Strategy.VOL_TARGET}"
        )


def compute_benchmark_weights(
    closes: FloatArray, first: int, share: float, a_year: int = SESSIONS_A_YEAR
) -> Mapping[str, FloatArray]:
    """Weights of the benchmarks after the closes from position `first` on.

    Equal weight is long every stock with a bar. Momentum is long the stocks that rose most from 12 months to one month
    ago (Jegadeesh & Titman 1993), reversal those that fell most in 5 sessions (Lehmann 1990). Both are short the
    opposite stocks. `closes` [T, S] are adjusted, of the whole history, NaN without a bar.

    Returns:
        [T - first, S] each.
    """
    present = np.isfinite(closes)
    momentum = np.where(present, _measure_change(closes, a_year, round(a_year / MONTHS_A_YEAR)), np.nan)
    reversal = -_measure_change(closes, WEEK, 0)
    return {
        EQUAL_WEIGHT: go_long_equally(present[first:]),
        MOMENTUM: go_long_and_short(momentum[first:], share),
        REVERSAL: go_long_and_short(reversal[first:], share),
    }


def _measure_change(closes: FloatArray, start: int, end: int) -> FloatArray:
    """[T, S] log return from `since` to `until` sessions ago; NaN if either close is missing."""
    change = np.full_like(closes, np.nan)
    ends = slice(start - end, len(closes) - end)
    change[start:] = np.log(closes[ends] / closes[: max(0, len(closes) - start)])
    return change
