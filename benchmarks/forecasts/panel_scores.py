"""Scores of a panel's forecasts day by day, and paired comparisons of them with errors that know of the overlap."""

from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.stats import rankdata

from benchmarks.forecasts.panel_series import FloatArray

NORMAL_95 = 1.96


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """The mean of a daily difference with its Newey-West error."""

    mean: float
    error: float

    @classmethod
    def of(cls, daily: FloatArray, *, horizon: int) -> "Paired":
        """From the differences [days] of scores whose outcomes overlap over so many days; the lag is twice that.

        Newey and West, "A simple, positive semi-definite, heteroskedasticity and autocorrelation consistent covariance
        matrix" (1987), with Bartlett's weights.
        """
        centred, lag = daily - daily.mean(), 2 * horizon
        variance = centred @ centred / len(daily)
        for k in range(1, lag + 1):
            variance += 2 * (1 - k / (lag + 1)) * (centred[k:] @ centred[:-k]) / len(daily)
        return cls(mean=float(daily.mean()), error=float(np.sqrt(max(variance, 1e-12) / len(daily))))

    @property
    def low(self) -> float:
        """The lower end of the 95 % interval."""
        return self.mean - NORMAL_95 * self.error

    @property
    def high(self) -> float:
        """The upper end of it."""
        return self.mean + NORMAL_95 * self.error

    def __str__(self) -> str:
        return f"{self.mean:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"


def squared_errors(forecast: FloatArray, outcome: FloatArray) -> FloatArray:
    """The mean squared error of each day [days], of [S, days]."""
    return np.nanmean((forecast - outcome) ** 2, axis=0)


def qlikes(forecast: FloatArray, outcome: FloatArray) -> FloatArray:
    """The mean QLIKE (Patton 2011) of each day [days], of log variances [S, days]; it wants the mean variance."""
    over = outcome - forecast
    return np.nanmean(np.exp(over) - over - 1, axis=0)


def rank_correlations(scores: FloatArray, outcome: FloatArray) -> FloatArray:
    """Spearman's correlation over the stocks of each day [days], of [S, days]; 0 where all scores are the same."""
    found = np.zeros(scores.shape[1])
    for day in range(scores.shape[1]):
        known = np.isfinite(scores[:, day]) & np.isfinite(outcome[:, day])
        ours, real = rankdata(scores[known, day]), rankdata(outcome[known, day])
        if ours.std() > 0:
            found[day] = np.corrcoef(ours, real)[0, 1]
    return found
