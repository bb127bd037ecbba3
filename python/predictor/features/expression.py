"""Feature expressions as trees of immutable nodes, their canonical text, and the columns that they can read.

The canonical text has no default arguments, integers for windows, numbers as the shortest decimals that parse to the
same bits, and parentheses only where necessary.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, final

from predictor.arrays import FloatArray
from predictor.bars import AdjustedBars
from predictor.bars.adjustment import FORMULAS as ADJUSTMENT
from predictor.covariates import check_name
from predictor.errors import ConfigurationError, CovariateMissingError
from predictor.sessions import HOLIDAY_REACH

BinaryOperator = Literal[">", "<", "+", "-", "*", "/"]


_COMPARISON, _SUM, _PRODUCT, _NEGATIVE, _ATOM = 1, 2, 3, 4, 5

_BINDING: Final = {">": _COMPARISON, "<": _COMPARISON, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT}

_MAX_PLAIN_INTEGER: Final = 1e15


@final
@dataclass(frozen=True, slots=True)
class Number:
    """A constant, finite and not negative; a negative one is a `Negative` of its absolute value."""

    value: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.value) or math.copysign(1.0, self.value) < 0:
            raise ValueError(f"a number in an expression must be finite and not negative, but is {self.value}")

    def __str__(self) -> str:
        return _format_number(self.value)


@final
@dataclass(frozen=True, slots=True)
class Field:
    """A column of the bars, the calendar or the covariates; `name` excludes the dollar sign."""

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


@final
@dataclass(frozen=True, slots=True)
class Negative:
    """The negated operand."""

    operand: "Expression"

    def __str__(self) -> str:
        return f"-{_format_within(self.operand, _NEGATIVE)}"


@final
@dataclass(frozen=True, slots=True)
class Binary:
    """An element-wise operation on two operands."""

    operator: BinaryOperator
    left: "Expression"
    right: "Expression"

    def __str__(self) -> str:
        """Format with the right operand in parentheses unless it binds tighter, since operators are left-associative.

        A comparison is not associative, so the same applies to its left operand.
        """
        binding = _BINDING[self.operator]
        left = _format_within(self.left, binding + (binding == _COMPARISON))
        return f"{left} {self.operator} {_format_within(self.right, binding + 1)}"


@final
@dataclass(frozen=True, slots=True)
class Call:
    """A named operator over series; `windows` are the integers of its signature, `numbers` its other numbers."""

    operator: str
    arguments: tuple["Expression", ...]
    windows: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()

    def __str__(self) -> str:
        texts = (*map(str, self.arguments), *map(str, self.windows), *map(_format_number, self.numbers))
        return f"{self.operator}({', '.join(texts)})"


Expression = Number | Field | Negative | Binary | Call


def collect_fields(expression: Expression) -> frozenset[str]:
    """The columns that an expression reads."""
    match expression:
        case Number():
            return frozenset()
        case Field(name):
            return frozenset((name,))
        case Negative(operand):
            return collect_fields(operand)
        case Binary(_, left, right):
            return collect_fields(left) | collect_fields(right)
        case Call():
            return frozenset[str]().union(*map(collect_fields, expression.arguments))


def _format_within(expression: Expression, binding: int) -> str:
    """Format an expression, in parentheses if it binds less tightly than `binding`."""
    match expression:
        case Binary():
            own_binding = _BINDING[expression.operator]
        case Negative():
            own_binding = _NEGATIVE
        case _:
            own_binding = _ATOM
    return f"({expression})" if own_binding < binding else str(expression)


def _format_number(value: float) -> str:
    """Format a number, such as `5`, `0.25`, `1e-9`: `repr` without a fraction of zero and leading exponent zeros."""
    if value.is_integer() and value <= _MAX_PLAIN_INTEGER:
        return str(int(value))
    digits, _, exponent = repr(value).partition("e")
    return f"{digits}e{int(exponent)}" if exponent else digits


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSet:
    """The columns that one kind of feature can read.

    Attributes:
        name: The kind of feature, for messages.
        formulas: The definition of each column by name, without the dollar sign.
    """

    name: str
    formulas: Mapping[str, str]


OBSERVED: Final = FieldSet(
    name="observed",
    formulas={
        "open": "raw open * factor",
        "high": "raw high * factor",
        "low": "raw low * factor",
        "close": "raw close * factor",
        "volume": "volume of the adjustment",
        "money": "raw close * raw volume",
    },
)
"""Columns of the bars, known up to the last bar. `factor` and `volume` are those of predictor.bars.adjustment."""


KNOWN: Final = FieldSet(
    name="known",
    formulas={
        "weekday": "0 = Monday to 4 = Friday",
        "sessions_to_month_end": "sessions that follow in the same month, unannounced holidays counted as sessions",
        "sessions_from_month_start": "sessions that came before in the same month",
        "days_to_holiday": f"calendar days until the next announced holiday, at most {HOLIDAY_REACH}",
        "days_from_holiday": f"calendar days since the last holiday, at most {HOLIDAY_REACH}",
    },
)
"""Columns of the calendar, known for future sessions too; integers as float64."""


DATES: Final[Mapping[str, str]] = {"day_of_month": "1 to 31", "month_of_year": "1 to 12"}
"""Further columns of the calendar. Only features.json files that read them state them."""


COVARIATES: Final[Mapping[str, str]] = {
    "observed": "value of the latest date among the rows with known_from up to the session, the one that became known "
    "last if several; unknown where the symbol has no bar",
    "known": "value of the latest date up to the session's own among the rows known by the last bar, the one that "
    "became known last if several; of future sessions too",
}
"""The definitions of a covariate's column, from rows of date, known_from and value."""


