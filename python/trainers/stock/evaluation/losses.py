"""What single forecasts cost. Shapes: N windows, H horizons, Q quantiles; NaN where the outcome is unknown."""

from itertools import pairwise
from statistics import NormalDist

import numpy as np

from predictor.arrays import FloatArray
from predictor.networks import anchor_index
from trainers.stock.evaluation.evaluation_set import EvaluationSet, quotient


def pinball_at(test: EvaluationSet, forecasts: FloatArray, level: int) -> FloatArray:
    """[N, H] pinball loss (Koenker & Bassett 1978) of one of the quantiles [N, H, Q], in the target's unit."""
    tau = test.levels[level]
    error = test.outcomes - forecasts[..., level]
    return np.maximum(tau * error, (tau - 1) * error)


def pinball(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] pinball loss of forecasts [N, H, Q], mean over the quantiles, in the target's unit."""
    count = len(test.levels)
    return _weighted(test, forecasts, np.full(count, 1 / count))


def overall(test: EvaluationSet, losses: FloatArray) -> FloatArray:
    """[N] a window's loss over the horizons it knows, each divided by its spread so that they weigh alike."""
    known = np.isfinite(losses)
    return quotient(np.where(known, losses / test.spread, 0.0).sum(axis=1), known.sum(axis=1))


def crps(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] continuous ranked probability score as far as Q quantiles tell it.

    It is twice the integral of the pinball loss over the levels (Laio & Tamea 2007, eq. 6); each level stands for those
    up to halfway to its neighbours, the outermost for all beyond.
    """
    return _weighted(test, forecasts, 2 * _level_widths(test.levels))


def below(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H, Q] 1 where the outcome fell to or below the quantile, 0 where above, NaN where unknown."""
    fell = (test.outcomes[..., None] <= forecasts).astype(np.float64)
    fell[np.isnan(test.outcomes)] = np.nan
    return fell


def inside(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] 1 where the outcome lies in the band, from the lowest to the highest quantile, both included."""
    held = (test.outcomes >= forecasts[..., 0]) & (test.outcomes <= forecasts[..., -1])
    return np.where(np.isnan(test.outcomes), np.nan, held.astype(np.float64))


def winkler(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] interval score of the band (Winkler 1972): its width, and what outcomes missed it by, dearer the rarer.

    With a tail of a on each side this is Gneiting & Raftery (2007), eq. 43, with alpha = 2a. In the target's unit.
    """
    lower, upper = forecasts[..., 0], forecasts[..., -1]
    under = np.maximum(lower - test.outcomes, 0.0) / test.levels[0]
    over = np.maximum(test.outcomes - upper, 0.0) / (1 - test.levels[-1])
    return upper - lower + under + over


def absolute_error(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] distance of the outcome from the median, or from the level nearest to it."""
    return np.abs(test.outcomes - median(test, forecasts))


def median(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] the quantile nearest to the median."""
    return forecasts[..., anchor_index(test.levels)]


def qlike(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] QLIKE of forecasts of log volatility (Patton 2011): r - log r - 1 of the ratio r of variance to forecast.

    It rewards the forecast of the variance's mean. That is taken as of a lognormal variance whose median and width are
    the forecast's: exp(2m + 2d²), d the deviation that lies behind the band from the lowest to the highest quantile.
    """
    reach = NormalDist().inv_cdf(test.levels[-1]) - NormalDist().inv_cdf(test.levels[0])
    deviation = (forecasts[..., -1] - forecasts[..., 0]) / reach if reach > 0 else 0.0
    ratio = 2 * (test.outcomes - median(test, forecasts) - deviation**2)
    return np.exp(ratio) - ratio - 1


def _weighted(test: EvaluationSet, forecasts: FloatArray, weights: FloatArray) -> FloatArray:
    """[N, H] pinball losses, those of each quantile times its weight [Q]; one at a time, which needs less memory."""
    total = np.zeros(test.outcomes.shape)
    for level, weight in enumerate(weights):
        total += weight * pinball_at(test, forecasts, level)
    return total


def _level_widths(levels: tuple[float, ...]) -> FloatArray:
    """[Q] the share of all levels that each stands for; they add up to 1."""
    edges = [0.0, *((a + b) / 2 for a, b in pairwise(levels)), 1.0]
    return np.diff(edges)
