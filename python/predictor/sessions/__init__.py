"""Trading sessions of an exchange, stored in a model's artifact as `calendar.json`.

The calendar determines the future sessions of a forecast, whether a bar's session has closed, and whether a missing
day is a holiday. It is computed from lists of holidays and close times, so serving needs no calendar package; building
these lists does (extra `calendars`).

Dates are int32 yyyymmdd of the session in the exchange's time zone. Assets that trade every day of the week use the
calendar `24/7`, which needs no package and whose sessions are days in UTC.
"""

from predictor.sessions.calendar import FIELDS, HOLIDAY_REACH, SessionCalendar
from predictor.sessions.schedule import EVERY_DAY, WEEKDAYS, CloseTime

__all__ = [
    "EVERY_DAY",
    "FIELDS",
    "HOLIDAY_REACH",
    "WEEKDAYS",
    "CloseTime",
    "SessionCalendar",
]