FORMULAS: Final[Mapping[str, Mapping[str, str]]] = {
    "adjustment": ADJUSTMENT,
    "observed": OBSERVED.formulas,
    "known": KNOWN.formulas,
    "covariates": COVARIATES,
}
"""The definitions of all columns in features.json, sufficient to compute them without Quantra."""


Columns = Mapping[str, FloatArray]

NO_COLUMNS: Final[Columns] = {}


MAX_COVARIATES: Final = 500


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CovariateFields:
    """The names of the covariates that features can read.

    Attributes:
        observed: Covariates of observed features, as known at the close of each session.
        known: Covariates of known features, which include future sessions.

    Raises:
        ConfigurationError: There are too many names, or one is invalid, repeated, or the name of another column.
    """

    observed: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = (*self.observed, *self.known)
        if len(names) > MAX_COVARIATES:
            raise ConfigurationError(f"there are {len(names)} covariates, but at most {MAX_COVARIATES} are allowed")
        taken_names = {*OBSERVED.formulas, *KNOWN.formulas, *DATES}
        for name in names:
            check_name(name)
            if name in taken_names:
                raise ConfigurationError(f"covariate {name} has the name of another column; rename it in its file")
            taken_names.add(name)

    @property
    def observed_set(self) -> FieldSet:
        """The columns that observed features can read."""
        return _join(OBSERVED, self.observed, COVARIATES["observed"])

    @property
    def known_set(self) -> FieldSet:
        """The columns that known features can read."""
        fields = FieldSet(name=KNOWN.name, formulas={**KNOWN.formulas, **DATES})
        return _join(fields, self.known, COVARIATES["known"])


def _join(fields: FieldSet, names: tuple[str, ...], formula: str) -> FieldSet:
    return FieldSet(name=fields.name, formulas={**fields.formulas, **dict.fromkeys(names, formula)})


def list_observed_columns(bars: AdjustedBars) -> dict[str, FloatArray]:
    """The columns of bars by their names in `OBSERVED`, each float64 [S, T]."""
    return {
        "open": bars.open,
        "high": bars.high,
        "low": bars.low,
        "close": bars.close,
        "volume": bars.volume,
        "money": bars.money,
    }


def check_present(names: tuple[str, ...], covariates: Columns) -> None:
    """Check that all covariates that the features read are present.

    Raises:
        CovariateMissingError: a covariate is missing.
    """
    for name in names:
        if name not in covariates:
            raise CovariateMissingError(
                f"covariate {name} is missing, but the model reads it; send it with the bars",
                metadata={"covariate": name},
            )
