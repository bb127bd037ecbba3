"""The sessions of a schedule in one table, with what the calendar alone says of each, which is known ahead of time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.sessions.dates import ONE_DAY, dates_of, day_array, weekday_of
from predictor.sessions.schedule import Schedule

FIELDS = ("weekday", "sessions_to_month_end", "sessions_from_month_start", "days_to_holiday", "days_from_holiday")
"""What `SessionCalendar.fields` gives for a session, in this order."""

HOLIDAY_REACH = 30
"""Calendar days. A holiday further away than this, or none, counts as this far."""


@dataclass(frozen=True, slots=True)
class SessionTable:
    """The sessions of a calendar int32 [N], ascending, and FIELDS float64 [5, N]."""

    sessions: NDArray[np.int32]
    fields: NDArray[np.float64]


def table_of(schedule: Schedule) -> SessionTable:
    """The sessions of a schedule and their fields."""
    closed, surprises = day_array(schedule.holidays), day_array(schedule.unannounced)
    days = np.setdiff1d(schedule.days, closed)
    values = np.stack(
        [
            weekday_of(days).astype(np.float64),
            _later_in_month(days, np.union1d(days, surprises)),
            _earlier_in_month(days),
            _days_to(days, np.setdiff1d(closed, surprises)),
            _days_since(days, closed),
        ],
    )
    sessions = dates_of(days)
    sessions.flags.writeable = False
    return SessionTable(sessions, values)


def _earlier_in_month(days: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """How many of `days` come before each of them in its month."""
    months = days.astype("datetime64[M]")
    return (np.arange(days.size) - np.searchsorted(months, months)).astype(np.float64)


def _later_in_month(days: NDArray[np.datetime64], planned: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """How many of the `planned` sessions come after each of `days` in its month."""
    end = np.searchsorted(planned.astype("datetime64[M]"), days.astype("datetime64[M]"), side="right")
    return (end - np.searchsorted(planned, days, side="right")).astype(np.float64)


def _days_to(days: NDArray[np.datetime64], holidays: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Calendar days until the next holiday, at most HOLIDAY_REACH."""
    beyond = days[-1:] + HOLIDAY_REACH * ONE_DAY
    upcoming = np.concatenate([holidays, beyond])[np.searchsorted(holidays, days)]
    return np.minimum((upcoming - days).astype(np.float64), HOLIDAY_REACH)


def _days_since(days: NDArray[np.datetime64], holidays: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Calendar days since the previous holiday, at most HOLIDAY_REACH."""
    beyond = days[:1] - HOLIDAY_REACH * ONE_DAY
    previous = np.concatenate([beyond, holidays])[np.searchsorted(holidays, days)]
    return np.minimum((days - previous).astype(np.float64), HOLIDAY_REACH)
