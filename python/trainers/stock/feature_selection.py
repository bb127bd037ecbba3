"""What a model reads: features by name or from a file, and the columns of covariate files among them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np

from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.catalog import CovariateGroup, CovariateInfo
from predictor.covariates import CovariateSource, StaticTable
from predictor.errors import ConfigurationError, CovariatesError, listed
from predictor.features import (
    CovariateFields,
    FeatureSet,
    FittedFeatures,
    StaticFeatures,
    alpha158_features,
    default_features,
    every_day_features,
)
from predictor.flags import Flag
from predictor.sessions import EVERY_DAY, SessionCalendar
from predictor.windows import Pipeline

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


def fit_features(
    learnt: BarPanel, features: FeatureSet, calendar: SessionCalendar, covariates: CovariateSource
) -> FittedFeatures:
    """Every number of the features, from the training part alone.

    Args:
        learnt: bars cut at the end of that part, so that nothing later can move a number.
        features: what the network reads of bars, calendar and covariates.
        calendar: holds the sessions of the bars.
        covariates: files; of what they say, all that was known by the end of that part.

    Raises:
        CovariateMissingError: the features read a covariate that no file has.
        CovariatesError: a static covariate is a number for most symbols, and a text for a few.
        ConfigurationError: a feature or a static covariate hardly varies.
    """
    last = int(learnt.sessions[-1])
    needs = _needs(features.covariates)
    beside = covariates.beside(needs, learnt, np.zeros(0, np.int32), known_by=last)
    known = covariates.known(needs, learnt.symbols, learnt.sessions, known_by=last)
    return FittedFeatures.fit(
        features,
        features.columns(learnt.adjusted(), beside.observed),
        known=features.evaluate_known(calendar.fields(learnt.sessions), known) if features.covariates.known else None,
        statics=_statics(learnt, covariates),
        present=learnt.present,
    )


def covariates_card(pipeline: Pipeline, covariates: CovariateSource) -> dict[str, Json]:
    """What the card says of them; nothing where there are none."""
    if not pipeline.covariates:
        return {}
    groups: dict[str, Json] = {
        group.value: [one.name for one in pipeline.covariates if one.group is group] for group in CovariateGroup
    }
    return {"covariates": {**groups, "sha256": covariates.digest()}}


def needs_of(features: FeatureSet, covariates: CovariateSource) -> tuple[CovariateInfo, ...]:
    """What a training reads from the files: what the features name, and every static covariate."""
    facts = (CovariateInfo(name=name, group=CovariateGroup.STATIC) for name in covariates.static_names)
    return (*_needs(features.covariates), *facts)


def _needs(fields: CovariateFields) -> tuple[CovariateInfo, ...]:
    return (
        *(CovariateInfo(name=name, group=CovariateGroup.OBSERVED) for name in fields.observed),
        *(CovariateInfo(name=name, group=CovariateGroup.KNOWN) for name in fields.known),
    )


def _refuse_a_stray_text(table: StaticTable, name: str) -> None:
    """A few texts among numbers are mistakes, which would make each of the numbers a category of its own."""
    stray = table.without_number(name)
    if 0 < 2 * len(stray) < sum(text != "" for text in table.texts[name]):
        raise CovariatesError(
            f"static covariate {name} is a number for most symbols, but not for {listed(stray)}; leave a cell empty "
            "where it is unknown, or write a letter before each if they are codes"
        )


def _statics(learnt: BarPanel, covariates: CovariateSource) -> StaticFeatures:
    """Fitted on the symbols that have a bar in the training part."""
    table = covariates.statics
    if table is None:
        return StaticFeatures()
    for name in table.names:
        _refuse_a_stray_text(table, name)
    traded = np.flatnonzero(learnt.present.any(axis=1))
    symbols = [learnt.symbols[s] for s in traded]
    return StaticFeatures.fit(
        {name: table.numbers_of(name, symbols) for name in table.names if name in table.numbers},
        {name: table.texts_of(name, symbols) for name in table.names if name not in table.numbers},
    )
