"""Scores of one forecaster: by horizon, by symbol, and the PIT histogram."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import nan
from typing import Final

import numpy as np

from predictor.arrays import FloatArray
from predictor.networks import TargetKind
from trainers.progress import StepProgress, no_progress
from trainers.stock.evaluation.baselines import (
    BaselinePlan,
    FitScope,
    InformationSet,
    MeasuredWindows,
    NoForecastError,
)
from trainers.stock.evaluation.comparison import (
    ModelComparison,
    SkillScore,
    absolute_error,
    average_horizons,
    choose_median,
    crps,
    mark_below,
    mark_inside,
    measure_improvement,
    pinball,
    pinball_at,
    qlike,
    winkler,
)
from trainers.stock.evaluation.evaluation_set import (
    EvaluationSet,
    Interval,
    ModelForecasts,
    block_weights,
    interval,
    intervals,
    quotient,
    resampled_mean,
    widen_resamples,
)

MIN_SYMBOLS: Final = 10
"""Symbols per day needed for correlations across symbols."""


ACROSS_SYMBOLS: Final = "across the symbols of a day, mean over days"

ACROSS_DAYS: Final = f"across the days of a symbol, mean over symbols: fewer than {MIN_SYMBOLS} symbols a day"


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """Correlation of forecasts with outcomes at one horizon; None if either is constant."""

    ic: Interval | None
    rank_ic: Interval | None
    icir: float | None
    """Mean of the daily ICs over their standard deviation, not annualised; None across days."""
    rank_icir: float | None


def describe_correlation(test: EvaluationSet) -> str:
    """Whether symbols of a day or days of a symbol are correlated, as text."""
    return ACROSS_SYMBOLS if _has_cross_section(test) else ACROSS_DAYS


def correlate_forecasts(test: EvaluationSet, centres: FloatArray) -> tuple[Correlation, ...]:
    """One correlation per horizon, from medians [N, H]."""
    pairs = [(centres[:, h], test.outcomes[:, h]) for h in range(len(test.horizons))]
    if _has_cross_section(test):
        return tuple(_correlate_across_symbols(test, *pair) for pair in pairs)
    return tuple(
        Correlation(
            ic=_mean_over_symbols(test, *pair, use_ranks=False),
            rank_ic=_mean_over_symbols(test, *pair, use_ranks=True),
            icir=None,
            rank_icir=None,
        )
        for pair in pairs
    )


def _has_cross_section(test: EvaluationSet) -> bool:
    _, counts = np.unique(test.positions, return_counts=True)
    return float(np.median(counts)) >= MIN_SYMBOLS


def _correlate_across_symbols(test: EvaluationSet, centres: FloatArray, outcomes: FloatArray) -> Correlation:
    _, starts = np.unique(test.positions, return_index=True)
    pairs = np.stack([centres, outcomes])
    daily, by_rank = np.array([_correlate_day(day) for day in np.split(pairs, starts[1:], axis=1)]).T
    return Correlation(
        ic=_average_correlations(test, daily),
        rank_ic=_average_correlations(test, by_rank),
        icir=_measure_ratio(daily),
        rank_icir=_measure_ratio(by_rank),
    )


def _correlate_day(pairs: FloatArray) -> tuple[float, float]:
    """IC and RankIC of one day's forecasts and outcomes [2, n]; NaN with too few outcomes or without variation."""
    x, y = pairs[:, np.isfinite(pairs[1])]
    if len(x) < MIN_SYMBOLS or min(np.ptp(x), np.ptp(y)) == 0:
        return nan, nan
    return float(np.corrcoef(x, y)[0, 1]), float(np.corrcoef(rank_values(x), rank_values(y))[0, 1])


def _average_correlations(test: EvaluationSet, daily: FloatArray) -> Interval | None:
    """Mean of the finite daily values [D], with its interval."""
    is_known = np.isfinite(daily)
    if not is_known.any():
        return None
    weights = block_weights(len(daily), test.block)[:, is_known]
    return _clip_interval(test, daily[is_known].mean(), quotient(weights @ daily[is_known], weights.sum(axis=1)))


def _clip_interval(test: EvaluationSet, value: np.float64, resamples: FloatArray) -> Interval:
    """The interval of a correlation, clipped to [-1, 1]."""
    return interval(float(value), np.clip(widen_resamples(test, np.asarray(value), resamples), -1, 1))


