"""Losses of forecasts, paired comparisons by day with intervals, and the variation over training seeds.

Shapes: N windows, H horizons, Q quantiles; NaN where the outcome is unknown.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, nan
from statistics import NormalDist
from typing import final

import numpy as np

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, format_date
from predictor.features import FeatureSet
from predictor.model import build_output_map
from predictor.networks import Edges, find_anchor_index
from predictor.skill import Verdict
from trainers.loop import LoopError
from trainers.progress import ReportConsumer
from trainers.stock.data import History, TrainingWindows
from trainers.stock.evaluation.evaluation_set import (
    CONFIDENCE,
    EvaluationSet,
    Interval,
    by_day,
    forecasts_of,
    interval,
    quotient,
    resampled_mean,
    standard_error,
)
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.model_fit import build_engine, fit_artifact, fit_pipeline
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import DataSplits


def pinball_at(test: EvaluationSet, forecasts: FloatArray, level: int) -> FloatArray:
    """[N, H] pinball loss (Koenker & Bassett 1978) of one quantile of forecasts [N, H, Q], in the target's unit."""
    tau = test.levels[level]
    error = test.outcomes - forecasts[..., level]
    return np.maximum(tau * error, (tau - 1) * error)


def pinball(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] pinball loss of forecasts [N, H, Q], mean over the quantiles, in the target's unit."""
    count = len(test.levels)
    return _sum_weighted(test, forecasts, np.full(count, 1 / count))


def average_horizons(test: EvaluationSet, losses: FloatArray) -> FloatArray:
    """[N] mean loss over the known horizons, each divided by its spread so that they have equal weight."""
    is_known = np.isfinite(losses)
    return quotient(np.where(is_known, losses / test.spread, 0.0).sum(axis=1), is_known.sum(axis=1))


def average_days(test: EvaluationSet, losses: FloatArray) -> FloatArray:
    """[D] mean loss of each decision day over symbols and horizons, from losses [N, H]; NaN where unknown."""
    return quotient(*by_day(test, average_horizons(test, losses)))


def crps(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] continuous ranked probability score, approximated from Q quantiles.

    Twice the integral of the pinball loss over the levels (Laio & Tamea 2007, eq. 6). Each level represents those up to
    halfway to its neighbours; the outermost represent all beyond.
    """
    edges = [0.0, *((a + b) / 2 for a, b in pairwise(test.levels)), 1.0]
    return _sum_weighted(test, forecasts, 2 * np.diff(edges))


def mark_below(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H, Q] 1 if the outcome is at or below the quantile, 0 if above, NaN if unknown."""
    fell = (test.outcomes[..., None] <= forecasts).astype(np.float64)
    fell[np.isnan(test.outcomes)] = np.nan
    return fell


def mark_inside(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] 1 if the outcome is between the lowest and the highest quantile, inclusive."""
    inside = (test.outcomes >= forecasts[..., 0]) & (test.outcomes <= forecasts[..., -1])
    return np.where(np.isnan(test.outcomes), np.nan, inside.astype(np.float64))


def winkler(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] interval score of the band (Winkler 1972): its width plus a penalty for outcomes outside it.

    With a tail of a on each side this is Gneiting & Raftery (2007), eq. 43, with alpha = 2a. In the target's unit.
    """
    lower, upper = forecasts[..., 0], forecasts[..., -1]
    under = np.maximum(lower - test.outcomes, 0.0) / test.levels[0]
    over = np.maximum(test.outcomes - upper, 0.0) / (1 - test.levels[-1])
    return upper - lower + under + over


def absolute_error(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] distance of the outcome from the median, or from the quantile nearest to it."""
    return np.abs(test.outcomes - choose_median(test, forecasts))


def choose_median(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] the quantile nearest to the median."""
    return forecasts[..., find_anchor_index(test.levels)]


def qlike(test: EvaluationSet, forecasts: FloatArray) -> FloatArray:
    """[N, H] QLIKE of forecasts of log volatility (Patton 2011): r - log r - 1 of the ratio r of variance to forecast.

    It rewards forecasts of the mean variance, computed here for a lognormal variance with the forecast's median and
    width: exp(2m + 2d²), where d is the standard deviation implied by the lowest and the highest quantile.
    """
    reach = NormalDist().inv_cdf(test.levels[-1]) - NormalDist().inv_cdf(test.levels[0])
    deviation = (forecasts[..., -1] - forecasts[..., 0]) / reach if reach > 0 else 0.0
    ratio = 2 * (test.outcomes - choose_median(test, forecasts) - deviation**2)
    return np.exp(ratio) - ratio - 1


