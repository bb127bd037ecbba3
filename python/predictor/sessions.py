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
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from itertools import pairwise
from typing import TYPE_CHECKING, Self, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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
    import pandas as pd
    from exchange_calendars import ExchangeCalendar

FIELDS = ("weekday", "sessions_to_month_end", "sessions_from_month_start", "days_to_holiday", "days_from_holiday")
"""What `SessionCalendar.fields` tells of a session, in this order."""

HOLIDAY_REACH = 30
"""Calendar days. A holiday further away than this, or none, counts as this far."""

WEEKDAYS = "weekdays"
"""The name of the calendar that is used when the exchange is unknown."""

_EARLIEST, _LATEST = 18000101, 21991231  # keeps a damaged or hostile file from asking for a huge table
_SATURDAY = 5
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)
_KEYS = (
    "name",
    "time_zone",
    "first",
    "last",
    "holidays",
    "unannounced",
    "regular_closes",
    "special_closes",
)

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
        days = _session_days(exchange)
        end = min(end, _bound(exchange.bound_max(), end))
        holidays = tuple(dates_of(np.setdiff1d(_weekdays(start, end), days)).tolist())
        regular = _regular_closes(exchange, start, end)
        return cls(
            name=exchange.name,
            time_zone=str(exchange.tz),
            first=start,
            last=end,
            holidays=holidays,
            unannounced=_unannounced(exchange, holidays),
            regular_closes=regular,
            special_closes=_special_closes(exchange, days, regular),
        )

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Read what `to_json` wrote; the result is equal to the calendar that was written.

        Raises:
            ArtifactError: not UTF-8 JSON, a key missing, unknown or twice, or a value that cannot be; the message and
                `metadata["key"]` name the key.
        """
        record = _record(_parse(content), _KEYS, "")
        first, last = _date(record["first"], "first"), _date(record["last"], "last")
        if first > last:
            raise _damaged("last", f"{last} lies before first, {first}")
        result = cls(
            name=_text(record["name"], "name"),
            time_zone=_zone_name(record["time_zone"]),
            first=first,
            last=last,
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

    def sessions(self, first: int, last: int) -> NDArray[np.int32]:
        """The sessions from `first` to `last`, both included, int32 [N] (read-only).

        Raises:
            CalendarEndedError: a date that the calendar does not cover.
        """
        self._require_covered(first, last)
        start = np.searchsorted(self._table.sessions, first)
        stop = np.searchsorted(self._table.sessions, last, side="right")
        return self._table.sessions[start:stop]

    def is_session(self, day: int) -> bool:
        """Whether the exchange trades on this date.

        Raises:
            CalendarEndedError: the calendar does not cover the date.
        """
        return self.sessions(day, day).size == 1

    def following(self, session: int, count: int) -> NDArray[np.int32]:
        """The `count` sessions after a date, which need not be a session itself; int32 [count] (read-only).

        Raises:
            CalendarEndedError: the calendar does not cover the date, or ends before so many sessions.
        """
        self._require_covered(session, session)
        start = int(np.searchsorted(self._table.sessions, session, side="right"))
        result = self._table.sessions[start : start + count]
        if result.size < count:
            raise CalendarEndedError(
                f"only {result.size} of the {count} sessions after {_shown(session)} are known: the calendar "
                f"{self.name} ends on {_shown(self.last)}; train the model again to renew its calendar",
                metadata={"calendar": self.name, "date": _shown(session), "last": _shown(self.last)},
            )
        return result

    def missing(self, sessions: NDArray[np.int32]) -> NDArray[np.int32]:
        """The sessions that are absent between the first and the last date given; int32 [M], ascending.

        Args:
            sessions: int32 [T], dates in any order.

        Raises:
            CalendarEndedError: a date that the calendar does not cover.
        """
        if not sessions.size:
            return sessions
        expected = self.sessions(int(sessions.min()), int(sessions.max()))
        return expected[~np.isin(expected, sessions)]

    def unexpected(self, sessions: NDArray[np.int32]) -> NDArray[np.int32]:
        """Those of the dates given on which the exchange does not trade; int32 [M], in the order given.

        Args:
            sessions: int32 [T], dates in any order.

        Raises:
            CalendarEndedError: a date that the calendar does not cover.
        """
        return sessions[~self._found(sessions, self._rows(sessions))]

    def close_instant(self, session: int) -> datetime | None:
        """When the session ends, in UTC; None where the calendar knows no closes.

        Raises:
            CalendarEndedError: the calendar does not cover the date.
            BarsError: the date is no session.
        """
        self._require_sessions(np.asarray([session], np.int32))
        if not self.regular_closes:
            return None
        regular = [close for close in self.regular_closes if close.date <= session]
        special = [close for close in self.special_closes if close.date == session]
        wall_clock = time.fromisoformat((regular + special)[-1].time)
        return datetime.combine(_as_date(session), wall_clock, ZoneInfo(self.time_zone)).astimezone(UTC)

    def is_complete(self, session: int, now: datetime) -> bool:
        """Whether the session has closed, so that its daily bar is final.

        Without close times a session counts as closed once its date is over in UTC. The stock exchanges from New
        Zealand to California have closed by then; the answer comes some hours late, never early.

        Args:
            session: yyyymmdd.
            now: an instant with a time zone.

        Raises:
            ConfigurationError: `now` has no time zone.
            CalendarEndedError: the calendar does not cover the date.
            BarsError: the date is no session.
        """
        if now.tzinfo is None:
            raise ConfigurationError(f"now is {now.isoformat()}, without a time zone; pass datetime.now(UTC)")
        close = self.close_instant(session)
        if close is None:
            return now.astimezone(UTC).date() > _as_date(session)
        return now >= close

    def fields(self, sessions: NDArray[np.int32]) -> dict[str, NDArray[np.float64]]:
        """What the calendar alone tells of each session, and so is known ahead of time.

        A session's values depend on its date and on the calendar, not on the other dates in the array.

            weekday                    0 (Monday) to 4 (Friday)
            sessions_to_month_end      sessions left in its month; 0 on the last
            sessions_from_month_start  sessions before it in its month; 0 on the first
            days_to_holiday            calendar days until the next holiday, at most HOLIDAY_REACH
            days_from_holiday          calendar days since the previous holiday, at most HOLIDAY_REACH

        Looking ahead, closures that were unannounced count as ordinary sessions. Holidays outside `first` to `last`
        are not seen.

        Args:
            sessions: int32 [T], sessions in any order.

        Returns:
            FIELDS, each float64 [T].

        Raises:
            CalendarEndedError: a date that the calendar does not cover.
            BarsError: a date that is no session; the message names the first.
        """
        values = self._table.fields[:, self._require_sessions(sessions)]
        return dict(zip(FIELDS, values, strict=True))

    def _require_covered(self, first: int, last: int) -> None:
        """Refuse dates outside the calendar."""
        outside = first if first < self.first else last
        if self.first <= outside <= self.last:
            return
        raise CalendarEndedError(
            f"{_shown(outside)} lies outside the calendar {self.name}, which covers {_shown(self.first)} to "
            f"{_shown(self.last)}; train the model again to renew its calendar, or send other dates",
            metadata={"calendar": self.name, "date": _shown(outside), "last": _shown(self.last)},
        )

    def _rows(self, sessions: NDArray[np.int32]) -> NDArray[np.intp]:
        """Where in the table each date stands, or would stand; [T]."""
        if sessions.size:
            self._require_covered(int(sessions.min()), int(sessions.max()))
        return np.searchsorted(self._table.sessions, sessions)

    def _found(self, sessions: NDArray[np.int32], rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of the dates stand in the table at their row; [T]."""
        return self._table.sessions.take(rows, mode="clip") == sessions

    def _require_sessions(self, sessions: NDArray[np.int32]) -> NDArray[np.intp]:
        """The table's row of each session, [T]; refuse dates without trading."""
        rows = self._rows(sessions)
        found = self._found(sessions, rows)
        if found.all():
            return rows
        day = int(sessions[~found][0])
        raise BarsError(
            f"{_shown(day)} is no session of the calendar {self.name}; drop the bar of that date, or choose the "
            f"calendar of the exchange that it comes from",
            metadata={"calendar": self.name, "date": _shown(day)},
        )


