"""`--from ARTIFACT`: what comes from the artifact, and which flags therefore contradict it."""

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from predictor.cli.options import CovariateFlags
from predictor.flags import Given, SettingsT
from trainers.stock.card import features_identity
from trainers.stock.flags import Reads, covariate_fields, features_named
from trainers.stock.parent import Parent
from trainers.stock.recipe import Recipe, RecipeChanges, optimisation_of
from trainers.stock.splits import SplitShares

StartOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="ARTIFACT",
        help="Start from its weights; network, features, horizons, quantiles and scale are the artifact's.",
    ),
]
_FREE: Final = frozenset({"parts", "calendar", "dropout"})
"""Settings that are no part of the weights."""


def chosen_parent(folder: Path, asked: RecipeChanges, reads: Given[Reads], files: CovariateFlags) -> Parent:
    """The artifact to start from.

    Args:
        folder: the artifact's.
        asked: the settings that stand on the command line.
        reads: the features that do.
        files: of what stands beside the bars, which features may read.

    Raises:
        typer.BadParameter: flags contradict it; the message names all of them.
        ConfigurationError: no training can start from it.
        ArtifactError: it is damaged.
    """
    parent = Parent.load(folder)
    recipe = parent.recipe
    wrong = [
        *_contradictions(asked.recipe, recipe),
        *_contradictions(asked.target, recipe.target),
        *_contradictions(asked.network, recipe.config),
        *(_other_features(reads, parent, files) if reads.values else ()),
    ]
    if wrong:
        raise typer.BadParameter(
            f"{'; '.join(wrong)}: with --from these come with the weights; leave the flags out, or train anew"
        )
    return parent


def continued(parent: Parent) -> Recipe:
    """The artifact's recipe as far as its weights depend on it; the rest is what suits its kind."""
    kind = parent.recipe.kind
    return replace(parent.recipe, shares=SplitShares(), parts=None, optimisation=optimisation_of(kind))


def _contradictions(given: Given[SettingsT], own: SettingsT) -> Iterator[str]:
    """Flags that ask for something else than the artifact's own."""
    held = {field.name: getattr(own, field.name) for field in fields(own)}
    for name, flag in given.flags.items():
        if name not in _FREE and given.values[name] != held.get(name):
            yield f"{flag} is {_shown(given.values[name])} and the artifact's {_shown(held.get(name))}"


def _other_features(reads: Given[Reads], parent: Parent, files: CovariateFlags) -> Iterator[str]:
    """Flags that ask for other features, or for other covariates that are known ahead."""
    own = parent.features.covariates.known
    asked = reads.over(Reads(known=",".join(own)))
    fields = covariate_fields(files.read(), asked.known)
    if set(fields.known) != set(own):
        yield f"{reads.flags['known']} is {asked.known} and the artifact's {','.join(own) or 'none'}"
    elif "features" in reads.flags and (
        features_identity(features_named(asked.features, fields)) != features_identity(parent.features)
    ):
        yield f"{reads.flags['features']} is {asked.features}, whose features are not the artifact's"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{part:g}" for part in value)
    return "none" if value is None else str(value)
