"""The columns that an expression can read, and how each follows from what is given."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from predictor.arrays import FloatArray
from predictor.bars import AdjustedBars
from predictor.bars.adjustment import FORMULAS as ADJUSTMENT
from predictor.covariates import check_name
from predictor.errors import ConfigurationError, CovariateMissingError
from predictor.sessions import HOLIDAY_REACH


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSet:
    """The columns that one kind of feature can read.

    Attributes:
        name: What the kind is called in messages.
        formulas: Each column's name, without the dollar, and how it follows from what is given.
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
"""Columns of the calendar, known for future sessions too; whole numbers as float64."""

COVARIATES: Final[Mapping[str, str]] = {
    "observed": "value of the latest date among the rows with known_from up to the session, the one that became known "
    "last if several; unknown where the symbol has no bar",
    "known": "value of the latest date up to the session's own among the rows known by the last bar, the one that "
    "became known last if several; of future sessions too",
}
"""How a covariate's column follows from rows of date, known_from and value."""

FORMULAS: Final[Mapping[str, Mapping[str, str]]] = {
    "adjustment": ADJUSTMENT,
    "observed": OBSERVED.formulas,
    "known": KNOWN.formulas,
    "covariates": COVARIATES,
}
"""What features.json says of the columns: enough to compute them without this program."""

Columns = Mapping[str, FloatArray]
NO_COLUMNS: Final[Columns] = {}

MOST_COVARIATES: Final = 500


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CovariateFields:
    """Columns beside those of bars and calendar, by name.

    Attributes:
        observed: Read by observed features, as known at the close of each session.
        known: Read by known features, of future sessions too.

    Raises:
        ConfigurationError: There are too many, or a name is invalid, appears twice, or is that of another column.
    """

    observed: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the names."""
        names = (*self.observed, *self.known)
        if len(names) > MOST_COVARIATES:
            raise ConfigurationError(f"there are {len(names)} covariates, at most {MOST_COVARIATES} are read")
        taken = {*OBSERVED.formulas, *KNOWN.formulas}
        for name in names:
            check_name(name)
            if name in taken:
                raise ConfigurationError(f"covariate {name} has the name of another column; rename it in its file")
            taken.add(name)

    @property
    def observed_set(self) -> FieldSet:
        """What observed features can read."""
        return _joined(OBSERVED, self.observed, COVARIATES["observed"])

    @property
    def known_set(self) -> FieldSet:
        """What known features can read."""
        return _joined(KNOWN, self.known, COVARIATES["known"])


def _joined(fields: FieldSet, names: tuple[str, ...], formula: str) -> FieldSet:
    return FieldSet(name=fields.name, formulas={**fields.formulas, **dict.fromkeys(names, formula)})


def observed_columns(bars: AdjustedBars) -> dict[str, FloatArray]:
    """The bars' columns under the names of `OBSERVED`; each float64 [S, T]."""
    return {
        "open": bars.open,
        "high": bars.high,
        "low": bars.low,
        "close": bars.close,
        "volume": bars.volume,
        "money": bars.money,
    }


def check_given(names: tuple[str, ...], covariates: Columns) -> None:
    """Refuse to go on without a covariate.

    Raises:
        CovariateMissingError: naming the first one.
    """
    for name in names:
        if name not in covariates:
            raise CovariateMissingError(
                f"covariate {name} is missing: the model reads it beside the bars", metadata={"covariate": name}
            )
