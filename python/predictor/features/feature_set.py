"""The feature set of a model: definitions of its features, and their evaluation over bars."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Self, final

import numpy as np

from predictor.arrays import FloatArray
from predictor.bars import AdjustedBars
from predictor.bars.columns import find_duplicates
from predictor.canonical import Record, read_as
from predictor.errors import ArtifactError, ConfigurationError, ExpressionError
from predictor.features.evaluator import EvaluationPlan
from predictor.features.expression import (
    DATES,
    FORMULAS,
    NO_COLUMNS,
    Columns,
    CovariateFields,
    Expression,
    FieldSet,
    check_present,
    list_observed_columns,
)
from predictor.features.operators import OPERATOR_SET
from predictor.features.parser import parse

SYMBOLS_AT_ONCE: Final = 64
"""Symbols that are evaluated together; small enough that a step's arrays stay in the processor's cache."""

VOLUME_FIELDS: Final = frozenset({"volume", "money"})

FEATURES_AT_ONCE: Final = 4
"""Features that `columns` evaluates together."""

MAX_NAME_LENGTH: Final = 64
MAX_FEATURES: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@final
@dataclass(frozen=True, slots=True)
class FeatureDefinition:
    """The definition of one feature.

    Attributes:
        name: At most 64 letters, digits and underscores, starting with a letter.
        expression: The expression in the language of `predictor.features.parser`.
        meaning: The meaning in words.
        unit: The unit of its values; "1" for a plain ratio.
    """

    name: str
    expression: str
    meaning: str
    unit: str

    def __post_init__(self) -> None:
        if len(self.name) > MAX_NAME_LENGTH or not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"feature name {self.name[: MAX_NAME_LENGTH + 1]!r} must have 1 to {MAX_NAME_LENGTH} letters, digits "
                "and underscores, and start with a letter"
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSet:
    """The features of a model. Expressions are stored as canonical text.

    Attributes:
        observed: F features of the bars and observed covariates, up to the last bar; at least one.
        known: K features of the calendar and known covariates, for future sessions too; each reads only its own
            session.
        covariates: The covariates that the features read.
        operator_set: The set of operators that the expressions may use, 1 to `OPERATOR_SET`.

    Raises:
        ExpressionError: An expression is invalid; the message names the feature and the position.
        ConfigurationError: A name is repeated, a known feature looks back, or the operator set is unknown.
    """

    observed: tuple[FeatureDefinition, ...]
    known: tuple[FeatureDefinition, ...] = ()
    covariates: CovariateFields = field(default_factory=CovariateFields)
    operator_set: int = OPERATOR_SET
    _observed_plan: EvaluationPlan = field(init=False, repr=False, compare=False)
    _known_plan: EvaluationPlan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.operator_set <= OPERATOR_SET:
            raise ConfigurationError(f"operator set {self.operator_set} is unknown; this version has {OPERATOR_SET}")
        self._check_names()
        observed = [_parse(definition, self.covariates.observed_set) for definition in self.observed]
        known = [_parse(definition, self.covariates.known_set) for definition in self.known]
        object.__setattr__(self, "observed", _rewrite_canonically(self.observed, observed))
        object.__setattr__(self, "known", _rewrite_canonically(self.known, known))
        object.__setattr__(self, "_observed_plan", EvaluationPlan(observed))
        object.__setattr__(self, "_known_plan", EvaluationPlan(known))
        for definition, lookback in zip(self.known, self._known_plan.lookbacks, strict=True):
            if lookback > 1:
                raise ConfigurationError(f"known feature {definition.name} looks back; it may read only its own day")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the definitions only; the plans hold functions."""
        build = partial(FeatureSet, observed=self.observed, known=self.known, covariates=self.covariates)
        return partial(build, operator_set=self.operator_set), ()

    def _check_names(self) -> None:
        names = [definition.name for definition in (*self.observed, *self.known)]
        if not self.observed:
            raise ConfigurationError("a feature set needs at least one observed feature")
        if len(names) > MAX_FEATURES:
            raise ConfigurationError(
                f"a feature set has at most {MAX_FEATURES} features, but this one has {len(names)}"
            )
        twice = find_duplicates(names)
        if twice:
            raise ConfigurationError(f"feature names appear twice: {', '.join(twice)}; rename them")

    @classmethod
    def read(cls, path: str | Path, covariates: CovariateFields | None = None) -> Self:
        """Read a user's feature file: JSON with operator_set, observed and known, as in an artifact's features.json.

        Args:
            path: The file.
            covariates: Covariates that its expressions may read.

        Raises:
            ConfigurationError: The file is unreadable or malformed; the message names the file and the key.
            ExpressionError: An expression is invalid; the message names the feature and the position.
        """
        path = Path(path)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"feature file {path} cannot be read: {error.strerror}") from error
        try:
            root = Record.from_bytes(data, path.name)
            operator_set, observed, known = read_features(root)
            root.end()
            fields = covariates or CovariateFields()
            return cls(observed=observed, known=known, covariates=fields, operator_set=operator_set)
        except ArtifactError as error:
            raise ConfigurationError(error.message) from error
        except ConfigurationError as error:
            raise ConfigurationError(f"{path.name}: {error.message}") from error

    def with_covariates(self, covariates: CovariateFields) -> Self:
        """Add a feature for each covariate that no expression reads, with the covariate's value."""
        used_names = {*self._observed_plan.fields, *self._known_plan.fields}
        return replace(
            self,
            observed=(
                *self.observed,
                *(_define_covariate_feature(name) for name in covariates.observed if name not in used_names),
            ),
            known=(
                *self.known,
                *(_define_covariate_feature(name) for name in covariates.known if name not in used_names),
            ),
            covariates=covariates,
        )

    def without_volume(self) -> Self:
        """The set without the observed features that read the volume or the money traded."""
        pairs = zip(self.observed, self._observed_plan.fields_of_each, strict=True)
        return replace(self, observed=tuple(feature for feature, fields in pairs if VOLUME_FIELDS.isdisjoint(fields)))

    @property
    def reads_volume(self) -> bool:
        """Whether an expression reads the volume or the money traded."""
        return not VOLUME_FIELDS.isdisjoint(self._observed_plan.fields)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the observed features, in the order of their values."""
        return tuple(definition.name for definition in self.observed)

    @property
    def known_names(self) -> tuple[str, ...]:
        """Names of the known features, in the order of their values."""
        return tuple(definition.name for definition in self.known)

    @property
    def formulas(self) -> dict[str, dict[str, str]]:
        """The definitions of the columns that its expressions can read, by group."""
        dates = {name: text for name, text in DATES.items() if name in self._known_plan.fields}
        return {group: {**texts, **(dates if group == "known" else {})} for group, texts in FORMULAS.items()}

    @property
    def lookback(self) -> int:
        """The look-back L: observed values at bar t depend only on bars t - L + 1 to t."""
        return self._observed_plan.lookback

    @property
    def lookbacks(self) -> Mapping[str, int]:
        """The look-back of each observed feature by name, in bars."""
        return dict(zip(self.names, self._observed_plan.lookbacks, strict=True))

    @property
    def of_covariates(self) -> tuple[bool, ...]:
        """Which known features [K] read a covariate, so that they differ between symbols and may be NaN."""
        names = set(self.covariates.known)
        return tuple(not names.isdisjoint(fields) for fields in self._known_plan.fields_of_each)

    @property
    def sparse(self) -> frozenset[str]:
        """Names of the observed features that read a covariate, which may be constant most of the time."""
        names = set(self.covariates.observed)
        pairs = zip(self.names, self._observed_plan.fields_of_each, strict=True)
        return frozenset(name for name, fields in pairs if not names.isdisjoint(fields))

    def evaluate(self, bars: AdjustedBars, covariates: Columns = NO_COLUMNS) -> FloatArray:
        """Evaluate the observed features to [S, T, F], read-only; NaN where bars of the look-back are missing."""
        result = np.empty((*bars.close.shape, len(self.observed)))
        for rows, values in self.blocks(bars, covariates):
            result[rows] = values
        result.setflags(write=False)
        return result

    def columns(self, bars: AdjustedBars, covariates: Columns = NO_COLUMNS) -> Iterator[FloatArray]:
        """Yield the values [S, T] of each observed feature, holding only a few at a time.

        Sub-expressions are evaluated repeatedly, so `evaluate` is faster if there is enough memory.
        """
        for first in range(0, len(self.observed), FEATURES_AT_ONCE):
            subset = replace(self, observed=self.observed[first : first + FEATURES_AT_ONCE], known=())
            yield from np.moveaxis(subset.evaluate(bars, covariates), -1, 0)

    def blocks(
        self, bars: AdjustedBars, covariates: Columns = NO_COLUMNS, *, last: int | None = None
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Yield slices of symbols and their observed features [symbols, T, F].

        Args:
            bars: S symbols, T sessions.
            covariates: Observed covariates by name, float64 [S, T], or [1, T] if equal for all symbols.
            last: Compute only the last sessions, this many; None = all T.

        Raises:
            CovariateMissingError: A covariate is missing.
        """
        check_present(self.covariates.observed, covariates)
        columns = list_observed_columns(bars)
        covariate_names = [name for name in self.covariates.observed if name in self._observed_plan.fields]
        for first in range(0, bars.close.shape[0], SYMBOLS_AT_ONCE):
            rows = slice(first, first + SYMBOLS_AT_ONCE)
            part = {name: columns[name][rows] for name in self._observed_plan.fields if name in columns}
            absent = np.isnan(columns["close"][rows])  # like every column, a covariate is NaN without a bar
            for name in covariate_names:
                column = covariates[name]
                part[name] = np.where(absent, np.nan, column[rows] if len(column) > 1 else column)
            plan = self._observed_plan
            values = plan.evaluate(part) if last is None else plan.evaluate_last(part, last)
            yield rows, values.transpose(2, 1, 0)

    def evaluate_known(self, columns: Columns, covariates: Columns = NO_COLUMNS) -> FloatArray:
        """Evaluate the known features of each session.

        Args:
            columns: The fields of the calendar, each float64 [T].
            covariates: Known covariates by name, float64 [S, T], or [1, T] if equal for all symbols.

        Returns:
            float64 [S, T, K], read-only; S is 1 if nothing differs between symbols.

        Raises:
            ConfigurationError: A field of the calendar is missing.
            CovariateMissingError: A covariate is missing.
        """
        fields = self.formulas["known"]
        missing = [name for name in fields if name not in columns]
        if missing:
            raise ConfigurationError(f"calendar fields are missing: {', '.join(missing)}")
        check_present(self.covariates.known, covariates)
        known = [covariates[name] for name in self.covariates.known]
        shape = (max((values.shape[0] for values in known), default=1), len(columns["weekday"]))
        result = np.empty((*shape, len(self.known)))
        for first in range(0, shape[0], SYMBOLS_AT_ONCE):
            rows = slice(first, min(first + SYMBOLS_AT_ONCE, shape[0]))
            block = (rows.stop - first, shape[1])
            part = {name: np.broadcast_to(columns[name], block) for name in fields}
            part |= {
                name: np.broadcast_to(values[rows] if len(values) > 1 else values, block)
                for name, values in zip(self.covariates.known, known, strict=True)
            }
            result[rows] = self._known_plan.evaluate(part).transpose(2, 1, 0)
        result.setflags(write=False)
        return result