def _sum_weighted(test: EvaluationSet, forecasts: FloatArray, weights: FloatArray) -> FloatArray:
    """[N, H] pinball losses weighted by quantile [Q], summed one by one to save memory."""
    total = np.zeros(test.outcomes.shape)
    for level, weight in enumerate(weights):
        total += weight * pinball_at(test, forecasts, level)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class LossComparison:
    """Relative improvement of one forecast's losses over another's."""

    baseline: str
    improvement: Interval
    """Over all horizons, each divided by its spread."""
    by_horizon: tuple[Interval, ...]
    """[H]"""
    t: float | None
    """Diebold-Mariano statistic (1995) of the daily differences, positive if the other's loss is larger. Errors are
    Newey-West's, widened as intervals are. None if nothing differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillScore:
    """Relative improvement of a model's loss over the best rival's on the same days."""

    baseline: str
    """The rival with the lowest loss on these days."""
    improvement: Interval
    rivals: tuple[str, ...]
    """All rivals, of which `baseline` is the best."""
    among: str
    """The kind of rivals, such as baselines."""
    first_day: int
    """First decision day, yyyymmdd."""
    last_day: int
    days_short: int = 0
    """Decision days missing for a verdict; 0 if there are enough."""

    @property
    def verdict(self) -> Verdict:
        """Whether the improvement is distinguishable from luck."""
        if self.days_short:
            return Verdict.UNDECIDED
        if self.improvement.lower > 0:
            return Verdict.BETTER
        return Verdict.WORSE if self.improvement.upper < 0 else Verdict.UNDECIDED

    @property
    def sentence(self) -> str:
        """One sentence with verdict, rival, days and uncertainty."""
        i, days = self.improvement, f"{format_date(self.first_day)} to {format_date(self.last_day)}"
        best = (
            self.baseline if len(self.rivals) == 1 else f"the best of {len(self.rivals)} {self.among}, {self.baseline}"
        )
        interval = f"{100 * CONFIDENCE:.0f} % interval {100 * i.lower:+.1f} % to {100 * i.upper:+.1f} %"
        figures = f"{100 * i.value:+.1f} % ({interval})"
        if self.days_short:
            return (
                f"No skill shown: the test split is {self.days_short} days too short to tell skill from luck. "
                f"On it, {days}, the pinball loss is compared with that of {best}; improvement {figures}."
            )
        losses = f"on held-out days, {days}, the pinball loss is"
        if i.lower > 0:
            return f"Skill: {losses} better than that of {best}, by {figures}."
        if i.upper < 0:
            return f"No skill: {losses} worse than that of {best}; improvement {figures}."
        return f"No skill shown: {losses} not distinguishable from that of {best}; improvement {figures}."


@final
class ModelComparison:
    """Compares a model with rivals on the same windows and keeps only the losses of the best rival.

    `model` are its losses [N, H], and `among` the kind of rivals, such as baselines.
    """

    def __init__(self, test: EvaluationSet, model: FloatArray, among: str) -> None:
        self._test = test
        self._model = average_horizons(test, model)
        self._among = among
        self._rivals: list[str] = []
        self._best_mean = inf
        self._best = ""
        self.best_losses: FloatArray = np.empty(0)
        """[N, H] losses of the best rival so far."""

    def add(self, name: str, losses: FloatArray) -> None:
        """Add a rival with losses [N, H]."""
        self._rivals.append(name)
        mean = float(np.nanmean(average_horizons(self._test, losses)))
        if mean < self._best_mean:
            self._best_mean, self._best, self.best_losses = mean, name, losses

    @property
    def skill(self) -> SkillScore:
        """The model against the best rival, paired by day; needs at least one rival."""
        first, last = self._test.span
        return SkillScore(
            baseline=self._best,
            improvement=measure_improvement(self._test, self._model, average_horizons(self._test, self.best_losses)),
            rivals=tuple(self._rivals),
            among=self._among,
            first_day=first,
            last_day=last,
            days_short=self._test.days_short,
        )


def compare(test: EvaluationSet, model: FloatArray, other: FloatArray, name: str) -> LossComparison:
    """Compare a model's losses [N, H] with those of the baseline of this name."""
    ours, theirs = average_horizons(test, model), average_horizons(test, other)
    return LossComparison(
        baseline=name,
        improvement=measure_improvement(test, ours, theirs),
        by_horizon=tuple(
            measure_improvement(test, ours, theirs) for ours, theirs in zip(model.T, other.T, strict=True)
        ),
        t=_test_diebold_mariano(test, theirs - ours),
    )


