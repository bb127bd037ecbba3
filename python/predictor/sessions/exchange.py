"""Schedules of exchanges from the package exchange-calendars (extra `calendars`)."""

import difflib
import warnings
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from predictor.dates import SATURDAY, compute_weekdays, extend_to_whole_months, list_weekdays, to_date_numbers
from predictor.errors import ConfigurationError, MissingPackageError, format_date
from predictor.sessions.schedule import EVERY_DAY, WEEKDAYS, CloseTime, Schedule

if TYPE_CHECKING:
    import pandas as pd
    from exchange_calendars import ExchangeCalendar

# Exchanges whose ad-hoc holidays were announced only hours or days ahead (storms, attacks, days of mourning). For
# other exchanges, ad-hoc holidays of exchange-calendars include those of the lunar calendar, known years ahead.
_ONE_OFF_CLOSURES_ARE_SURPRISES = frozenset({"XNYS"})


def load_schedule(name: str, first: int, last: int) -> Schedule:
    """The schedule of an exchange from the month of `first` to the month of `last`, or to the end of its record.

    Raises:
        MissingPackageError: exchange-calendars is not installed.
        ConfigurationError: the exchange is unknown, has sessions on weekends or past midnight, or is not recorded for
            this range.
    """
    if find_spec("exchange_calendars") is None:
        raise MissingPackageError.of("exchange-calendars", "calendars", f"the calendar of {name}")
    return _build_schedule(name, *extend_to_whole_months(first, last))


@lru_cache(maxsize=64)
def _build_schedule(name: str, start: int, end: int) -> Schedule:
    """The schedule between two dates; the package needs half a second for it."""
    exchange = _load_exchange(name, start, end)
    days = exchange.sessions.to_numpy().astype("datetime64[D]")
    weekend = days[compute_weekdays(days) >= SATURDAY]
    if weekend.size:
        raise ConfigurationError(
            f"{exchange.name} has sessions on weekends, such as {weekend[0]}; only exchanges that trade from Monday to "
            f"Friday are supported, and {EVERY_DAY!r} for every day of the week",
            metadata={"exchange": exchange.name},
        )
    end = min(end, _convert_bound(exchange.bound_max(), end))
    holidays = tuple(to_date_numbers(np.setdiff1d(list_weekdays(start, end), days)).tolist())
    one_off: set[int] = set()
    if exchange.name in _ONE_OFF_CLOSURES_ARE_SURPRISES:
        one_off = {int(day.strftime("%Y%m%d")) for day in exchange.adhoc_holidays}
    closes = [
        CloseTime(date=max(_convert_bound(begin, start), start), time=at.strftime("%H:%M"))
        for begin, at in exchange.close_times
        if _convert_bound(begin, start) <= end
    ]
    # of several times that began before `start`, the last one applies
    regular = tuple({close.date: close for close in closes}.values())
    local = exchange.closes.dt.tz_convert(exchange.tz).dt.tz_localize(None).to_numpy().astype("datetime64[m]")
    if (local.astype("datetime64[D]") != days).any():
        raise ConfigurationError(
            f"{exchange.name} trades past midnight, so its daily bars do not close on their own date; use {WEEKDAYS!r}",
            metadata={"exchange": exchange.name},
        )
    starts = np.asarray([close.date for close in regular], np.int32)
    dates = to_date_numbers(days)
    usual = np.asarray([close.time for close in regular])[np.searchsorted(starts, dates, side="right") - 1]
    actual = np.asarray([moment[-5:] for moment in np.datetime_as_string(local)])
    special = tuple(CloseTime(date=int(dates[row]), time=str(actual[row])) for row in np.flatnonzero(usual != actual))
    return Schedule(
        name=exchange.name,
        time_zone=str(exchange.tz),
        first=start,
        last=end,
        holidays=holidays,
        unannounced=tuple(day for day in holidays if day in one_off),
        regular_closes=regular,
        special_closes=special,
    )


def _load_exchange(name: str, first: int, last: int) -> "ExchangeCalendar":
    """The package's calendar from `first` to `last`, or to the end of its record."""
    import exchange_calendars

    names = exchange_calendars.get_calendar_names()
    if name not in names:
        near = difflib.get_close_matches(name.upper(), names, n=5, cutoff=0.5)
        raise ConfigurationError(
            f"unknown exchange {name!r}; similar codes are {near}. Pass an ISO 10383 code such as 'XNYS', {WEEKDAYS!r} "
            f"for Monday to Friday without holidays, or {EVERY_DAY!r} for every day of the week, such as for "
            "cryptocurrencies",
            metadata={"exchange": name},
        )
    try:
        # the package's use of pandas warns
        with warnings.catch_warnings(category=DeprecationWarning, action="ignore"):
            bounds = _find_bounds(name)
            earliest, latest = _convert_bound(bounds[0], first), _convert_bound(bounds[1], last)
            if not earliest <= first <= latest:
                raise ConfigurationError(
                    f"the sessions of {name} are recorded from {format_date(earliest)} to {format_date(latest)}, but "
                    f"bars begin in the month of {format_date(first)}; drop the bars outside the record, or use "
                    f"{WEEKDAYS!r}",
                    metadata={"exchange": name},
                )
            return exchange_calendars.get_calendar(name, start=format_date(first), end=format_date(min(last, latest)))
    except (ValueError, NotImplementedError) as error:  # some calendars of the package are broken
        raise ConfigurationError(
            f"exchange-calendars cannot build {name}: {str(error)[:200]}; use {WEEKDAYS!r} instead",
            metadata={"exchange": name},
        ) from error


@cache
def _find_bounds(name: str) -> "tuple[pd.Timestamp | None, pd.Timestamp | None]":
    """The first and last date of an exchange's record; None: unbounded."""
    import exchange_calendars

    exchange = exchange_calendars.get_calendar(name)
    return exchange.bound_min(), exchange.bound_max()


def _convert_bound(bound: "pd.Timestamp | None", default: int) -> int:
    """A bound of an exchange's record as yyyymmdd; `default` if it is unbounded."""
    return default if bound is None else int(bound.strftime("%Y%m%d"))
