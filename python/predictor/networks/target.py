"""Forecast targets: their definition, labels and daily series."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from math import log, sqrt
from typing import Annotated

import numpy as np

from predictor.arrays import FloatArray
from predictor.bars import AdjustedBars
from predictor.errors import ConfigurationError
from predictor.flags import Flag, parse_integers

MAX_HORIZON = 250
"""Trading days, about a year."""


class TargetKind(StrEnum):
    """The quantity that a model forecasts."""

    LOG_RETURN = "log-return"
    """log(close[t + lag + h] / close[t + lag])"""
    LOG_VOLATILITY = "log-volatility"
    """log of the daily volatility over the h sessions after t + lag, by Parkinson's estimator (1980):
    log sqrt(mean of log(high/low)^2 / (4 log 2))."""

    @classmethod
    def from_text(cls, text: str) -> "TargetKind":
        """Parse the name of a kind.

        Raises:
            ConfigurationError: the name is unknown.
        """
        try:
            return cls(text)
        except ValueError as error:
            raise ConfigurationError(f"target is {text!r}, but must be one of {[k.value for k in cls]}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a forecast from session t: a kind over horizons of h sessions that start `lag` sessions after t."""

    kind: Annotated[TargetKind, Flag("log-return or log-volatility.", name="target", parse=TargetKind.from_text)] = (
        TargetKind.LOG_RETURN
    )
    lag: Annotated[int, Flag("0: returns from the last close; 1: from the next.", shown_default="0; graph: 1")] = 0
    """0: from the last known close, as in the price fan. 1: from the next close, at which one can still trade."""
    horizons: Annotated[tuple[int, ...], Flag("Trading days.", parse=partial(parse_integers, "horizons"))] = (
        1,
        5,
        10,
        20,
    )
    """Trading days, ascending."""

    def __post_init__(self) -> None:
        if self.lag not in (0, 1):
            raise ConfigurationError(f"lag is {self.lag}, but must be 0 or 1")
        rising = all(a < b for a, b in zip(self.horizons, self.horizons[1:], strict=False))
        if not self.horizons or not rising or self.horizons[0] < 1 or self.horizons[-1] > MAX_HORIZON:
            raise ConfigurationError(
                f"horizons are {list(self.horizons)}, but must be ascending numbers of days from 1 to {MAX_HORIZON}"
            )

    def __str__(self) -> str:
        """The target in a sentence, such as `log-return, lag 0, horizons 1, 5, 10, 20`."""
        return f"{self.kind}, lag {self.lag}, horizons {', '.join(map(str, self.horizons))}"

    @property
    def reach(self) -> int:
        """Sessions between the last bar and the end of the longest horizon."""
        return self.lag + self.horizons[-1]

    @property
    def spread(self) -> FloatArray:
        """[H] growth of the target's scale with the horizon: sqrt(h) for returns, 1 for volatility."""
        if self.kind is TargetKind.LOG_RETURN:
            return np.sqrt(np.array(self.horizons, np.float64))
        return np.ones(len(self.horizons))

    def daily(self, bars: AdjustedBars) -> FloatArray:
        """[S, T] the daily series whose recent level and volatility normalise the target; NaN if unknown."""
        if self.kind is TargetKind.LOG_RETURN:
            returns = np.full_like(bars.close, np.nan)
            with np.errstate(all="ignore"):  # prices whose quotient overflows are rejected by their volatility
                returns[:, 1:] = np.log(bars.close[:, 1:] / bars.close[:, :-1])
            return returns
        return np.log(np.maximum(_compute_parkinson_variance(bars), _MIN_VARIANCE)) / 2

    @staticmethod
    def range_volatility(bars: AdjustedBars) -> FloatArray:
        """[S, T] daily volatility by Parkinson's estimator; the minimum for bars without a range, NaN without a bar."""
        return np.sqrt(np.maximum(_compute_parkinson_variance(bars), _MIN_VARIANCE))

    def labels(self, bars: AdjustedBars) -> FloatArray:
        """[S, T, H] the target's value for a forecast after session t; NaN if its future is incomplete."""
        labels = np.empty((*bars.close.shape, len(self.horizons)))
        series = bars.close if self.kind is TargetKind.LOG_RETURN else _compute_parkinson_variance(bars)
        for column, horizon in enumerate(self.horizons):
            labels[..., column] = self._label(series, horizon)
        return labels

    def _label(self, series: FloatArray, horizon: int) -> FloatArray:
        """[S, T] labels of one horizon, from closes or from daily variances."""
        if self.kind is TargetKind.LOG_RETURN:
            with np.errstate(all="ignore"):
                return np.log(_shift_ahead(series, self.lag + horizon) / _shift_ahead(series, self.lag))
        mean = sum((_shift_ahead(series, self.lag + k) for k in range(1, horizon + 1)), 0.0) / horizon
        return np.log(np.maximum(mean, _MIN_VARIANCE)) / 2


_MIN_VARIANCE = 1e-10
"""Daily variance of sessions without a range."""
MIN_RANGE_VOLATILITY = sqrt(_MIN_VARIANCE)
"""The same as a volatility: 1e-5 of the price."""


def _compute_parkinson_variance(bars: AdjustedBars) -> FloatArray:
    with np.errstate(all="ignore"):
        logs = np.log(bars.high / bars.low)
        return logs * logs / (4 * log(2))


def _shift_ahead(series: FloatArray, sessions: int) -> FloatArray:
    """The values `sessions` later; NaN beyond the end."""
    result = np.full_like(series, np.nan)
    result[:, : max(0, series.shape[1] - sessions)] = series[:, sessions:]
    return result
