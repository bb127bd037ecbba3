"""Dates in three types: `datetime.date`, date numbers (yyyymmdd, int32 in arrays), and days (datetime64[D])."""

import calendar
from collections.abc import Sequence
from datetime import date
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predictor.errors import BarsError, ConfigurationError, format_date

DateLike = date | str | int
"""A date, an ISO string such as "2012-06-01", or a date number."""

EARLIEST, LATEST = 18000101, 21991231
"""Limits of a calendar's dates; they keep a damaged or hostile file from allocating a huge table."""

SATURDAY = 5
"""Monday is 0."""
ONE_DAY = np.timedelta64(1, "D")
"""A number without a unit must not be added to days: NumPy 2.5 deprecates it."""


def to_days(numbers: NDArray[np.int32] | Sequence[int]) -> NDArray[np.datetime64]:
    """Convert date numbers to days of the same shape."""
    wide = np.asarray(numbers).astype(np.int64)
    months = ((wide // 10000 - 1970) * 12 + wide // 100 % 100 - 1).astype("datetime64[M]")
    return months.astype("datetime64[D]") + (wide % 100 - 1).astype("timedelta64[D]")


def to_date_numbers(days: NDArray[np.datetime64]) -> NDArray[np.int32]:
    """Convert days to date numbers of the same shape."""
    months = days.astype("datetime64[M]")
    since_1970 = months.astype(np.int64)
    of_month = (days - months.astype("datetime64[D]")).astype(np.int64) + 1
    return ((since_1970 // 12 + 1970) * 10000 + (since_1970 % 12 + 1) * 100 + of_month).astype(np.int32)


@lru_cache(maxsize=4096)
def to_date(number: int) -> date:
    """Convert a date number."""
    return date(number // 10000, number // 100 % 100, number % 100)


def to_dates(numbers: NDArray[np.int32]) -> tuple[date, ...]:
    """Convert date numbers [N]."""
    return tuple(map(to_date, numbers.tolist()))


def to_date_number(value: date) -> int:
    """Convert a date."""
    return value.year * 10000 + value.month * 100 + value.day


def to_optional_date(number: int) -> date | None:
    """Convert a date number, of which 0 means unknown."""
    return to_date(number) if number else None


def to_optional_date_number(value: date | None) -> int:
    """Convert a date to its number, or None to 0."""
    return to_date_number(value) if value else 0


def parse_date_number(value: DateLike) -> int:
    """Convert a date, an ISO string or a date number to a date number.

    Raises:
        BarsError: `value` is not a date.
    """
    if isinstance(value, date):
        return to_date_number(value)
    try:
        return to_date_number(date.fromisoformat(str(value)))
    except ValueError:
        raise BarsError(f'{value!r} is not a date; pass a date, "2012-06-01" or 20120601') from None


def is_valid_date(number: int) -> bool:
    """Whether a number is a real date from EARLIEST to LATEST."""
    year, month, of_month = number // 10000, number // 100 % 100, number % 100
    if not (EARLIEST <= number <= LATEST and 1 <= month <= 12):  # noqa: PLR2004 - the months of a year
        return False
    return 1 <= of_month <= calendar.monthrange(year, month)[1]


def extend_to_whole_months(first: int, last: int) -> tuple[int, int]:
    """Return the first day of `first`'s month and the last day of `last`'s month, as date numbers.

    Raises:
        ConfigurationError: one of them is not a date, or `first` is after `last`.
    """
    for number in (first, last):
        if not is_valid_date(number):
            raise ConfigurationError(f"{number} is not a date; pass yyyymmdd from {EARLIEST} to {LATEST}")
    if first > last:
        raise ConfigurationError(f"the calendar ends on {format_date(last)}, before it begins on {format_date(first)}")
    length = calendar.monthrange(last // 10000, last // 100 % 100)[1]
    return first // 100 * 100 + 1, last // 100 * 100 + length


def compute_weekdays(days: NDArray[np.datetime64]) -> NDArray[np.int64]:
    """Compute the days of the week, from 0 (Monday) to 6 (Sunday)."""
    return (days.astype(np.int64) + 3) % 7  # day 0, 1970-01-01, was a Thursday


def list_days(first: int, last: int) -> NDArray[np.datetime64]:
    """List every day from the date number `first` to `last`, both included."""
    start, stop = to_days((first, last))
    return np.arange(start, stop + ONE_DAY)


def list_weekdays(first: int, last: int) -> NDArray[np.datetime64]:
    """List every Monday to Friday from the date number `first` to `last`."""
    days = list_days(first, last)
    return days[compute_weekdays(days) < SATURDAY]


def is_weekend(numbers: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether each date number is a Saturday or Sunday."""
    return compute_weekdays(to_days(numbers)) >= SATURDAY
