"""The trading sessions of an exchange, as a value that a model's artifact carries (`calendar.json`).

A forecast for "5 sessions ahead" needs to know which days those are, a daily bar is only a bar once its session has
closed, and a missing session must be told from a holiday. All of that is answered here from a list of holidays and
close times, so that serving needs no calendar package. Building the list does (extra `calendars`).

Dates are int32 yyyymmdd of the session in the exchange's own time zone, everywhere. What trades on every day of the
week has a calendar of its own, `24/7`, for which no package is needed; its sessions are days in UTC.
"""

from predictor.dates import dates_of, days_of, is_weekend
from predictor.sessions.calendar import FIELDS, HOLIDAY_REACH, SessionCalendar
from predictor.sessions.schedule import EVERY_DAY, WEEKDAYS, CloseTime, Schedule

__all__ = [
    "EVERY_DAY",
    "FIELDS",
    "HOLIDAY_REACH",
    "WEEKDAYS",
    "CloseTime",
    "Schedule",
    "SessionCalendar",
    "dates_of",
    "days_of",
    "is_weekend",
]
