"""Flags, besides those of a recipe, that commands of stock models share, and what their texts mean.

Among them is `--from ARTIFACT`: what comes from the artifact, and which flags therefore contradict it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from predictor.cli.options import CovariateFlags
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError
from predictor.features import CovariateFields, FeatureSet, alpha158_features, default_features, every_day_features
from predictor.flags import Flag, Given, SettingsT
from predictor.networks import kind_named
from predictor.sessions import EVERY_DAY
from trainers.stock.card import features_identity
from trainers.stock.recipe import Recipe, RecipeChanges, optimisation_of
from trainers.stock.splits import SplitShares
from trainers.stock.training_data import Parent

Known = Annotated[str, Flag("Covariates whose values of future sessions are known ahead.", metavar="NAME,…")]
WITHOUT_LEARNING: Final = frozenset({"device", "seed", "deterministic"})
"""Optimisation settings of a model whose weights are not learnt."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """Which features a model reads."""

    features: Annotated[str, Flag("A file of feature expressions, `default` or `alpha158`.")] = "default"
    known: Known = ""

    def beside(self, covariates: CovariateSource, calendar: str) -> FeatureSet:
        """The features of a model of this calendar, with the columns of these files among them.

        Raises:
            QuantraError: see `features_named` and `covariate_fields`.
        """
        return features_named(self.features, calendar, covariate_fields(covariates, self.known))


def features_named(name: str, calendar: str, covariates: CovariateFields | None = None) -> FeatureSet:
    """The feature set of that name, or of the file at that path.

    Args:
        name: `default`, `alpha158` or a path.
        calendar: the model's; what trades on every day of the week has a default of its own.
        covariates: columns that the file's expressions may read; one that none of them reads becomes a feature.
    """
    beside = covariates or CovariateFields()
    default = every_day_features if calendar == EVERY_DAY else default_features
    named = {"default": default, "alpha158": alpha158_features}
    chosen = named[name]() if name in named else FeatureSet.read(name, beside)
    return chosen.with_covariates(beside)


def covariate_fields(covariates: CovariateSource, known: str = "") -> CovariateFields:
    """The columns of files as fields of the feature language.

    Args:
        covariates: the files.
        known: names, with commas, of those whose future values are known ahead; the others are observed.

    Raises:
        ConfigurationError: no file has such a column.
    """
    names, ahead = covariates.series_names, [name.strip() for name in known.split(",") if name.strip()]
    strangers = [name for name in ahead if name not in names]
    if strangers:
        raise ConfigurationError(
            f"known inputs {', '.join(strangers)} are in no covariate file; the files have {', '.join(names) or 'none'}"
        )
    return CovariateFields(
        observed=tuple(name for name in names if name not in ahead),
        known=tuple(name for name in names if name in ahead),
    )


def refuse_learning(asked: RecipeChanges) -> None:
    """Refuse flags that say how weights are learnt, given to a model that has none.

    Raises:
        typer.BadParameter: naming the flags.
    """
    if kind_named(asked.kind).learns:
        return
    flags = [flag for name, flag in asked.optimisation.flags.items() if name not in WITHOUT_LEARNING]
    if flags:
        raise typer.BadParameter(
            f"{', '.join(flags)} say how weights are learnt, but model {asked.kind} has none; leave them out"
        )


def chosen_parent(folder: Path, asked: RecipeChanges, reads: Given[Reads], files: CovariateFlags) -> Parent:
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
            f"{'; '.join(wrong)}: with --from these come with the weights; leave the flags out, or train from scratch"
        )
    return parent


def continued(parent: Parent) -> Recipe:
    """The artifact's recipe as far as its weights depend on it; the rest is what suits its kind."""
    kind = parent.recipe.kind
    return replace(parent.recipe, shares=SplitShares(), parts=None, optimisation=optimisation_of(kind))


def _contradictions(given: Given[SettingsT], own: SettingsT) -> Iterator[str]:
    """Flags that ask for something other than the artifact's own."""
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
        features_identity(features_named(asked.features, parent.recipe.calendar, fields))
        != features_identity(parent.features)
    ):
        yield f"{reads.flags['features']} is {asked.features}, whose features are not the artifact's"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{part:g}" for part in value)
    return "none" if value is None else str(value)
