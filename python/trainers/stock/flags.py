"""Flags, besides those of a recipe, that the command of stock models has, and what is bad usage among them.

Among them is `--from ARTIFACT`: what comes from the artifact, and which flags therefore contradict it.
"""

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

"""Optimisation settings of a model whose weights are not learnt."""


_FREE: Final = frozenset({"parts", "calendar", "dropout"})

"""Settings that are no part of the weights."""


def needless_learning(asked: RecipeChanges) -> tuple[str, ...]:
    """What was asked for that says how weights are learnt, of a model that has none."""
    if kind_named(asked.kind).learns:
        return ()
    return tuple(name for field, name in asked.optimisation.flags.items() if field not in WITHOUT_LEARNING)


def continued(parent: ParentArtifact) -> StockRecipe:
    """The artifact's recipe as far as its weights depend on it; the rest is what suits its kind."""
    kind = parent.recipe.kind
    return replace(parent.recipe, shares=SplitShares(), parts=None, optimisation=optimisation_of(kind))


def contradictions(parent: ParentArtifact, asked: RecipeChanges) -> Iterator[str]:
    """Settings that ask for something other than the artifact's own."""
    recipe = parent.recipe
    yield from _other(asked.recipe, recipe)
    yield from _other(asked.target, recipe.target)
    yield from _other(asked.network, recipe.config)


def other_features(
    parent: ParentArtifact, reads: ParsedFlags[FeatureSelection], files: Callable[[], CovariateSource]
) -> Iterator[str]:
    """Settings that ask for other features, or for other covariates that are known ahead; else no file is read."""
    if not reads.values:
        return
    own = parent.features.covariates.known
    asked = reads.over(FeatureSelection(known=",".join(own)))
    fields = covariate_fields(files(), asked.known)
    if set(fields.known) != set(own):
        yield f"{reads.flags['known']} is {asked.known} and the artifact's {','.join(own) or 'none'}"
    elif "features" in reads.flags and (
        features_identity(features_named(asked.features, parent.recipe.calendar, fields))
        != features_identity(parent.features)
    ):
        yield f"{reads.flags['features']} is {asked.features}, whose features are not the artifact's"


def _other(given: ParsedFlags[SettingsT], own: SettingsT) -> Iterator[str]:
    held = {field.name: getattr(own, field.name) for field in fields(own)}
    for name, flag in given.flags.items():
        if name not in _FREE and given.values[name] != held.get(name):
            yield f"{flag} is {_shown(given.values[name])} and the artifact's {_shown(held.get(name))}"


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
    """Refuse flags that say how weights are learnt, given to a model that has none.

    Raises:
        typer.BadParameter: naming the flags.
    """
    flags = needless_learning(asked)
    if flags:
        raise typer.BadParameter(
            f"{', '.join(flags)} say how weights are learnt, but model {asked.kind} has none; leave them out"
        )


def chosen_parent(
    folder: Path, asked: RecipeChanges, reads: ParsedFlags[FeatureSelection], files: CovariateFlags
) -> ParentArtifact:
    """The artifact to start from.

    Args:
        folder: the artifact's.
        asked: the settings given on the command line.
        reads: the features given there.
        files: covariates that features may read.

    Raises:
        typer.BadParameter: flags contradict it; the message names all of them.
        ConfigurationError: no training can start from it.
        ArtifactError: it is damaged.
    """
    parent = ParentArtifact.load(folder)
    wrong = [*contradictions(parent, asked), *other_features(parent, reads, files.read)]
    if wrong:
        raise typer.BadParameter(
            f"{'; '.join(wrong)}: with --from these come with the weights; leave the flags out, or train from scratch"
        )
    return parent


def tell_use_of(out: Path, bars: BarsFlags, files: CovariateFlags) -> None:
    """Tells a person what to do with a new artifact, on the bars that it was made of."""
    tell_next(
        quantra("inspect", out),
        quantra("evaluate", out, *given(bars, files)),
        quantra("predict", "--artifact", out, *given(bars, files)),
    )
