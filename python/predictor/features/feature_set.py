"""The features of a model: names, expressions, meanings, and their evaluation over bars."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from predictor.bars import AdjustedBars
from predictor.canonical import Record
from predictor.errors import ArtifactError, ConfigurationError, ExpressionError
from predictor.features.evaluator import Plan
from predictor.features.expression import Expression
from predictor.features.fields import KNOWN, OBSERVED, FieldSet, observed_columns
from predictor.features.operators import OPERATOR_SET
from predictor.features.parser import parse

FloatArray = NDArray[np.float64]

SYMBOLS_AT_ONCE: Final = 64
"""Symbols that are evaluated together: few enough that a step's arrays stay in the processor's cache."""

LONGEST_NAME: Final = 64
MOST_FEATURES: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@final
@dataclass(frozen=True, slots=True)
class FeatureDefinition:
    """One feature.

    Attributes:
        name: Letters, digits and underscores, starting with a letter; at most 64.
        expression: Its text in the language of predictor.features.parser.
        meaning: What it tells, for people.
        unit: Of its value, for people; "1" for a plain ratio.
    """

    name: str
    expression: str
    meaning: str
    unit: str

    def __post_init__(self) -> None:
        """Check the name."""
        if len(self.name) > LONGEST_NAME or not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"feature name {self.name[: LONGEST_NAME + 1]!r} must have 1 to {LONGEST_NAME} letters, digits and "
                "underscores, and start with a letter"
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSet:
    """What a model reads of bars and calendar. Expressions are kept as their canonical text.

    Attributes:
        observed: F features of the bars, known up to the last bar; at least one.
        known: K features of the calendar, known for future sessions too; each reads one session only.
        operator_set: The version of the operators' meanings.

    Raises:
        ExpressionError: Naming the feature and the place in its expression.
        ConfigurationError: For a name given twice, a known feature that looks back, or another operator set.
    """

    observed: tuple[FeatureDefinition, ...]
    known: tuple[FeatureDefinition, ...] = ()
    operator_set: int = OPERATOR_SET
    _observed_plan: Plan = field(init=False, repr=False, compare=False)
    _known_plan: Plan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Parse every expression and plan their evaluation."""
        if self.operator_set != OPERATOR_SET:
            raise ConfigurationError(f"operator set {self.operator_set} is unknown; this version has {OPERATOR_SET}")
        self._check_names()
        observed = [_parsed(definition, OBSERVED) for definition in self.observed]
        known = [_parsed(definition, KNOWN) for definition in self.known]
        object.__setattr__(self, "observed", _canonical(self.observed, observed))
        object.__setattr__(self, "known", _canonical(self.known, known))
        object.__setattr__(self, "_observed_plan", Plan(observed))
        object.__setattr__(self, "_known_plan", Plan(known))
        for definition, lookback in zip(self.known, self._known_plan.lookbacks, strict=True):
            if lookback > 1:
                raise ConfigurationError(f"known feature {definition.name} looks back; it may read its own day only")

    def _check_names(self) -> None:
        names = [definition.name for definition in (*self.observed, *self.known)]
        if not self.observed:
            raise ConfigurationError("a feature set needs at least one observed feature")
        if len(names) > MOST_FEATURES:
            raise ConfigurationError(f"a feature set has at most {MOST_FEATURES} features, found {len(names)}")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(f"feature names given twice: {', '.join(twice)}")

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a user's feature file: JSON with operator_set, observed and known, as in an artifact's features.json.

        Raises:
            ConfigurationError: Naming the file and the place that is wrong.
            ExpressionError: Naming the feature and the place in its expression.
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
            return cls(observed=observed, known=known, operator_set=operator_set)
        except ArtifactError as error:
            raise ConfigurationError(error.message) from error
        except ConfigurationError as error:
            raise ConfigurationError(f"{path.name}: {error.message}") from error

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the observed features, in the order of their values."""
        return tuple(definition.name for definition in self.observed)

    @property
    def known_names(self) -> tuple[str, ...]:
        """Names of the known features, in the order of their values."""
        return tuple(definition.name for definition in self.known)

    @property
    def lookback(self) -> int:
        """L: the observed values at bar t depend on bars t - L + 1 to t alone."""
        return self._observed_plan.lookback

    @property
    def lookbacks(self) -> Mapping[str, int]:
        """The look-back of each observed feature by name, in bars."""
        return dict(zip(self.names, self._observed_plan.lookbacks, strict=True))

    def evaluate(self, bars: AdjustedBars) -> FloatArray:
        """The observed features [S, T, F], read-only; NaN where a feature's look-back holds no full set of bars."""
        result = np.empty((*bars.close.shape, len(self.observed)))
        for rows, values in self.blocks(bars):
            result[rows] = values
        result.setflags(write=False)
        return result

    def blocks(self, bars: AdjustedBars) -> Iterator[tuple[slice, FloatArray]]:
        """The observed features [symbols, T, F] of a few symbols after the other, and which symbols these are."""
        columns = observed_columns(bars)
        for first in range(0, bars.close.shape[0], SYMBOLS_AT_ONCE):
            rows = slice(first, first + SYMBOLS_AT_ONCE)
            part = {name: columns[name][rows] for name in self._observed_plan.fields}
            yield rows, self._observed_plan.evaluate(part).transpose(2, 1, 0)

    def evaluate_known(self, columns: Mapping[str, FloatArray]) -> FloatArray:
        """The known features of each session.

        Args:
            columns: The fields of `KNOWN`, each float64 [T].

        Returns:
            float64 [T, K], read-only.

        Raises:
            ConfigurationError: If a field is missing.
        """
        missing = [name for name in KNOWN.formulas if name not in columns]
        if missing:
            raise ConfigurationError(f"calendar fields are missing: {', '.join(missing)}")
        part = {name: np.asarray(columns[name], dtype=np.float64)[None] for name in KNOWN.formulas}
        values = self._known_plan.evaluate(part)[:, :, 0].T
        values.setflags(write=False)
        return values


Definitions = tuple[FeatureDefinition, ...]


def read_features(root: Record) -> tuple[int, Definitions, Definitions]:
    """Operator set, observed and known definitions of a document.

    Raises:
        ArtifactError: Naming the key that is missing, unknown or wrong.
    """
    return root.integer("operator_set"), _definitions(root.records("observed")), _definitions(root.records("known"))


def _definitions(entries: tuple[Record, ...]) -> Definitions:
    return tuple(map(_definition, entries))


def _definition(entry: Record) -> FeatureDefinition:
    texts = [entry.text(key) for key in ("name", "expression", "meaning", "unit")]
    entry.end()
    try:
        return FeatureDefinition(*texts)
    except ConfigurationError as error:
        raise entry.refusal("name", f"cannot be: {error.message}") from error


def _parsed(definition: FeatureDefinition, fields: FieldSet) -> Expression:
    try:
        return parse(definition.expression, fields)
    except ExpressionError as error:
        metadata = {**error.metadata, "feature": definition.name}
        raise ExpressionError(f"feature {definition.name}: {error.message}", metadata=metadata) from error


def _canonical(
    definitions: tuple[FeatureDefinition, ...], expressions: list[Expression]
) -> tuple[FeatureDefinition, ...]:
    pairs = zip(definitions, expressions, strict=True)
    return tuple(replace(definition, expression=str(expression)) for definition, expression in pairs)
