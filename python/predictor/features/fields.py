"""The columns that an expression can read, and how each follows from what is given."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from predictor.bars import AdjustedBars
from predictor.bars.adjustment import FORMULAS as ADJUSTMENT
from predictor.sessions import HOLIDAY_REACH

FloatArray = NDArray[np.float64]


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

FORMULAS: Final[Mapping[str, Mapping[str, str]]] = {
    "adjustment": ADJUSTMENT,
    "observed": OBSERVED.formulas,
    "known": KNOWN.formulas,
}
"""What features.json says of the columns: enough to compute them without this program."""


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