Definitions = tuple[FeatureDefinition, ...]


def read_features(root: Record) -> tuple[int, Definitions, Definitions]:
    """Read the operator set and the definitions of observed and known features from a document.

    Raises:
        ArtifactError: A key is missing, unknown or invalid; the message names it.
    """
    operator_set, observed, known = root.integer("operator_set"), root.records("observed"), root.records("known")
    return operator_set, tuple(map(_read_definition, observed)), tuple(map(_read_definition, known))


def _read_definition(entry: Record) -> FeatureDefinition:
    try:
        return read_as(entry, FeatureDefinition, strict=True)
    except ConfigurationError as error:
        raise entry.make_error("name", f"is invalid: {error.message}") from error


def _define_covariate_feature(name: str) -> FeatureDefinition:
    """A feature with a covariate's value."""
    return FeatureDefinition(name, f"${name}", "covariate of the user", "as given")


def _parse(definition: FeatureDefinition, fields: FieldSet) -> Expression:
    try:
        return parse(definition.expression, fields)
    except ExpressionError as error:
        metadata = {**error.metadata, "feature": definition.name}
        raise ExpressionError(f"feature {definition.name}: {error.message}", metadata=metadata) from error


def _rewrite_canonically(
    definitions: tuple[FeatureDefinition, ...], expressions: list[Expression]
) -> tuple[FeatureDefinition, ...]:
    pairs = zip(definitions, expressions, strict=True)
    return tuple(replace(definition, expression=str(expression)) for definition, expression in pairs)
