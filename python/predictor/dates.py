"""Conversions between Python dates, integers yyyymmdd and NumPy days."""

import calendar
from collections.abc import Sequence
from datetime import date
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predictor.errors import BarsError, ConfigurationError, shown_date

Day = date | str | int
"""A date, an ISO string such as "2012-06-01", or an integer yyyymmdd."""

EARLIEST, LATEST = 18000101, 21991231
"""Limits of a calendar's dates; they keep a damaged or hostile file from allocating a huge table."""

SATURDAY = 5
"""Monday is 0."""
ONE_DAY = np.timedelta64(1, "D")
"""A number without a unit must not be added to days: NumPy 2.5 deprecates it."""


def days_of(dates: NDArray[np.int32]) -> NDArray[np.datetime64]:
    """Convert int32 yyyymmdd to datetime64[D] of the same shape."""
    wide = dates.astype(np.int64)
    months = ((wide // 10000 - 1970) * 12 + wide // 100 % 100 - 1).astype("datetime64[M]")
    return months.astype("datetime64[D]") + (wide % 100 - 1).astype("timedelta64[D]")


def dates_of(days: NDArray[np.datetime64]) -> NDArray[np.int32]:
    """Convert datetime64[D] to int32 yyyymmdd of the same shape."""
    months = days.astype("datetime64[M]")
    since_1970 = months.astype(np.int64)
    of_month = (days - months.astype("datetime64[D]")).astype(np.int64) + 1
    return ((since_1970 // 12 + 1970) * 10000 + (since_1970 % 12 + 1) * 100 + of_month).astype(np.int32)


def day_array(dates: Sequence[int]) -> NDArray[np.datetime64]:
    """Convert N dates yyyymmdd to datetime64[D] [N]."""
    return days_of(np.asarray(dates, np.int32))


@lru_cache(maxsize=4096)
def as_date(day: int) -> date:
    """Convert yyyymmdd to a date."""
    return date(day // 10000, day // 100 % 100, day % 100)


def as_dates(days: NDArray[np.int32]) -> tuple[date, ...]:
    """Convert int32 yyyymmdd [N] to dates."""
    return tuple(map(as_date, days.tolist()))


def as_number(day: date) -> int:
    """Convert a date to yyyymmdd."""
    return day.year * 10000 + day.month * 100 + day.day


def optional_date(day: int) -> date | None:
    """Convert yyyymmdd to a date; 0 means unknown and gives None."""
    return as_date(day) if day else None


def optional_number(day: date | None) -> int:
    """Convert a date to yyyymmdd; None means unknown and gives 0."""
    return as_number(day) if day else 0


def day_number(day: Day) -> int:
    """Convert a date, an ISO string or an integer yyyymmdd to yyyymmdd.

    Raises:
        BarsError: `day` is not a date.
    """
    if isinstance(day, date):
        return as_number(day)
    try:
        return as_number(date.fromisoformat(str(day)))
    except ValueError:
        raise BarsError(f'{day!r} is not a date; pass a date, "2012-06-01" or 20120601') from None


def is_valid_date(day: int) -> bool:
    """Whether yyyymmdd is a real date from EARLIEST to LATEST."""
    year, month, of_month = day // 10000, day // 100 % 100, day % 100
    if not (EARLIEST <= day <= LATEST and 1 <= month <= 12):  # noqa: PLR2004 - the months of a year
        return False
    return 1 <= of_month <= calendar.monthrange(year, month)[1]


def whole_months(first: int, last: int) -> tuple[int, int]:
    """The first day of `first`'s month and the last day of `last`'s month, yyyymmdd.

    Raises:
        ConfigurationError: one of them is not a date, or `first` is after `last`.
    """
    for day in (first, last):
        if not is_valid_date(day):
            raise ConfigurationError(f"{day} is not a date; pass yyyymmdd from {EARLIEST} to {LATEST}")
    if first > last:
        raise ConfigurationError(f"the calendar ends on {shown_date(last)}, before it begins on {shown_date(first)}")
    length = calendar.monthrange(last // 10000, last // 100 % 100)[1]
    return first // 100 * 100 + 1, last // 100 * 100 + length


def weekday_of(days: NDArray[np.datetime64]) -> NDArray[np.int64]:
    """Days of the week from 0 (Monday) to 6 (Sunday), in the shape of `days`."""
    return (days.astype(np.int64) + 3) % 7  # day 0, 1970-01-01, was a Thursday


def days_between(first: int, last: int) -> NDArray[np.datetime64]:
    """Every day from `first` to `last`, both included, datetime64[D]."""
    start, stop = day_array((first, last))
    return np.arange(start, stop + ONE_DAY)


def weekdays_between(first: int, last: int) -> NDArray[np.datetime64]:
    """Every Monday to Friday from `first` to `last`, datetime64[D]."""
    days = days_between(first, last)
    return days[weekday_of(days) < SATURDAY]


def is_weekend(dates: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which dates (int32 yyyymmdd) are Saturdays or Sundays; in the shape of `dates`."""
    return weekday_of(days_of(dates)) >= SATURDAY
