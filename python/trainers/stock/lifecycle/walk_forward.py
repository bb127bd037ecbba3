"""Forecasts of a recipe in a walk forward, which trains it on the bars before each fold with rolling splits."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from predictor.arrays import BoolArray, FloatArray
from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError
from predictor.features import FeatureSet
from predictor.model import build_output_map
from predictor.networks import Edges
from trainers.stock.backtest.folds import Fold
from trainers.stock.backtest.refits import refit, refit_splits
from trainers.stock.data import NO_SOURCE, History
from trainers.stock.evaluation.evaluation_set import EvaluationSet, forecasts_of
from trainers.stock.model_fit import build_engine
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import SplitPart

WARM_UP = 600
"""Number of sessions before a fold that are encoded; recipes that read more are refused."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedForecasts:
    """Forecasts of N windows and their outcomes."""

    test: EvaluationSet
    values: FloatArray
    """[N, H, Q] quantiles in the target's unit."""

    def shared_with(self, other: Self) -> tuple[Self, Self]:
        """Limit both to their common days and symbols.

        Raises:
            ConfigurationError: they have no common day of a common symbol.
        """
        width = 1 + max(int(self.test.symbols.max(initial=0)), int(other.test.symbols.max(initial=0)))
        ours, theirs = (one.test.positions * width + one.test.symbols for one in (self, other))
        shared = np.intersect1d(ours, theirs)
        if shared.size == 0:
            raise ConfigurationError("the versions forecast no common day of a common symbol; give more bars")
        return self._rows(np.isin(ours, shared)), other._rows(np.isin(theirs, shared))

    def _rows(self, chosen: BoolArray) -> Self:
        return replace(self, test=self.test.rows(chosen), values=self.values[chosen])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecipeInputs:
    """A recipe with its features, covariates and edges."""

    recipe: StockRecipe
    features: FeatureSet
    covariates: CovariateSource = NO_SOURCE
    edges: Edges | None = None
    """Edges of a graph; None computes them from training returns."""


def walk_forward(walked: RecipeInputs, bars: BarPanel, folds: tuple[Fold, ...]) -> JudgedForecasts:
    """Train before each fold, and forecast its days.

    Raises:
        ConfigurationError: the bars are too few, or the recipe reads too many.
        LoopError: a training failed.
    """
    parts = [_forecast_fold(walked, bars, fold) for fold in folds]
    tests = [part.test for part in parts]
    return JudgedForecasts(
        test=replace(
            tests[0],
            outcomes=np.concatenate([test.outcomes for test in tests]),
            positions=np.concatenate([test.positions for test in tests]),
            symbols=np.concatenate([test.symbols for test in tests]),
        ),
        values=np.concatenate([part.values for part in parts]),
    )


def _forecast_fold(walked: RecipeInputs, bars: BarPanel, fold: Fold) -> JudgedForecasts:
    sessions, recipe = bars.sessions, walked.recipe
    first, last = (int(np.searchsorted(sessions, day)) for day in (fold.first, fold.last))
    learnt = bars.between(fold.learn_first, fold.learn_last)
    splits = refit_splits(learnt, recipe)
    made = refit(learnt, walked.features, recipe, splits, covariates=walked.covariates, edges=walked.edges)
    if made.pipeline.bars_needed > WARM_UP:
        raise ConfigurationError(
            f"the recipe reads {made.pipeline.bars_needed} bars, but a walk forward encodes {WARM_UP} before its folds"
        )
    begin, end = max(0, first - WARM_UP), min(last + recipe.target.reach, len(sessions) - 1)
    read = bars.between(int(sessions[begin]), int(sessions[end]))
    history = History(read, made.pipeline, walked.covariates)
    windows = history.windows(SplitPart("fold", int(sessions[first + recipe.target.lag + 1]), int(sessions[end])))
    engine, output = build_engine(made.network(), made.manifest), build_output_map(made.manifest)
    test = EvaluationSet.of(history, windows, recipe.quantiles)
    return JudgedForecasts(
        test=replace(test, sessions=sessions, positions=test.positions + begin),
        values=forecasts_of(engine, output, history, windows, made.manifest.universe).calibrated,
    )
