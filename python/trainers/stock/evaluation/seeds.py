"""Variation of scores over training seeds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError
from predictor.features import FeatureSet
from predictor.model import build_output_map
from predictor.networks import Edges
from trainers.loop import LoopError
from trainers.progress import ReportConsumer
from trainers.stock.data import History, TrainingWindows
from trainers.stock.evaluation.comparison import (
    LossComparison,
    average_horizons,
    compare,
    mark_inside,
    pinball,
    winkler,
)
from trainers.stock.evaluation.evaluation_set import EvaluationSet, forecasts_of
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.model_fit import build_engine, fit_artifact, fit_pipeline
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import DataSplits


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


def choose_other_seeds(own: int, count: int) -> tuple[int, ...]:
    """`count` seeds that differ from the artifact's own."""
    return tuple((own + k) % 2**32 for k in range(1, count + 1))


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
