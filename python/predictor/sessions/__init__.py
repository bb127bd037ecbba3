"""The trading sessions of an exchange, as a value that a model's artifact carries (`calendar.json`).

A forecast for "5 sessions ahead" needs to know which days those are, a daily bar is only a bar once its session has
closed, and a missing session must be told from a holiday. All of that is answered here from a list of holidays and
close times, so that serving needs no calendar package. Building the list does (extra `calendars`).

Dates are int32 yyyymmdd of the session in the exchange's own time zone, everywhere.
"""

from predictor.sessions.calendar import FIELDS, HOLIDAY_REACH, SessionCalendar
from predictor.sessions.dates import dates_of, days_of
from predictor.sessions.schedule import WEEKDAYS, CloseTime, Schedule

__all__ = [
    "FIELDS",
    "HOLIDAY_REACH",
    "WEEKDAYS",
    "CloseTime",
    "Schedule",
    "SessionCalendar",
    "dates_of",
    "days_of",
]