def _measure_ratio(daily: FloatArray) -> float | None:
    values = daily[np.isfinite(daily)]
    deviation = values.std(ddof=1) if values.size > 1 else 0.0
    return float(values.mean() / deviation) if deviation > 0 else None


def _mean_over_symbols(
    test: EvaluationSet, centres: FloatArray, outcomes: FloatArray, *, use_ranks: bool
) -> Interval | None:
    """Mean over symbols of the correlation across days; resamples draw the same days for all symbols."""
    days = np.unique(test.positions)
    weights = block_weights(len(days), test.block)
    by_symbol: list[FloatArray] = []
    for symbol in np.unique(test.symbols):
        rows = (test.symbols == symbol) & np.isfinite(outcomes)
        x, y = (rank_values(series[rows]) if use_ranks else series[rows] for series in (centres, outcomes))
        if len(x) > 1 and min(np.ptp(x), np.ptp(y)) > 0:
            day_weights = weights[:, np.searchsorted(days, test.positions[rows])]
            by_symbol.append(_correlate_weighted(x, y, np.vstack([np.ones(len(x)), day_weights])))
    if not by_symbol:
        return None
    is_known = np.isfinite(by_symbol)
    means = quotient(np.where(is_known, by_symbol, 0.0).sum(axis=0), is_known.sum(axis=0))
    return _clip_interval(test, means[0], means[1:])


def _correlate_weighted(x: FloatArray, y: FloatArray, weights: FloatArray) -> FloatArray:
    """[R] weighted correlations of two series [n], one per row of weights [R, n]; NaN without variation."""
    x, y = x - x.mean(), y - y.mean()
    moments = weights @ np.stack([x, y, x * x, y * y, x * y], axis=1)
    mx, my, xx, yy, xy = quotient(moments, weights.sum(axis=1, keepdims=True)).T
    spread = np.sqrt(np.maximum(xx - mx * mx, 0.0) * np.maximum(yy - my * my, 0.0))
    return quotient(xy - mx * my, spread)


def rank_values(values: FloatArray) -> FloatArray:
    """[n] ranks from 1; equal values share their mean rank, as in Spearman's correlation."""
    _, ranks, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[ranks]


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
    fell = mark_below(test, forecasts)
    ones = np.where(np.isnan(fell[..., :1]), np.nan, 1.0)
    bins = np.diff(np.concatenate([0.0 * ones, fell, ones], axis=-1), axis=-1)
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

    `names` are the symbols of the panel, forecasts [N, H, Q] the model's, and `baseline` the losses [N, H] of the best
    baseline.
    """
    rows: list[SymbolScores] = []
    for symbol in np.unique(test.symbols):
        mask = test.symbols == symbol
        symbol_test = test.rows(mask)
        ours, theirs = (
            average_horizons(symbol_test, losses) for losses in (pinball(symbol_test, forecasts[mask]), baseline[mask])
        )
        rows.append(
            SymbolScores(
                symbol=names[symbol],
                windows=int(mask.sum()),
                mean=_estimate_mean(symbol_test, ours),
                improvement=measure_improvement(symbol_test, ours, theirs),
                band=_estimate_mean(symbol_test, np.nanmean(mark_inside(symbol_test, forecasts[mask]), axis=1)),
            )
        )
    return tuple(rows)


def _estimate_mean(test: EvaluationSet, values: FloatArray) -> Interval:
    """The mean of values [N], with its interval."""
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

    Forecasts are [N, H, Q]. A `ranking` [N, H] is correlated with the outcomes instead of the medians.
    """
    correlations = correlate_forecasts(test, choose_median(test, forecasts) if ranking is None else ranking)
    losses = pinball(test, forecasts)
    means = _estimate_means(test, losses)
    band = _estimate_means(test, mark_inside(test, forecasts))
    widths = _estimate_means(test, winkler(test, forecasts))
    crps_means = _estimate_means(test, crps(test, forecasts))
    errors = _estimate_means(test, absolute_error(test, forecasts))
    shares = measure_below_by_level(test, forecasts)
    by_level, risk = _measure_levels(test, forecasts)
    ratios: tuple[Interval | None, ...] = (None,) * len(test.horizons)
    if test.target.kind is TargetKind.LOG_VOLATILITY:
        ratios = _estimate_means(test, qlike(test, forecasts))
    horizons = tuple(
        HorizonScores(
            horizon=horizon,
            windows=int(np.isfinite(test.outcomes[:, h]).sum()),
            pinball=means[h],
            pinball_by_level=tuple(by_level[h].tolist()),
            risk=tuple(risk[h].tolist()),
            crps=crps_means[h],
            below=shares[h],
            band=band[h],
            winkler=widths[h],
            mae=errors[h],
            qlike=ratios[h],
            correlation=correlations[h],
        )
        for h, horizon in enumerate(test.horizons)
    )
    mean = _estimate_mean(test, average_horizons(test, losses))
    return ModelScores(name=name, role=role, fit=fit, mean=mean, horizons=horizons)


