"""Information coefficients: the correlation of forecast medians with outcomes.

With many symbols per day, the correlation is taken across symbols (IC, and RankIC by ranks, both as in Qlib). With few
symbols it is taken across the days of each symbol.
"""

from dataclasses import dataclass
from math import nan
from typing import Final

import numpy as np

from predictor.arrays import FloatArray
from trainers.stock.evaluation.evaluation_set import (
    EvaluationSet,
    Interval,
    block_weights,
    interval,
    quotient,
    stretched,
)

FEWEST_SYMBOLS: Final = 10
"""Symbols per day needed for correlations across symbols."""

ACROSS_SYMBOLS: Final = "across the symbols of a day, mean over days"
ACROSS_DAYS: Final = f"across the days of a symbol, mean over symbols: fewer than {FEWEST_SYMBOLS} symbols a day"


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """Correlation of forecasts with outcomes at one horizon; None if either is constant."""

    ic: Interval | None
    rank_ic: Interval | None
    icir: float | None
    """Mean of the daily ICs over their standard deviation, not annualised; None across days."""
    rank_icir: float | None


def way(test: EvaluationSet) -> str:
    """Whether symbols of a day or days of a symbol are correlated, as text."""
    return ACROSS_SYMBOLS if _has_cross_section(test) else ACROSS_DAYS


def correlations(test: EvaluationSet, centres: FloatArray) -> tuple[Correlation, ...]:
    """One correlation per horizon, from medians [N, H]."""
    correlation = _across_symbols if _has_cross_section(test) else _across_days
    return tuple(correlation(test, centres[:, h], test.outcomes[:, h]) for h in range(len(test.horizons)))


def _has_cross_section(test: EvaluationSet) -> bool:
    _, counts = np.unique(test.positions, return_counts=True)
    return float(np.median(counts)) >= FEWEST_SYMBOLS


def _across_symbols(test: EvaluationSet, centres: FloatArray, outcomes: FloatArray) -> Correlation:
    _, starts = np.unique(test.positions, return_index=True)
    pairs = np.stack([centres, outcomes])
    daily = np.array([_day(day) for day in np.split(pairs, starts[1:], axis=1)])
    return Correlation(
        ic=_mean_of(test, daily[:, 0]),
        rank_ic=_mean_of(test, daily[:, 1]),
        icir=_ratio(daily[:, 0]),
        rank_icir=_ratio(daily[:, 1]),
    )


def _day(pairs: FloatArray) -> tuple[float, float]:
    """IC and RankIC of one day's forecasts and outcomes [2, n]; NaN with too few outcomes or without variation."""
    x, y = pairs[:, np.isfinite(pairs[1])]
    if len(x) < FEWEST_SYMBOLS or min(np.ptp(x), np.ptp(y)) == 0:
        return nan, nan
    return float(np.corrcoef(x, y)[0, 1]), float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def _mean_of(test: EvaluationSet, daily: FloatArray) -> Interval | None:
    """Mean of the finite daily values [D], with its interval."""
    known = np.isfinite(daily)
    if not known.any():
        return None
    weights = block_weights(len(daily), test.block)[:, known]
    return _interval(test, daily[known].mean(), quotient(weights @ daily[known], weights.sum(axis=1)))


def _interval(test: EvaluationSet, value: np.float64, resamples: FloatArray) -> Interval:
    """The interval of a correlation, clipped to [-1, 1]."""
    return interval(float(value), np.clip(stretched(test, np.asarray(value), resamples), -1, 1))


def _ratio(daily: FloatArray) -> float | None:
    known = daily[np.isfinite(daily)]
    deviation = known.std(ddof=1) if known.size > 1 else 0.0
    return float(known.mean() / deviation) if deviation > 0 else None


def _across_days(test: EvaluationSet, centres: FloatArray, outcomes: FloatArray) -> Correlation:
    plain = _mean_over_symbols(test, centres, outcomes, ranked=False)
    return Correlation(
        ic=plain, rank_ic=_mean_over_symbols(test, centres, outcomes, ranked=True), icir=None, rank_icir=None
    )


def _mean_over_symbols(
    test: EvaluationSet, centres: FloatArray, outcomes: FloatArray, *, ranked: bool
) -> Interval | None:
    """Mean over symbols of the correlation across days; resamples draw the same days for all symbols."""
    days = np.unique(test.positions)
    weights = block_weights(len(days), test.block)
    by_symbol: list[FloatArray] = []
    for symbol in np.unique(test.symbols):
        rows = (test.symbols == symbol) & np.isfinite(outcomes)
        x, y = (ranks(series[rows]) if ranked else series[rows] for series in (centres, outcomes))
        if len(x) > 1 and min(np.ptp(x), np.ptp(y)) > 0:
            drawn = weights[:, np.searchsorted(days, test.positions[rows])]
            by_symbol.append(_weighted_correlation(x, y, np.vstack([np.ones(len(x)), drawn])))
    if not by_symbol:
        return None
    known = np.isfinite(by_symbol)
    means = quotient(np.where(known, by_symbol, 0.0).sum(axis=0), known.sum(axis=0))
    return _interval(test, means[0], means[1:])


def _weighted_correlation(x: FloatArray, y: FloatArray, weights: FloatArray) -> FloatArray:
    """[R] weighted correlations of two series [n], one per row of weights [R, n]; NaN without variation."""
    x, y = x - x.mean(), y - y.mean()
    moments = weights @ np.stack([x, y, x * x, y * y, x * y], axis=1)
    mx, my, xx, yy, xy = quotient(moments, weights.sum(axis=1, keepdims=True)).T
    spread = np.sqrt(np.maximum(xx - mx * mx, 0.0) * np.maximum(yy - my * my, 0.0))
    return quotient(xy - mx * my, spread)


def ranks(values: FloatArray) -> FloatArray:
    """[n] ranks from 1; equal values share their mean rank, as in Spearman's correlation."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]
