"""Flags that commands of stock models share beside those of a recipe, and what their texts mean."""

from dataclasses import dataclass
from typing import Annotated, Final

import typer

from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError
from predictor.features import CovariateFields, FeatureSet, alpha158_features, default_features
from predictor.flags import Flag
from predictor.networks import kind_named
from trainers.stock.recipe import RecipeChanges

Known = Annotated[str, Flag("Covariates whose value of a future session is known ahead of it.", metavar="NAME,…")]
WITHOUT_LEARNING: Final = frozenset({"device", "seed", "deterministic"})
"""Settings of an optimisation that a model has whose weights are not learnt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """Which features a model reads."""

    features: Annotated[str, Flag("A file of feature expressions, `default` or `alpha158`.")] = "default"
    known: Known = ""

    def beside(self, covariates: CovariateSource) -> FeatureSet:
        """The features, with the columns of these files among them.

        Raises:
            QuantraError: see `features_named` and `covariate_fields`.
        """
        return features_named(self.features, covariate_fields(covariates, self.known))


def features_named(name: str, covariates: CovariateFields | None = None) -> FeatureSet:
    """The feature set of that name, or of the file at that path.

    Args:
        name: `default`, `alpha158` or a path.
        covariates: columns that the file's expressions may read; one that none of them reads becomes a feature.
    """
    beside = covariates or CovariateFields()
    named = {"default": default_features, "alpha158": alpha158_features}
    chosen = named[name]() if name in named else FeatureSet.read(name, beside)
    return chosen.with_covariates(beside)


def covariate_fields(covariates: CovariateSource, known: str = "") -> CovariateFields:
    """The columns of files as fields of the feature language.

    Args:
        covariates: the files.
        known: names, with commas, of those whose value of a future session is known ahead; the others are observed.

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