def days_of(dates: NDArray[np.int32]) -> NDArray[np.datetime64]:
    """Dates int32 yyyymmdd as datetime64[D], of the same shape."""
    wide = dates.astype(np.int64)
    months = ((wide // 10000 - 1970) * 12 + wide // 100 % 100 - 1).astype("datetime64[M]")
    return months.astype("datetime64[D]") + (wide % 100 - 1).astype("timedelta64[D]")


def dates_of(days: NDArray[np.datetime64]) -> NDArray[np.int32]:
    """Days datetime64[D] as int32 yyyymmdd, of the same shape."""
    months = days.astype("datetime64[M]")
    since_1970 = months.astype(np.int64)
    of_month = (days - months.astype("datetime64[D]")).astype(np.int64) + 1
    return ((since_1970 // 12 + 1970) * 10000 + (since_1970 % 12 + 1) * 100 + of_month).astype(np.int32)


def _as_date(day: int) -> date:
    """A yyyymmdd as Python's date."""
    return date(day // 10000, day // 100 % 100, day % 100)


def _shown(day: int) -> str:
    """A yyyymmdd for people: 2024-03-28."""
    return f"{day // 10000:04d}-{day // 100 % 100:02d}-{day % 100:02d}"


def _exists(day: int) -> bool:
    """Whether yyyymmdd is a day, and one that a calendar may hold."""
    year, month, of_month = day // 10000, day // 100 % 100, day % 100
    if not (_EARLIEST <= day <= _LATEST and 1 <= month <= 12):  # noqa: PLR2004 - the months of a year
        return False
    return 1 <= of_month <= calendar.monthrange(year, month)[1]


def _whole_months(first: int, last: int) -> tuple[int, int]:
    """The first day of `first`'s month and the last day of `last`'s."""
    for day in (first, last):
        if not _exists(day):
            raise ConfigurationError(f"{day} is no date; pass yyyymmdd from {_EARLIEST} to {_LATEST}")
    if first > last:
        raise ConfigurationError(f"the calendar ends on {_shown(last)}, before it begins on {_shown(first)}")
    length = calendar.monthrange(last // 10000, last // 100 % 100)[1]
    return first // 100 * 100 + 1, last // 100 * 100 + length


def _table(first: int, last: int, holidays: Sequence[int], unannounced: Sequence[int]) -> _Table:
    """The sessions of the calendar and their fields."""
    closed, surprises = _day_array(holidays), _day_array(unannounced)
    days = np.setdiff1d(_weekdays(first, last), closed)
    values = np.stack(
        [
            _weekday(days).astype(np.float64),
            _later_in_month(days, np.union1d(days, surprises)),
            _earlier_in_month(days),
            _days_to(days, np.setdiff1d(closed, surprises)),
            _days_since(days, closed),
        ],
    )
    sessions = dates_of(days)
    sessions.flags.writeable = False
    return _Table(sessions, values)


def _day_array(dates: Sequence[int]) -> NDArray[np.datetime64]:
    """Dates yyyymmdd as datetime64[D] [N]."""
    return days_of(np.asarray(dates, np.int32))


def _weekday(days: NDArray[np.datetime64]) -> NDArray[np.int64]:
    """0 (Monday) to 6 (Sunday)."""
    return (days.astype(np.int64) + 3) % 7  # day 0, 1970-01-01, was a Thursday


def _weekdays(first: int, last: int) -> NDArray[np.datetime64]:
    """Every Monday to Friday from `first` to `last`, datetime64[D]."""
    start, stop = _day_array((first, last))
    days = np.arange(start, stop + 1)
    return days[_weekday(days) < _SATURDAY]


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
    beyond = days[-1:] + HOLIDAY_REACH
    upcoming = np.concatenate([holidays, beyond])[np.searchsorted(holidays, days)]
    return np.minimum((upcoming - days).astype(np.float64), HOLIDAY_REACH)


def _days_since(days: NDArray[np.datetime64], holidays: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Calendar days since the previous holiday, at most HOLIDAY_REACH."""
    beyond = days[:1] - HOLIDAY_REACH
    previous = np.concatenate([beyond, holidays])[np.searchsorted(holidays, days)]
    return np.minimum((days - previous).astype(np.float64), HOLIDAY_REACH)


def _exchange(name: str, first: int, last: int) -> "ExchangeCalendar":
    """The package's own calendar from `first` to `last`, or to the end of its record."""
    try:
        import exchange_calendars
    except ModuleNotFoundError as error:
        raise MissingPackageError.of("exchange-calendars", "calendars", f"the calendar of {name}") from error
    _require_known(name, exchange_calendars.get_calendar_names())
    try:
        with warnings.catch_warnings(category=DeprecationWarning, action="ignore"):  # its own use of newer pandas
            default = exchange_calendars.get_calendar(name)
            earliest, latest = _bound(default.bound_min(), first), _bound(default.bound_max(), last)
            _require_recorded(name, (first, last), (earliest, latest))
            return exchange_calendars.get_calendar(name, start=_shown(first), end=_shown(min(last, latest)))
    except (ValueError, NotImplementedError) as error:  # some of its calendars fail on their own rules
        raise ConfigurationError(
            f"exchange-calendars cannot build {name}: {str(error)[:200]}; use {WEEKDAYS!r} instead",
            metadata={"exchange": name},
        ) from error


def _bound(bound: "pd.Timestamp | None", default: int) -> int:
    """An end of an exchange's record, yyyymmdd; the default where it has none."""
    return default if bound is None else int(bound.strftime("%Y%m%d"))


def _require_known(name: str, names: Sequence[str]) -> None:
    """Refuse an unknown exchange, and name those that look like it."""
    if name in names:
        return
    near = difflib.get_close_matches(name.upper(), names, n=5, cutoff=0.5)
    raise ConfigurationError(
        f"no exchange {name!r} is known; near are {near}. Pass an ISO 10383 code such as 'XNYS', or {WEEKDAYS!r} for "
        f"Monday to Friday without holidays",
        metadata={"exchange": name},
    )


def _require_recorded(name: str, asked: tuple[int, int], recorded: tuple[int, int]) -> None:
    """Refuse a range that begins before the exchange's record, or lies after it."""
    if recorded[0] <= asked[0] <= recorded[1]:
        return
    raise ConfigurationError(
        f"the sessions of {name} are recorded from {_shown(recorded[0])} to {_shown(recorded[1])}, but bars begin in "
        f"the month of {_shown(asked[0])}; drop the bars outside the record, or use {WEEKDAYS!r}",
        metadata={"exchange": name},
    )


def _session_days(exchange: "ExchangeCalendar") -> NDArray[np.datetime64]:
    """The exchange's sessions, datetime64[D]; refuse one that trades on weekends."""
    days: NDArray[np.datetime64] = exchange.sessions.to_numpy().astype("datetime64[D]")
    weekend = days[_weekday(days) >= _SATURDAY]
    if weekend.size:
        raise ConfigurationError(
            f"{exchange.name} has sessions on weekends, such as {weekend[0]}; only exchanges that trade from Monday to "
            f"Friday are supported",
            metadata={"exchange": exchange.name},
        )
    return days


def _unannounced(exchange: "ExchangeCalendar", holidays: Sequence[int]) -> tuple[int, ...]:
    """Those of the holidays that nobody knew of beforehand."""
    if exchange.name not in _ONE_OFF_CLOSURES_ARE_SURPRISES:
        return ()
    one_off = {int(day.strftime("%Y%m%d")) for day in exchange.adhoc_holidays}
    return tuple(day for day in holidays if day in one_off)


def _regular_closes(exchange: "ExchangeCalendar", first: int, last: int) -> tuple[CloseTime, ...]:
    """The usual closes from `first` to `last`."""
    closes = [
        CloseTime(date=max(_bound(start, first), first), time=at.strftime("%H:%M"))
        for start, at in exchange.close_times
        if _bound(start, first) <= last
    ]
    # of several that began before `first`, the last one holds
    return tuple({close.date: close for close in closes}.values())


def _special_closes(
    exchange: "ExchangeCalendar",
    days: NDArray[np.datetime64],
    regular: Sequence[CloseTime],
) -> tuple[CloseTime, ...]:
    """The sessions that close at another time than usual."""
    local = exchange.closes.dt.tz_convert(exchange.tz).dt.tz_localize(None).to_numpy().astype("datetime64[m]")
    if (local.astype("datetime64[D]") != days).any():
        raise ConfigurationError(
            f"{exchange.name} trades past midnight, so its daily bars do not close on their own date; use {WEEKDAYS!r}",
            metadata={"exchange": exchange.name},
        )
    starts = np.asarray([close.date for close in regular], np.int32)
    dates = dates_of(days)
    usual = np.asarray([close.time for close in regular])[np.searchsorted(starts, dates, side="right") - 1]
    actual = np.asarray([moment[-5:] for moment in np.datetime_as_string(local)])
    return tuple(CloseTime(date=int(dates[row]), time=str(actual[row])) for row in np.flatnonzero(usual != actual))


def _damaged(key: str, problem: str) -> ArtifactError:
    """The error for a value in calendar.json that cannot be."""
    return ArtifactError(
        f"calendar.json, {key}: {problem}; restore the artifact from its source",
        metadata={"file": "calendar.json", "key": key},
    )


def _parse(content: bytes) -> object:
    """The JSON, without duplicate keys and without NaN."""
    try:
        return json.loads(content.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(
            f"calendar.json is no UTF-8 JSON: {error}; restore the artifact from its source",
            metadata={"file": "calendar.json"},
        ) from error


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object's keys, each of which may stand there once."""
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise _damaged(key, "the key stands there twice")
        result[key] = value
    return result


def _no_constant(text: str) -> object:
    """Refuse NaN and the infinities, which JSON does not have."""
    raise ValueError(f"{text} is no JSON number")


def _record(value: object, keys: Sequence[str], key: str) -> dict[str, object]:
    """An object that has exactly these keys."""
    if not isinstance(value, dict):
        raise _damaged(key or "the whole", "an object is needed")
    record = cast("dict[str, object]", value)
    prefix = f"{key}." if key else ""
    for unknown in sorted(record.keys() - set(keys)):
        raise _damaged(prefix + unknown, "an unknown key")
    for missing in sorted(set(keys) - record.keys()):
        raise _damaged(prefix + missing, "the key is missing")
    return record


def _items(value: object, key: str) -> list[object]:
    """A list."""
    if not isinstance(value, list):
        raise _damaged(key, "a list is needed")
    return cast("list[object]", value)


def _text(value: object, key: str) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise _damaged(key, f"{value!r} is no name")
    return value


def _zone_name(value: object) -> str:
    """The name of a time zone that this machine knows."""
    name = _text(value, "time_zone")
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise _damaged("time_zone", f"this machine knows no time zone {name!r} (pip install tzdata?)") from error
    return name


def _date(value: object, key: str) -> int:
    """A date yyyymmdd."""
    if type(value) is not int or not _exists(value):  # a bool is an int too, but no date
        raise _damaged(key, f"{value!r} is no date (a whole number yyyymmdd)")
    return value


def _dates(value: object, key: str) -> tuple[int, ...]:
    """A list of dates, ascending."""
    dates = tuple(_date(item, f"{key}[{row}]") for row, item in enumerate(_items(value, key)))
    _require_ascending(dates, key)
    return dates


def _close_times(value: object, key: str) -> tuple[CloseTime, ...]:
    """A list of close times, ascending by date."""
    closes = tuple(_close_time(item, f"{key}[{row}]") for row, item in enumerate(_items(value, key)))
    _require_ascending([close.date for close in closes], key)
    return closes


def _close_time(value: object, key: str) -> CloseTime:
    """One close time."""
    record = _record(value, ("date", "time"), key)
    at = record["time"]
    if not isinstance(at, str) or not _CLOCK.fullmatch(at):
        raise _damaged(f"{key}.time", f"{at!r} is no time of day (HH:MM)")
    return CloseTime(date=_date(record["date"], f"{key}.date"), time=at)


def _require_ascending(dates: Sequence[int], key: str) -> None:
    """Refuse dates that are not sorted, or stand there twice."""
    for row, (earlier, later) in enumerate(pairwise(dates), start=1):
        if later <= earlier:
            raise _damaged(f"{key}[{row}]", f"{later} follows {earlier}; dates must ascend")


def _require_consistent(read: SessionCalendar) -> None:
    """Refuse a calendar whose parts contradict each other."""
    weekdays = frozenset(dates_of(_weekdays(read.first, read.last)).tolist())
    _require_among(read.holidays, weekdays, "holidays", "no weekday between first and last")
    _require_among(read.unannounced, frozenset(read.holidays), "unannounced", "not among the holidays")
    sessions = weekdays.difference(read.holidays)
    if not sessions:
        raise _damaged("holidays", "no session is left")
    _require_among([close.date for close in read.special_closes], sessions, "special_closes", "no session")
    starts = [close.date for close in read.regular_closes]
    if starts and starts[0] != read.first:
        raise _damaged("regular_closes", f"the first must hold from first, {read.first}, but holds from {starts[0]}")
    if read.special_closes and not starts:
        raise _damaged("special_closes", "given without regular_closes")


def _require_among(dates: Sequence[int], allowed: frozenset[int], key: str, problem: str) -> None:
    """Refuse dates that are not among those allowed."""
    for row, day in enumerate(dates):
        if day not in allowed:
            raise _damaged(f"{key}[{row}]", f"{day} is {problem}")
