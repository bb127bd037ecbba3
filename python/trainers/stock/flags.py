"""Flags of `quantra train stock` besides the recipe's, and checks that they agree."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from predictor.cli.options import BarsFlags, CovariateFlags
from predictor.cli.output import given, quantra, tell_next
from predictor.covariates import CovariateSource
from predictor.flags import ParsedFlags, SettingsT
from predictor.networks import kind_named
from trainers.stock.card import features_identity
from trainers.stock.feature_selection import FeatureSelection, covariate_fields, features_named
from trainers.stock.recipe import RecipeChanges, StockRecipe, optimisation_of
from trainers.stock.splits import SplitShares
from trainers.stock.training_data import ParentArtifact

WITHOUT_LEARNING: Final = frozenset({"device", "seed", "deterministic"})

"""Optimisation settings that apply to a model without learnt weights."""

_FREE: Final = frozenset({"parts", "calendar", "dropout"})

"""Settings that a training from a parent may change."""


def needless_learning(asked: RecipeChanges) -> tuple[str, ...]:
    """Flags about learning that were given for a model without learnt weights."""
    if kind_named(asked.kind).learns:
        return ()
    return tuple(name for field, name in asked.optimisation.flags.items() if field not in WITHOUT_LEARNING)


def continued(parent: ParentArtifact) -> StockRecipe:
    """The parent's recipe, with splits and optimisation reset to the defaults of its kind."""
    kind = parent.recipe.kind
    return replace(parent.recipe, shares=SplitShares(), parts=None, optimisation=optimisation_of(kind))


def contradictions(parent: ParentArtifact, asked: RecipeChanges) -> Iterator[str]:
    """Settings that differ from the parent's, as text."""
    recipe = parent.recipe
    yield from _other(asked.recipe, recipe)
    yield from _other(asked.target, recipe.target)
    yield from _other(asked.network, recipe.config)


def other_features(
    parent: ParentArtifact, reads: ParsedFlags[FeatureSelection], files: Callable[[], CovariateSource]
) -> Iterator[str]:
    """Feature settings that differ from the parent's, as text; without any, no file is read."""
    if not reads.values:
        return
    known = parent.features.covariates.known
    selection = reads.over(FeatureSelection(known=",".join(known)))
    fields = covariate_fields(files(), selection.known)
    if set(fields.known) != set(known):
        yield f"{reads.flags['known']} is {selection.known} and the artifact's {','.join(known) or 'none'}"
    elif "features" in reads.flags and (
        features_identity(features_named(selection.features, parent.recipe.calendar, fields))
        != features_identity(parent.features)
    ):
        yield f"{reads.flags['features']} is {selection.features}, whose features are not the artifact's"


def _other(given: ParsedFlags[SettingsT], own: SettingsT) -> Iterator[str]:
    current = {field.name: getattr(own, field.name) for field in fields(own)}
    for name, flag in given.flags.items():
        if name not in _FREE and given.values[name] != current.get(name):
            yield f"{flag} is {_shown(given.values[name])} and the artifact's {_shown(current.get(name))}"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{part:g}" for part in value)
    return "none" if value is None else str(value)


StartOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="ARTIFACT",
        help="Start from its weights; network, features, horizons, quantiles and scale are the artifact's.",
    ),
]


def refuse_learning(asked: RecipeChanges) -> None:
    """Refuse flags about learning for a model without learnt weights.

    Raises:
        typer.BadParameter: such flags are given; the message names them.
    """
    flags = needless_learning(asked)
    if flags:
        raise typer.BadParameter(
            f"{', '.join(flags)} say how weights are learnt, but model {asked.kind} has none; leave them out"
        )


def chosen_parent(
    folder: Path, asked: RecipeChanges, reads: ParsedFlags[FeatureSelection], files: CovariateFlags
) -> ParentArtifact:
    """Load the artifact to start from, and check it against the flags.

    Args:
        folder: of the artifact.
        asked: settings from the command line.
        reads: features from the command line.
        files: covariates that features may read.

    Raises:
        typer.BadParameter: flags contradict the artifact; the message names all of them.
        ConfigurationError: no training can start from the artifact.
        ArtifactError: the artifact is damaged.
    """
    parent = ParentArtifact.load(folder)
    wrong = [*contradictions(parent, asked), *other_features(parent, reads, files.read)]
    if wrong:
        raise typer.BadParameter(
            f"{'; '.join(wrong)}: with --from these come with the weights; leave the flags out, or train from scratch"
        )
    return parent


def tell_use_of(out: Path, bars: BarsFlags, files: CovariateFlags) -> None:
    """Print the next commands for a new artifact, on the bars that it was trained on."""
    tell_next(
        quantra("inspect", out),
        quantra("evaluate", out, *given(bars, files)),
        quantra("predict", "--artifact", out, *given(bars, files)),
    )
