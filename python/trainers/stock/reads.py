"""What a model reads: features by name or from a file, and the columns of covariate files among them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError
from predictor.features import CovariateFields, FeatureSet, alpha158_features, default_features, every_day_features
from predictor.flags import Flag
from predictor.sessions import EVERY_DAY

Known = Annotated[str, Flag("Covariates whose values of future sessions are known ahead.", metavar="NAME,…")]

NAMED: Final[Mapping[str, Callable[[], FeatureSet]]] = {"default": default_features, "alpha158": alpha158_features}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSelection:
    """Which features a model reads."""

    features: Annotated[str, Flag("A file of feature expressions, `default` or `alpha158`.")] = "default"
    known: Known = ""

    def beside(self, covariates: CovariateSource, calendar: str) -> FeatureSet:
        """The features of a model of this calendar, with the columns of these files among them.

        Raises:
            QuantraError: see `features_named` and `covariate_fields`.
        """
        return features_named(self.features, calendar, covariate_fields(covariates, self.known))


def check_features(name: str) -> None:
    """Refuse early a name that is neither that of a feature set nor of a file.

    Raises:
        ConfigurationError: it is neither.
    """
    if name not in NAMED and not Path(name).is_file():
        raise ConfigurationError(f"features is {name!r}, but must be {', '.join(NAMED)} or a file of expressions")


def features_named(name: str, calendar: str, covariates: CovariateFields | None = None) -> FeatureSet:
    """The feature set of that name, or of the file at that path.

    Args:
        name: `default`, `alpha158` or a path.
        calendar: the model's; what trades on every day of the week has a default of its own.
        covariates: columns that the file's expressions may read; one that none of them reads becomes a feature.
    """
    beside = covariates or CovariateFields()
    named = {**NAMED, "default": every_day_features} if calendar == EVERY_DAY else NAMED
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
