"""Scores of one forecaster: by horizon, by symbol, and the PIT histogram."""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np

from predictor.arrays import BoolArray, FloatArray
from predictor.networks import TargetKind
from trainers.stock.evaluation.baselines import FitScope
from trainers.stock.evaluation.comparison import (
    absolute_error,
    below,
    crps,
    improvement,
    inside,
    median,
    overall,
    pinball,
    pinball_at,
    qlike,
    winkler,
)
from trainers.stock.evaluation.correlation import Correlation, correlations
from trainers.stock.evaluation.evaluation_set import (
    EvaluationSet,
    Interval,
    interval,
    intervals,
    quotient,
    resampled_mean,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PitHistogram:
    """PIT histogram of one horizon (Dawid 1984), with one bin between two quantiles.

    Calibrated forecasts fill each bin with its expected share.
    """

    horizon: int
    edges: tuple[float, ...]
    """[B + 1] levels, from 0 to 1."""
    expected: tuple[float, ...]
    """[B] share of outcomes that calibrated forecasts have in each bin."""
    counts: tuple[int, ...]
    """[B] outcomes."""
    shares: tuple[Interval, ...]
    """[B] share of the outcomes."""


def pit(test: EvaluationSet, forecasts: FloatArray) -> tuple[PitHistogram, ...]:
    """One histogram per horizon, from forecasts [N, H, Q]."""
    fell = below(test, forecasts)
    whole = np.where(np.isnan(fell[..., :1]), np.nan, 1.0)
    bins = np.diff(np.concatenate([0.0 * whole, fell, whole], axis=-1), axis=-1)
    means, resamples = resampled_mean(test, bins)
    edges = (0.0, *test.levels, 1.0)
    return tuple(
        PitHistogram(
            horizon=horizon,
            edges=edges,
            expected=tuple(b - a for a, b in pairwise(edges)),
            counts=tuple(int(count) for count in np.nansum(bins[:, h], axis=0)),
            shares=intervals(means[h], resamples[:, h]),
        )
        for h, horizon in enumerate(test.horizons)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolScores:
    """The model on the windows of one symbol."""

    symbol: str
    windows: int
    mean: Interval
    """Pinball loss over all horizons, each divided by its spread."""
    improvement: Interval
    """Over the best baseline of the whole panel, relative to its loss."""
    band: Interval
    """Share of outcomes inside the band, over all horizons."""


def by_symbol(
    test: EvaluationSet, names: tuple[str, ...], forecasts: FloatArray, baseline: FloatArray
) -> tuple[SymbolScores, ...]:
    """One row per symbol that has windows, in the panel's order.

    Args:
        test: The windows.
        names: Symbols of the panel's rows.
        forecasts: [N, H, Q] of the model.
        baseline: [N, H] pinball losses of the best baseline.
    """
    return tuple(
        _of_symbol(test, names[symbol], test.symbols == symbol, forecasts, baseline)
        for symbol in np.unique(test.symbols)
    )


def _of_symbol(
    test: EvaluationSet, name: str, rows: BoolArray, forecasts: FloatArray, baseline: FloatArray
) -> SymbolScores:
    own = test.rows(rows)
    ours, theirs = overall(own, pinball(own, forecasts[rows])), overall(own, baseline[rows])
    held = np.nanmean(inside(own, forecasts[rows]), axis=1)
    return SymbolScores(
        symbol=name,
        windows=int(rows.sum()),
        mean=_mean(own, ours),
        improvement=improvement(own, ours, theirs),
        band=_mean(own, held),
    )


def _mean(test: EvaluationSet, values: FloatArray) -> Interval:
    mean, resamples = resampled_mean(test, values)
    return interval(float(mean), resamples)


class ScoreRole(StrEnum):
    """The kind of a row of scores."""

    MODEL = "model"
    VARIANT = "variant"
    """The model with other offsets."""
    BASELINE = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonScores:
    """Means over the windows of one horizon. Losses are in the target's unit; lower is better."""

    horizon: int
    windows: int
    """Windows whose outcome is known."""
    pinball: Interval
    """Mean over the quantiles."""
    pinball_by_level: tuple[float, ...]
    """[Q]"""
    risk: tuple[float, ...]
    """[Q] q-risk (Lim et al. 2021, eq. 25): twice the sum of pinball losses over the sum of the outcomes' sizes."""
    crps: Interval
    below: tuple[Interval, ...]
    """[Q] share of outcomes at or below each quantile."""
    band: Interval
    """Share of outcomes inside the band, from the lowest to the highest quantile."""
    winkler: Interval
    mae: Interval
    """Distance from the median."""
    qlike: Interval | None
    """For forecasts of volatility."""
    correlation: Correlation


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelScores:
    """One row of scores."""

    name: str
    role: ScoreRole
    fit: FitScope | None
    """How a baseline was fitted; None for the model."""
    mean: Interval
    """Pinball loss over all horizons, each divided by its spread so that they have equal weight."""
    horizons: tuple[HorizonScores, ...]


def score(
    test: EvaluationSet,
    forecasts: FloatArray,
    *,
    name: str,
    role: ScoreRole,
    fit: FitScope | None = None,
    ranking: FloatArray | None = None,
) -> ModelScores:
    """Compute all scores of forecasts.

    Args:
        test: The windows.
        forecasts: [N, H, Q]
        name: Name of the row.
        role: Kind of the row.
        fit: How a baseline was fitted.
        ranking: [N, H] scores to correlate with the outcomes instead of medians.
    """
    centres = median(test, forecasts) if ranking is None else ranking
    mean, resamples = resampled_mean(test, overall(test, pinball(test, forecasts)))
    return ModelScores(
        name=name,
        role=role,
        fit=fit,
        mean=interval(float(mean), resamples),
        horizons=_by_horizon(test, forecasts, correlations(test, centres)),
    )


def _by_horizon(
    test: EvaluationSet, forecasts: FloatArray, correlated: tuple[Correlation, ...]
) -> tuple[HorizonScores, ...]:
    band = _each(test, inside(test, forecasts))
    widths = _each(test, winkler(test, forecasts))
    losses = _each(test, pinball(test, forecasts))
    ranked = _each(test, crps(test, forecasts))
    errors = _each(test, absolute_error(test, forecasts))
    shares = below_by_level(test, forecasts)
    by_level, risk = _by_level(test, forecasts)
    is_volatility = test.target.kind is TargetKind.LOG_VOLATILITY
    ratios = _each(test, qlike(test, forecasts)) if is_volatility else (None,) * len(band)
    return tuple(
        HorizonScores(
            horizon=horizon,
            windows=int(np.isfinite(test.outcomes[:, h]).sum()),
            pinball=losses[h],
            pinball_by_level=tuple(by_level[h].tolist()),
            risk=tuple(risk[h].tolist()),
            crps=ranked[h],
            below=shares[h],
            band=band[h],
            winkler=widths[h],
            mae=errors[h],
            qlike=ratios[h],
            correlation=correlated[h],
        )
        for h, horizon in enumerate(test.horizons)
    )


def below_by_level(test: EvaluationSet, forecasts: FloatArray) -> tuple[tuple[Interval, ...], ...]:
    """[H][Q] share of outcomes at or below each quantile."""
    levels = range(len(test.levels))
    shares = (_each(test, below(test, forecasts[..., [level]])[..., 0]) for level in levels)
    return tuple(zip(*shares, strict=True))


def _each(test: EvaluationSet, values: FloatArray) -> tuple[Interval, ...]:
    """[H] means of values [N, H]."""
    return intervals(*resampled_mean(test, values))


def _by_level(test: EvaluationSet, forecasts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean pinball loss and q-risk, [H, Q] both."""
    sizes, _ = _sums(np.abs(test.outcomes))
    levels = range(len(test.levels))
    totals, counts = zip(*(_sums(pinball_at(test, forecasts, level)) for level in levels), strict=True)
    total = np.stack(totals, axis=1)
    return quotient(total, np.stack(counts, axis=1)), quotient(2 * total, sizes[:, None])


def _sums(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sum and count of the finite values [N, H], both [H]."""
    return np.nansum(values, axis=0), np.isfinite(values).sum(axis=0).astype(np.float64)
