"""What is known of an exchange's sessions: holidays and close times between two dates, also as `calendar.json`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from predictor import canonical
from predictor.canonical import Json, Record
from predictor.sessions.dates import dates_of, exists, weekdays_between

WEEKDAYS = "weekdays"
"""The name of the calendar that is used when the exchange is unknown."""

FILE_NAME: Final = "calendar.json"
"""The file's name in an artifact, for errors."""

_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseTime:
    """When trading ends: on `date` alone (a special close), or from `date` on (the regular close).

    Attributes:
        date: yyyymmdd.
        time: "HH:MM", local to the exchange.
    """

    date: int
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """An exchange's sessions from `first` to `last`: Monday to Friday without `holidays`.

    Attributes:
        name: the exchange's code (ISO 10383, such as "XNYS"), or "weekdays" where the exchange is unknown.
        time_zone: IANA name of the zone in which dates and close times are meant.
        first: first date covered, yyyymmdd.
        last: last date covered, yyyymmdd.
        holidays: weekdays without a session, ascending.
        unannounced: those of the holidays that nobody knew of beforehand, ascending. Fields that look ahead do not
            see them, or a model would learn from what no one could know on the day.
        regular_closes: the usual close from a date on, ascending; the first holds from `first`. Empty = unknown.
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


def to_bytes(schedule: Schedule) -> bytes:
    """The schedule in canonical JSON; equal schedules give equal bytes."""
    return canonical.to_bytes(
        {
            "name": schedule.name,
            "time_zone": schedule.time_zone,
            "first": schedule.first,
            "last": schedule.last,
            "holidays": schedule.holidays,
            "unannounced": schedule.unannounced,
            "regular_closes": [_close_json(close) for close in schedule.regular_closes],
            "special_closes": [_close_json(close) for close in schedule.special_closes],
        }
    )


def from_bytes(content: bytes) -> Schedule:
    """Read what `to_bytes` wrote; the result is equal to the schedule that was written.

    Raises:
        ArtifactError: not strict JSON, a key missing, unknown or twice, or an invalid value; the message and
            `metadata["key"]` name the key.
    """
    record = Record.from_bytes(content, FILE_NAME)
    first, last = _date(record, "first"), _date(record, "last")
    if first > last:
        raise record.refusal("last", f"is {last}, before first, {first}")
    schedule = Schedule(
        name=_name(record),
        time_zone=_time_zone(record),
        first=first,
        last=last,
        holidays=_dates(record, "holidays"),
        unannounced=_dates(record, "unannounced"),
        regular_closes=_closes(record, "regular_closes"),
        special_closes=_closes(record, "special_closes"),
    )
    record.end()
    _check_consistent(record, schedule)
    return schedule


def _close_json(close: CloseTime) -> Json:
    return {"date": close.date, "time": close.time}


def _name(record: Record) -> str:
    name = record.text("name")
    if not name:
        raise record.refusal("name", "is empty")
    return name


def _time_zone(record: Record) -> str:
    """The name of a time zone that this machine knows."""
    name = record.text("time_zone")
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise record.refusal(
            "time_zone", f"is {name!r}, which this machine does not know (pip install tzdata?)"
        ) from error
    return name


def _date(record: Record, key: str) -> int:
    day = record.integer(key)
    _check_date(record, key, day)
    return day


def _dates(record: Record, key: str) -> tuple[int, ...]:
    days = record.integers(key)
    for k, day in enumerate(days):
        _check_date(record, f"{key}[{k}]", day)
    _check_ascending(record, key, days)
    return days


def _closes(record: Record, key: str) -> tuple[CloseTime, ...]:
    closes = tuple(_close(item) for item in record.records(key))
    _check_ascending(record, key, [close.date for close in closes])
    return closes


def _close(record: Record) -> CloseTime:
    close = CloseTime(date=_date(record, "date"), time=record.text("time"))
    if not _CLOCK.fullmatch(close.time):
        raise record.refusal("time", f"is {close.time!r}, which is not a time of day (HH:MM)")
    record.end()
    return close


def _check_date(record: Record, key: str, day: int) -> None:
    if not exists(day):
        raise record.refusal(key, f"is {day}, which is not a date (yyyymmdd)")


def _check_ascending(record: Record, key: str, days: Sequence[int]) -> None:
    """Refuse dates that are not sorted, or appear twice."""
    for k, (earlier, later) in enumerate(pairwise(days), start=1):
        if later <= earlier:
            raise record.refusal(f"{key}[{k}]", f"is {later} and follows {earlier}, but dates must ascend")


def _check_consistent(record: Record, schedule: Schedule) -> None:
    """Refuse a schedule whose parts contradict each other."""
    weekdays = frozenset(dates_of(weekdays_between(schedule.first, schedule.last)).tolist())
    _check_among(record, "holidays", schedule.holidays, weekdays, "not a weekday between first and last")
    _check_among(record, "unannounced", schedule.unannounced, frozenset(schedule.holidays), "not among the holidays")
    sessions = weekdays.difference(schedule.holidays)
    if not sessions:
        raise record.refusal("holidays", "leave no session")
    special = [close.date for close in schedule.special_closes]
    _check_among(record, "special_closes", special, sessions, "not a session")
    starts = [close.date for close in schedule.regular_closes]
    if starts and starts[0] != schedule.first:
        raise record.refusal("regular_closes", f"begin on {starts[0]}, but must begin on first, {schedule.first}")
    if special and not starts:
        raise record.refusal("special_closes", "are given without regular_closes")


def _check_among(record: Record, key: str, days: Sequence[int], allowed: frozenset[int], problem: str) -> None:
    """Refuse dates that are not among those allowed."""
    for k, day in enumerate(days):
        if day not in allowed:
            raise record.refusal(f"{key}[{k}]", f"is {day}, which is {problem}")