def measure_improvement(test: EvaluationSet, ours: FloatArray, theirs: FloatArray) -> Interval:
    """1 - ours / theirs of mean losses [N]; NaN if theirs are 0."""
    both = np.stack([ours, theirs], axis=-1)
    both[np.isnan(both).any(axis=-1)] = nan
    means, resamples = resampled_mean(test, both)
    return interval(float(_compute_gain(means)), _compute_gain(resamples))


def _compute_gain(means: FloatArray) -> FloatArray:
    return 1 - quotient(means[..., 0], means[..., 1])


def _test_diebold_mariano(test: EvaluationSet, differences: FloatArray) -> float | None:
    total, count = by_day(test, differences)
    daily = total[count > 0] / count[count > 0]
    error = standard_error(daily, test.block)
    return float(daily.mean()) / (error * test.widening_factor) if error > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeedRefits:
    """Recipe and data for trainings from other seeds."""

    bars: BarPanel
    features: FeatureSet
    recipe: StockRecipe
    splits: DataSplits
    """Splits of the artifact."""
    covariates: CovariateSource
    """Files of covariates."""
    edges: Edges | None
    """Edges of the artifact's graph; None derives them from returns of the training split."""
    windows: TrainingWindows
    """Windows to forecast."""
    cache: FeatureCache | None
    """Has the observed features on disk; None computes them in memory."""
    consume: ReportConsumer

    def worker(self) -> Callable[[int], FloatArray]:
        """Return a picklable function that trains from a seed and forecasts."""
        return self.forecast

    def forecast(self, seed: int) -> FloatArray:
        """[N, H, Q] calibrated forecasts of the windows by a model trained from this seed."""
        recipe = replace(self.recipe, optimisation=replace(self.recipe.optimisation, seed=seed))
        try:
            pipeline = fit_pipeline(self.bars, self.features, recipe, self.splits, self.covariates, self.cache)
            history = History(self.bars, pipeline, self.covariates, self.cache)
            artifact = fit_artifact(history, self.splits, recipe, consume=self.consume, edges=self.edges)
        except (ConfigurationError, LoopError) as error:
            raise ConfigurationError(f"{name_seed(seed)}: {error}") from error
        engine, output = build_engine(artifact.network(), artifact.manifest), build_output_map(artifact.manifest)
        return forecasts_of(engine, output, history, self.windows, artifact.manifest.universe).calibrated


def name_seed(seed: int) -> str:
    """The name of a training run in errors."""
    return f"the training with seed {seed}"


def choose_other_seeds(artifact_seed: int, count: int) -> tuple[int, ...]:
    """`count` seeds that differ from the artifact's own."""
    return tuple((artifact_seed + k) % 2**32 for k in range(1, count + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSpread:
    """Mean and standard deviation (n - 1) over several trainings."""

    mean: float
    sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedScores:
    """Scores over several seeds; fields as in `ModelScores`."""

    seeds: tuple[int, ...]
    """The artifact's own first."""
    mean: SeedSpread
    pinball: tuple[SeedSpread, ...]
    """[H]"""
    band: tuple[SeedSpread, ...]
    """[H]"""
    winkler: tuple[SeedSpread, ...]
    """[H]"""
    comparison: LossComparison
    """Losses averaged over seeds, against the best baseline."""


def score_seeds(
    test: EvaluationSet, runs: Iterable[tuple[int, FloatArray]], baseline: FloatArray, baseline_name: str
) -> SeedScores:
    """Score several trainings; only one's forecasts are in memory at a time.

    `runs` are at least two seeds with their forecasts [N, H, Q], `baseline` the pinball losses [N, H] of the best one.
    """
    seeds: list[int] = []
    means: list[float] = []
    rows: list[list[FloatArray]] = []
    total = np.zeros_like(test.outcomes)
    for seed, forecasts in runs:
        losses = pinball(test, forecasts)
        seeds.append(seed)
        means.append(float(np.nanmean(average_horizons(test, losses))))
        scores = losses, mark_inside(test, forecasts), winkler(test, forecasts)
        rows.append([np.nanmean(values, axis=0) for values in scores])
        total += losses
    by_horizon = [tuple(map(_measure_spread, np.array(values).T)) for values in zip(*rows, strict=True)]
    return SeedScores(
        seeds=tuple(seeds),
        mean=_measure_spread(means),
        pinball=by_horizon[0],
        band=by_horizon[1],
        winkler=by_horizon[2],
        comparison=compare(test, total / len(seeds), baseline, baseline_name),
    )


def _measure_spread(values: Sequence[float] | FloatArray) -> SeedSpread:
    return SeedSpread(mean=float(np.mean(values)), sd=float(np.std(values, ddof=1)))
