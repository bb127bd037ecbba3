"""The trading sessions of an exchange, as a value that a model's artifact carries (`calendar.json`).

A forecast for "5 sessions ahead" needs to know which days those are, a daily bar is only a bar once its session has
closed, and a missing session must be told from a holiday. All of that is answered here from a list of holidays and
close times, so that serving needs no calendar package. Building the list does (extra `calendars`).

Dates are int32 yyyymmdd of the session in the exchange's own time zone, everywhere.
"""

import calendar
import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any, Self
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from predictor.errors import (
    ArtifactError,
    BarsError,
    CalendarEndedError,
    ConfigurationError,
    MissingPackageError,
)

if TYPE_CHECKING:
    from exchange_calendars import ExchangeCalendar

FIELDS = ("weekday", "sessions_to_month_end", "sessions_from_month_start", "days_to_holiday", "days_from_holiday")
"""What `SessionCalendar.fields` tells of a session, in this order."""

HOLIDAY_REACH = 30
"""Calendar days. A holiday further away than this, or none, counts as this far."""

WEEKDAYS = "weekdays"
"""The name of the calendar that is used when the exchange is unknown."""

_EARLIEST, _LATEST = 18000101, 21991231  # keeps a damaged or hostile file from asking for a huge table

# Exchanges whose one-off closures were announced days or hours ahead at most (storms, attacks, days of mourning).
# Elsewhere exchange-calendars files holidays of the lunar calendar, known years ahead, under the same heading.
_ONE_OFF_CLOSURES_ARE_SURPRISES = frozenset({"XNYS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseTime:
    """When trading ends: on `date` alone (a special close), or from `date` on (the regular close).

    Attributes:
        date: yyyymmdd.
        time: "HH:MM", local to the exchange.
    """

    date: int
    time: str


@dataclass(frozen=True, slots=True)
class _Table:
    """What can be computed once per calendar: its sessions int32 [N], ascending, and FIELDS float64 [5, N]."""

    sessions: NDArray[np.int32]
    fields: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCalendar:
    """An exchange's sessions from `first` to `last`: Monday to Friday without `holidays`.

    Make one with `from_exchange`, `weekdays` or `from_json`; these three check what the constructor takes on trust.

    Attributes:
        name: the exchange's code (ISO 10383, such as "XNYS"), or "weekdays" where the exchange is unknown.
        time_zone: IANA name of the zone in which dates and close times are meant.
        first: first date covered, yyyymmdd.
        last: last date covered, yyyymmdd.
        holidays: weekdays without a session, ascending.
        unannounced: those of the holidays that nobody knew of beforehand, ascending. Fields that look ahead do not
            see them, or a model would learn from what no one could know on the day.
        regular_closes: the usual close from a date on, ascending; the first holds from `first`. Empty: closes unknown.
        special_closes: sessions that close at another time than usual, mostly earlier, ascending.
    """

    name: str
    time_zone: str
    first: int
    last: int
    holidays: tuple[int, ...] = ()
    unannounced: tuple[int, ...] = ()
    regular_closes: tuple[CloseTime, ...] = ()
    special_closes: tuple[CloseTime, ...] = ()
    _table: _Table = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the table that answers everything else."""
        object.__setattr__(self, "_table", _table(self.first, self.last, self.holidays, self.unannounced))

    @classmethod
    def weekdays(cls, first: int, last: int) -> Self:
        """Monday to Friday, no holidays, closes unknown: the calendar of an unknown exchange.

        Args:
            first: first date, yyyymmdd; widened to the start of its month, so that month fields are right.
            last: last date, yyyymmdd; widened to the end of its month.

        Raises:
            ConfigurationError: no dates, or in the wrong order.
        """
        start, end = _whole_months(first, last)
        return cls(name=WEEKDAYS, time_zone="UTC", first=start, last=end)

    @classmethod
    def from_exchange(cls, name: str, first: int, last: int) -> Self:
        """An exchange's sessions, as the package exchange-calendars knows them.

        Args:
            name: the exchange's code, such as "XNYS", or an alias that the package knows, such as "NASDAQ".
            first: first date, yyyymmdd; widened to the start of its month, so that month fields are right.
            last: last date, yyyymmdd; widened to the end of its month. Some exchanges publish only a year or two
                ahead: the calendar then ends where their record does, and its own `last` says so.

        Raises:
            MissingPackageError: exchange-calendars is not installed.
            ConfigurationError: an unknown exchange, one with sessions on weekends or past midnight, or a range that
                its record does not have.
        """
        start, end = _whole_months(first, last)
        exchange = _exchange(name, start, end)
        days = exchange.sessions.to_numpy().astype("datetime64[D]")
        _require_weekdays(exchange.name, days)
        end = min(end, _date_of(type(exchange).bound_max(), end))
        closes = _close_minutes(exchange, days)
        regular = _regular_closes(exchange, start, end)
        holidays = _absent_weekdays(start, end, days)
        surprises = exchange.adhoc_holidays if exchange.name in _ONE_OFF_CLOSURES_ARE_SURPRISES else ()
        unannounced = {_date_of(day, 0) for day in surprises}
        return cls(
            name=exchange.name,
            time_zone=str(exchange.tz),
            first=start,
            last=end,
            holidays=holidays,
            unannounced=tuple(day for day in holidays if day in unannounced),
            regular_closes=regular,
            special_closes=_special_closes(dates_of(days), closes, regular),
        )

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Read what `to_json` wrote; the result is equal to the calendar that was written.

        Raises:
            ArtifactError: not UTF-8 JSON, a key missing, unknown or twice, or a value that cannot be; the message and
                `metadata["key"]` name the key.
        """
        record = _record(_parse(content), _KEYS, "")
        result = cls(
            name=_text(record["name"], "name"),
            time_zone=_text(record["time_zone"], "time_zone"),
            **_coverage(record),
            holidays=_dates(record["holidays"], "holidays"),
            unannounced=_dates(record["unannounced"], "unannounced"),
            regular_closes=_close_times(record["regular_closes"], "regular_closes"),
            special_closes=_close_times(record["special_closes"], "special_closes"),
        )
        _require_consistent(result)
        return result

    def to_json(self) -> bytes:
        """The calendar as canonical JSON: UTF-8, sorted keys, no spaces; equal calendars give equal bytes."""
        record = {
            "name": self.name,
            "time_zone": self.time_zone,
            "first": self.first,
            "last": self.last,
            "holidays": self.holidays,
            "unannounced": self.unannounced,
            "regular_closes": [{"date": close.date, "time": close.time} for close in self.regular_closes],
            "special_closes": [{"date": close.date, "time": close.time} for close in self.special_closes],
        }
        text = json.dumps(record, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
        return text.encode()
