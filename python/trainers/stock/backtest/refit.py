"""One refit: a recipe trained on bars that end before its fold begins."""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, pairwise

import torch

from predictor.artifact import Artifact
from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError
from predictor.features import FeatureSet
from predictor.model import Identity, Model
from predictor.networks import Edges
from predictor.sessions.dates import as_date
from predictor.windows import Pipeline
from trainers.progress import Chain
from trainers.stock.data import NO_SOURCE, History
from trainers.stock.fitting import fit_artifact, fit_pipeline
from trainers.stock.recipe import Recipe
from trainers.stock.splits import Part, Splits

Labelled = Callable[[BarPanel, Pipeline, CovariateSource], History]
"""What makes inputs and labels of bars."""

NEVER = 99991231
"""A session that no bars reach."""

MAX_ROWS = 256
"""Windows in one pass of the network."""


def traded_recipe(recipe: Recipe) -> Recipe:
    """The recipe with the labels that can be traded: from the next close on, whatever the artifact's lag."""
    return replace(recipe, target=replace(recipe.target, lag=1))


def refit_splits(bars: BarPanel, recipe: Recipe) -> Splits:
    """Training, selection and calibration over all of the bars, in the recipe's proportions; nothing is left to test.

    Raises:
        ConfigurationError: there are too few sessions.
    """
    lengths, count = _lengths(recipe), len(bars.sessions)
    cuts = [0, *(round(count * done / sum(lengths)) for done in accumulate(lengths))]
    if any(b <= a for a, b in pairwise(cuts)):
        raise ConfigurationError(f"{count} sessions are too few to be split into training, selection and calibration")
    bounds = [(int(bars.sessions[a]), int(bars.sessions[b - 1])) for a, b in pairwise(cuts)]
    return Splits.by_dates([*bounds, (NEVER, NEVER)])


def _lengths(recipe: Recipe) -> tuple[float, ...]:
    """How long training, selection and calibration are, each relative to the others."""
    if recipe.parts is None:
        return recipe.shares.train, recipe.shares.selection, recipe.shares.calibration
    return tuple(map(_days, recipe.parts.parts[:3]))


def _days(part: Part) -> float:
    return (as_date(part.last) - as_date(part.first)).days + 1


def refit(
    bars: BarPanel,
    features: FeatureSet,
    recipe: Recipe,
    splits: Splits,
    *,
    covariates: CovariateSource = NO_SOURCE,
    edges: Edges | None = None,
    labelled: Labelled = History,
) -> Artifact:
    """Train and calibrate; nothing is saved, and nothing is scored.

    Args:
        bars: all that the model may learn from.
        features: what the network reads.
        recipe: every other setting; its splits are not looked at.
        splits: of these bars.
        covariates: files of what stands beside the bars.
        edges: of a graph; None takes them from the training part's returns.
        labelled: what makes inputs and labels of bars.

    Raises:
        ConfigurationError: the settings contradict themselves or the bars.
        LoopError: the training failed.
    """
    pipeline = fit_pipeline(bars, features, recipe, splits, covariates)
    return fit_artifact(labelled(bars, pipeline, covariates), splits, recipe, consume=Chain(), edges=edges)


def assembled(made: Artifact) -> Model:
    """A refit's parts as a model that answers, on the CPU."""
    identity = Identity(name="refit", version=0, weights_hash="")
    return Model.assemble(identity, made, device=torch.device("cpu"), max_rows=MAX_ROWS)