def measure_below_by_level(test: EvaluationSet, forecasts: FloatArray) -> tuple[tuple[Interval, ...], ...]:
    """[H][Q] share of outcomes at or below each quantile."""
    levels = range(len(test.levels))
    shares = (_estimate_means(test, mark_below(test, forecasts[..., [level]])[..., 0]) for level in levels)
    return tuple(zip(*shares, strict=True))


def _estimate_means(test: EvaluationSet, values: FloatArray) -> tuple[Interval, ...]:
    """[H] means of values [N, H], with their intervals."""
    return intervals(*resampled_mean(test, values))


def _measure_levels(test: EvaluationSet, forecasts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean pinball loss and q-risk, [H, Q] both."""
    totals: list[FloatArray] = []
    counts: list[FloatArray] = []
    for level in range(len(test.levels)):
        losses = pinball_at(test, forecasts, level)
        totals.append(np.nansum(losses, axis=0))
        counts.append(np.isfinite(losses).sum(axis=0).astype(np.float64))
    total, sizes = np.stack(totals, axis=1), np.nansum(np.abs(test.outcomes), axis=0)
    return quotient(total, np.stack(counts, axis=1)), quotient(2 * total, sizes[:, None])


MODEL_NAME: Final = "this model"
"""Name of the row of an evaluated model."""

MAX_NAMED: Final = 5
"""A note names so many symbols, and counts the others."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BenchmarkResult:
    """A model's scores and those of the baselines."""

    rows: tuple[ModelScores, ...]
    """The model first, then the baselines in the order of the plan."""
    best: FloatArray
    """[N, H] pinball losses of the best baseline."""
    skill: SkillScore
    notes: tuple[str, ...]
    """Why baselines are left out, and which symbols have substitutes."""


def benchmark(
    test: EvaluationSet,
    name: str,
    ours: ModelForecasts,
    case: InformationSet,
    plan: BaselinePlan,
    *,
    on_losses: Callable[[str, FloatArray], None] = lambda _name, _losses: None,
    track_steps: StepProgress = no_progress,
) -> BenchmarkResult:
    """Score a model's forecasts and the baselines; only one baseline's forecasts are in memory at a time.

    All rows are scored on the same windows. A baseline that cannot forecast one of them is left out, with a note.

    Args:
        test: The windows.
        name: Name of the model's row.
        ours: The model's forecasts.
        case: The information that the model was made from.
        plan: The baselines.
        on_losses: Called with the name and the losses [N, H] of each baseline, which are dropped afterwards.
        track_steps: Shows which baseline is being fitted and scored.
    """
    rows = [score(test, ours.calibrated, name=name, role=ScoreRole.MODEL, ranking=ours.scores)]
    contest = ModelComparison(test, pinball(test, ours.calibrated), among="baselines")
    windows, notes = MeasuredWindows.of(case.history, test.windows), list[str]()
    for baseline, fit in track_steps(tuple(plan.rows), title="scoring", tell=lambda row: row[0].named(row[1])):
        title = baseline.named(fit)
        try:
            fitted = case.fitted(baseline, fit)
            forecasts = fitted.forecasts(windows)
        except NoForecastError as error:
            notes.append(f"{title} is left out: {error}")
            continue
        losses = pinball(test, forecasts)
        rows.append(score(test, forecasts, name=title, role=ScoreRole.BASELINE, fit=fit))
        contest.add(title, losses)
        on_losses(title, losses)
        if fitted.replaced is not None:
            symbols, why = case.history.bars.symbols, fitted.replaced.why
            reasons = [f"{symbols[row]} ({why[row]})" for row in np.unique(test.symbols) if row in why]
            rest = f" and {len(reasons) - MAX_NAMED} more" if len(reasons) > MAX_NAMED else ""
            if reasons:
                notes.append(f"{title} uses the {fitted.replaced.by} for {', '.join(reasons[:MAX_NAMED])}{rest}")
    return BenchmarkResult(rows=tuple(rows), best=contest.best_losses, skill=contest.skill, notes=(*notes, *plan.notes))
