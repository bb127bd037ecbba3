"""The same recipe from other seeds: how much of a score is the luck of one training."""

from dataclasses import dataclass, replace

from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.features import FeatureSet
from predictor.model import output_map
from predictor.networks import Edges
from trainers.progress import Consumer
from trainers.stock.data import History, Windows
from trainers.stock.evaluation.forecasts import FloatArray, forecasts_of
from trainers.stock.fitting import engine_of, fit_artifact, fit_pipeline
from trainers.stock.recipe import Recipe
from trainers.stock.splits import Splits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refitting:
    """What is trained again, and on what."""

    bars: BarPanel
    features: FeatureSet
    recipe: Recipe
    splits: Splits
    """Those of the artifact."""
    covariates: CovariateSource
    """Files of what stands beside the bars."""
    edges: Edges | None
    """Those that the artifact's graph was given; None takes them from the training part's returns."""


def other_seeds(own: int, count: int) -> tuple[int, ...]:
    """So many seeds that are not the artifact's own."""
    return tuple((own + k) % 2**32 for k in range(1, count + 1))


def refitted_forecasts(refitting: Refitting, seed: int, windows: Windows, consume: Consumer) -> FloatArray:
    """[N, H, Q] calibrated forecasts of these windows by a model that is trained from this seed."""
    recipe = replace(refitting.recipe, optimisation=replace(refitting.recipe.optimisation, seed=seed))
    bars, beside = refitting.bars, refitting.covariates
    history = History(bars, fit_pipeline(bars, refitting.features, recipe, refitting.splits, beside), beside)
    made = fit_artifact(history, refitting.splits, recipe, consume=consume, edges=refitting.edges)
    engine = engine_of(made.network(), made.manifest)
    return forecasts_of(engine, output_map(made.manifest), history, windows, made.manifest.universe).calibrated
