"""`--from ARTIFACT`: what comes from the artifact, and which flags therefore contradict it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from predictor.covariates import CovariateSource
from predictor.networks import read_config, write_config
from trainers.stock.card import features_identity
from trainers.stock.flags import covariate_fields, features_named, given_flags, integers, numbers
from trainers.stock.parent import Parent
from trainers.stock.recipe import Recipe

StartOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="ARTIFACT",
        help="Start from its weights; network, features, horizons, quantiles and scale are the artifact's.",
    ),
]
DECIDED: Final = (
    "model",
    "features",
    "known",
    "target",
    "horizons",
    "quantiles",
    "lag",
    "scale",
    "encoder_length",
    "hidden",
    "layers",
    "blocks",
    "heads",
    "neighbours",
)
"""Parameters of the command that an artifact decides on."""


def chosen_parent(context: typer.Context, folder: Path, covariates: Sequence[Path], static: Path | None) -> Parent:
    """The artifact to start from.

    Args:
        context: tells which flags stand on the command line.
        folder: the artifact's.
        covariates: files of what stands beside the bars, which features may read.
        static: a file of facts of each symbol.

    Raises:
        typer.BadParameter: flags contradict it; the message names all of them.
        ConfigurationError: no training can start from it.
        ArtifactError: it is damaged.
    """
    parent = Parent.load(folder)
    given = given_flags(context, DECIDED)
    own = _own(parent)
    wrong = [
        f"{given[name]} is {_shown(asked)} and the artifact's {_shown(own.get(name))}"
        for name, asked in _asked(context.params, [name for name in given if name not in {"features", "known"}])
        if asked != own.get(name)
    ]
    if {"features", "known"} & set(given):
        wrong += _other_features(context.params, given, parent, CovariateSource.read(covariates, static))
    if wrong:
        raise typer.BadParameter(
            f"{'; '.join(wrong)}: with --from these come with the weights; leave the flags out, or train anew"
        )
    return parent


def described_by(parent: Parent, dropout: float | None) -> Recipe:
    """The recipe as far as the artifact decides on it; dropout is no part of the weights."""
    recipe = parent.recipe
    if dropout is None:
        return recipe
    kind = parent.stored.artifact.manifest.kind
    return Recipe(
        kind=recipe.kind,
        config=read_config(kind, {**write_config(recipe.config), "dropout": dropout}),
        target=recipe.target,
        quantiles=recipe.quantiles,
        encoder_length=recipe.encoder_length,
        scale=recipe.scale,
        normaliser=recipe.normaliser,
        minimum=recipe.minimum,
        calendar=recipe.calendar,
    )


def _own(parent: Parent) -> Mapping[str, object]:
    recipe = parent.recipe
    return {
        "model": recipe.kind,
        "target": recipe.target.kind.value,
        "horizons": recipe.target.horizons,
        "lag": recipe.target.lag,
        "quantiles": recipe.quantiles,
        "scale": recipe.scale,
        "encoder_length": recipe.encoder_length,
        **write_config(recipe.config),
    }


def _asked(parameters: Mapping[str, object], names: Sequence[str]) -> Iterator[tuple[str, object]]:
    """What the flags say, in the artifact's own terms."""
    for name in names:
        value = parameters[name]
        if name == "horizons":
            value = integers(name, str(value))
        elif name == "quantiles":
            value = numbers(name, str(value))
        yield name, value


def _other_features(
    parameters: Mapping[str, object], given: Mapping[str, str], parent: Parent, beside: CovariateSource
) -> Iterator[str]:
    """Flags that ask for other features, or for other covariates that are known ahead."""
    known = str(parameters["known"]) if "known" in given else ",".join(parent.features.covariates.known)
    fields = covariate_fields(beside, known)
    if set(fields.known) != set(parent.features.covariates.known):
        own = ",".join(parent.features.covariates.known)
        yield f"{given['known']} is {known} and the artifact's {own or 'none'}"
    elif "features" in given:
        name = str(parameters["features"])
        if features_identity(features_named(name, fields)) != features_identity(parent.features):
            yield f"{given['features']} is {name}, whose features are not the artifact's"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{part:g}" for part in value)
    return "none" if value is None else str(value)
