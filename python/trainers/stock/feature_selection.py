"""Selection and fitting of a model's features and covariates."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np

from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.catalog import CovariateGroup, CovariateInfo
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, CovariatesError, format_names
from predictor.features import (
    CovariateFields,
    FeatureSet,
    FittedFeatures,
    StaticFeatures,
    load_alpha158_features,
    load_default_features,
    load_every_day_features,
)
from predictor.features.fitted_features import Scaling
from predictor.flags import Flag
from predictor.sessions import EVERY_DAY, SessionCalendar
from predictor.windows import Pipeline
from trainers.stock.feature_cache import FeatureCache

Known = Annotated[str, Flag("Covariates whose values of future sessions are known ahead.", metavar="NAME,…")]


NAMED: Final = ("default", "prices", "alpha158")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSelection:
    """Which features a model reads."""

    features: Annotated[str, Flag("`default`, `prices` (default without volume), `alpha158`, or a file.")] = "default"
    known: Known = ""

    def load(self, covariates: CovariateSource, calendar: str) -> FeatureSet:
        """The features of a model of this calendar, including the columns of these files.

        Raises:
            QuantraError: see `load_features` and `list_covariate_fields`.
        """
        return load_features(self.features, calendar, list_covariate_fields(covariates, self.known))


def check_features(name: str) -> None:
    """Check that a name is a feature set or a file.

    Raises:
        ConfigurationError: it is neither.
    """
    if name not in NAMED and not Path(name).is_file():
        raise ConfigurationError(f"features is {name!r}, but must be {', '.join(NAMED)} or a file of expressions")


def load_features(name: str, calendar: str, covariates: CovariateFields | None = None) -> FeatureSet:
    """The feature set of that name, or of the file at that path.

    `default` and `prices` differ for markets that trade every day. Each column of covariates that no expression of the
    file reads becomes a feature.
    """
    columns = covariates or CovariateFields()
    if name == "alpha158":
        features = load_alpha158_features()
    elif name in NAMED:
        features = load_every_day_features() if calendar == EVERY_DAY else load_default_features()
        features = features.without_volume() if name == "prices" else features
    else:
        features = FeatureSet.read(name, columns)
    return features.with_covariates(columns)


def list_covariate_fields(covariates: CovariateSource, known: str = "") -> CovariateFields:
    """The columns of files as fields of the feature language.

    `known` names the columns whose future values are known, with commas; the others are observed.

    Raises:
        ConfigurationError: no file has such a column.
    """
    names, ahead = covariates.series_names, [name.strip() for name in known.split(",") if name.strip()]
    unknown = [name for name in ahead if name not in names]
    if unknown:
        raise ConfigurationError(
            f"known inputs {', '.join(unknown)} are in no covariate file; the files have {', '.join(names) or 'none'}"
        )
    return CovariateFields(
        observed=tuple(name for name in names if name not in ahead),
        known=tuple(name for name in names if name in ahead),
    )


def fit_features(
    bars: BarPanel,
    features: FeatureSet,
    calendar: SessionCalendar,
    covariates: CovariateSource,
    cache: FeatureCache | None = None,
) -> FittedFeatures:
    """Fit the features on the training split only.

    Bars are cut at the end of the training split, and only values known by then are used, so later ones have no effect.

    Raises:
        CovariateMissingError: the features read a covariate that no file has.
        CovariatesError: a static covariate is a number for most symbols, and a text for a few.
        ConfigurationError: a feature or a static covariate hardly varies.
    """
    last = int(bars.sessions[-1])
    needs = _list_field_needs(features.covariates)
    values = covariates.values_for(needs, bars, np.zeros(0, np.int32), known_by=last)
    known = covariates.known(needs, bars.symbols, bars.sessions, known_by=last)

    def fit() -> Scaling:
        if cache is None:
            columns = features.columns(bars.adjusted(), values.observed)
        else:
            columns = cache.spill_columns(
                len(features.observed),
                bars,
                (
                    (rows, features.columns(adjusted, {name: series[rows] for name, series in values.observed.items()}))
                    for rows, adjusted in bars.adjusted_blocks()
                ),
            )
        return Scaling.fit(columns, names=features.names, present=bars.present, sparse=features.sparse)

    return FittedFeatures.with_scaling(
        features,
        fit() if cache is None else cache.load_scaling(bars, features, covariates, fit),
        known=features.evaluate_known(calendar.fields(bars.sessions), known) if features.covariates.known else None,
        statics=_fit_statics(bars, covariates),
    )


def describe_covariates(pipeline: Pipeline, covariates: CovariateSource) -> dict[str, Json]:
    """The card's section on covariates; empty without any."""
    if not pipeline.covariates:
        return {}
    groups: dict[str, Json] = {
        group.value: [covariate.name for covariate in pipeline.covariates if covariate.group is group]
        for group in CovariateGroup
    }
    return {"covariates": {**groups, "sha256": covariates.digest()}}


def list_needs(features: FeatureSet, covariates: CovariateSource) -> tuple[CovariateInfo, ...]:
    """Covariates that a training run reads: those of the features, and all static ones."""
    facts = (CovariateInfo(name=name, group=CovariateGroup.STATIC) for name in covariates.static_names)
    return (*_list_field_needs(features.covariates), *facts)


def _list_field_needs(fields: CovariateFields) -> tuple[CovariateInfo, ...]:
    return (
        *(CovariateInfo(name=name, group=CovariateGroup.OBSERVED) for name in fields.observed),
        *(CovariateInfo(name=name, group=CovariateGroup.KNOWN) for name in fields.known),
    )


def _fit_statics(bars: BarPanel, covariates: CovariateSource) -> StaticFeatures:
    """Static features, fitted on the symbols with a bar in the training split."""
    table = covariates.statics
    if table is None:
        return StaticFeatures()
    for name in table.names:
        stray = table.without_number(name)
        if 0 < 2 * len(stray) < sum(text != "" for text in table.texts[name]):  # they would make numbers categories
            raise CovariatesError(
                f"static covariate {name} is a number for most symbols, but not for {format_names(stray)}; leave a "
                "cell empty where it is unknown, or write a letter before each if they are codes"
            )
    traded = np.flatnonzero(bars.present.any(axis=1))
    symbols = [bars.symbols[s] for s in traded]
    return StaticFeatures.fit(
        {name: table.numbers_of(name, symbols) for name in table.names if name in table.numbers},
        {name: table.texts_of(name, symbols) for name in table.names if name not in table.numbers},
    )
