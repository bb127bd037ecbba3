"""The schedule of an exchange, its holidays and close times between two dates, and its JSON form `calendar.json`.

Version 1 of `calendar.json`, which has no key `version`, is for sessions from Monday to Friday. Version 2 adds
`is_every_day` and closes at midnight, "24:00". A schedule is written in the lowest version that can represent it, so
that files for earlier programs stay byte-identical.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from predictor import canonical
from predictor.canonical import Json, Record
from predictor.dates import is_valid_date, list_days, list_weekdays, to_date_numbers

WEEKDAYS = "weekdays"
"""The name of the calendar of an unknown exchange."""

EVERY_DAY = "24/7"
"""The name of the calendar of assets that trade every day of the week, such as cryptocurrencies."""

MIDNIGHT: Final = "24:00"
"""The close of a session that ends with its date."""

VERSION: Final = 2
"""The newest version of `calendar.json`."""

FILE_NAME: Final = "calendar.json"
"""The file's name in an artifact, for errors."""

_CLOCKS: Final[Mapping[int, re.Pattern[str]]] = {
    1: re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII),
    2: re.compile(r"([01]\d|2[0-3]):[0-5]\d|24:00", re.ASCII),
}
"""Valid times of day by version of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseTime:
    """The time at which trading ends: only on `date` (a special close), or from `date` on (the regular close).

    Attributes:
        date: yyyymmdd.
        time: "HH:MM" in the exchange's time zone; "24:00" is midnight at the end of the date.
    """

    date: int
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """An exchange's sessions from `first` to `last`: Monday to Friday, or every day, without `holidays`.

    Attributes:
        name: the exchange's code (ISO 10383, such as "XNYS"), "24/7", or "weekdays" for an unknown exchange.
        time_zone: IANA name of the time zone of dates and close times.
        first: first date covered, yyyymmdd.
        last: last date covered, yyyymmdd.
        is_every_day: whether Saturdays and Sundays are sessions too.
        holidays: days that would be sessions otherwise, ascending.
        unannounced: holidays that were not known in advance, ascending. Fields that look ahead ignore them, since a
            model must not learn from information that was unavailable on the day.
        regular_closes: the regular close from a date on, ascending; the first applies from `first`. Empty = unknown.
        special_closes: sessions with another close, mostly an earlier one, ascending.
    """

    name: str
    time_zone: str
    first: int
    last: int
    is_every_day: bool = False
    holidays: tuple[int, ...] = ()
    unannounced: tuple[int, ...] = ()
    regular_closes: tuple[CloseTime, ...] = ()
    special_closes: tuple[CloseTime, ...] = ()

    @property
    def days(self) -> NDArray[np.datetime64]:
        """The sessions and the holidays, datetime64[D], ascending."""
        between = list_days if self.is_every_day else list_weekdays
        return between(self.first, self.last)

    @property
    def version(self) -> int:
        """The lowest version of `calendar.json` that can represent it."""
        closes = (*self.regular_closes, *self.special_closes)
        return 2 if self.is_every_day or MIDNIGHT in {close.time for close in closes} else 1


def to_bytes(schedule: Schedule) -> bytes:
    """Encode as canonical JSON; equal schedules give equal bytes."""
    newer: dict[str, Json] = {"version": schedule.version, "is_every_day": schedule.is_every_day}
    return canonical.to_bytes(
        {
            **(newer if schedule.version > 1 else {}),
            "name": schedule.name,
            "time_zone": schedule.time_zone,
            "first": schedule.first,
            "last": schedule.last,
            "holidays": schedule.holidays,
            "unannounced": schedule.unannounced,
            "regular_closes": list(map(asdict, schedule.regular_closes)),
            "special_closes": list(map(asdict, schedule.special_closes)),
        }
    )


def from_bytes(content: bytes) -> Schedule:
    """Decode the result of `to_bytes` to an equal schedule.

    Raises:
        ArtifactError: the version is newer than VERSION, it is not strict JSON, or a key is missing, unknown, repeated
            or invalid; the message and `metadata["key"]` name the key.
    """
    record = Record.from_bytes(content, FILE_NAME)
    version = _read_version(record)
    first, last = _read_date(record, "first"), _read_date(record, "last")
    if first > last:
        raise record.make_error("last", f"is {last}, before first, {first}")
    time_zone = record.text("time_zone")
    try:
        ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        problem = f"is {time_zone!r}, which this machine does not know (pip install tzdata?)"
        raise record.make_error("time_zone", problem) from error
    schedule = Schedule(
        name=_name(record),
        time_zone=time_zone,
        first=first,
        last=last,
        is_every_day=version > 1 and record.flag("is_every_day"),
        holidays=_read_dates(record, "holidays"),
        unannounced=_read_dates(record, "unannounced"),
        regular_closes=_read_closes(record, "regular_closes", version),
        special_closes=_read_closes(record, "special_closes", version),
    )
    record.end()
    _check_consistent(record, schedule)
    return schedule


def _read_version(record: Record) -> int:
    if not record.has("version"):
        return 1
    version = record.integer("version")
    if version > VERSION:
        raise record.make_error(
            "version", f"is {version}, this program reads up to {VERSION}; update quantra, or train the model again"
        )
    if version < 2:  # noqa: PLR2004 - version 1 has no such key
        raise record.make_error("version", f"is {version}, but must be at least 2")
    return version


def _name(record: Record) -> str:
    name = record.text("name")
    if not name:
        raise record.make_error("name", "is empty")
    return name


def _read_date(record: Record, key: str) -> int:
    day = record.integer(key)
    _check_date(record, key, day)
    return day


def _read_dates(record: Record, key: str) -> tuple[int, ...]:
    days = record.integers(key)
    for k, day in enumerate(days):
        _check_date(record, f"{key}[{k}]", day)
    _check_ascending(record, key, days)
    return days


def _read_closes(record: Record, key: str, version: int) -> tuple[CloseTime, ...]:
    closes = tuple(_close(item, version) for item in record.records(key))
    _check_ascending(record, key, [close.date for close in closes])
    return closes


def _close(record: Record, version: int) -> CloseTime:
    close = CloseTime(date=_read_date(record, "date"), time=record.text("time"))
    if not _CLOCKS[version].fullmatch(close.time):
        raise record.make_error("time", f"is {close.time!r}, which is not a time of day (HH:MM)")
    record.end()
    return close


def _check_date(record: Record, key: str, day: int) -> None:
    if not is_valid_date(day):
        raise record.make_error(key, f"is {day}, which is not a date (yyyymmdd)")


def _check_ascending(record: Record, key: str, days: Sequence[int]) -> None:
    for k, (earlier, later) in enumerate(pairwise(days), start=1):
        if later <= earlier:
            raise record.make_error(f"{key}[{k}]", f"is {later} and follows {earlier}, but dates must ascend")


def _check_consistent(record: Record, schedule: Schedule) -> None:
    """Raise ArtifactError if the parts of a schedule contradict each other."""
    if schedule.is_every_day != (schedule.name == EVERY_DAY):
        raise record.make_error("name", f"is {schedule.name!r}, but exactly {EVERY_DAY!r} has every day of the week")
    days = frozenset(to_date_numbers(schedule.days).tolist())
    kind = "day" if schedule.is_every_day else "weekday"
    _check_among(record, "holidays", schedule.holidays, days, f"not a {kind} between first and last")
    _check_among(record, "unannounced", schedule.unannounced, frozenset(schedule.holidays), "not among the holidays")
    sessions = days.difference(schedule.holidays)
    if not sessions:
        raise record.make_error("holidays", "leave no session")
    special = [close.date for close in schedule.special_closes]
    _check_among(record, "special_closes", special, sessions, "not a session")
    starts = [close.date for close in schedule.regular_closes]
    if starts and starts[0] != schedule.first:
        raise record.make_error("regular_closes", f"begin on {starts[0]}, but must begin on first, {schedule.first}")
    if special and not starts:
        raise record.make_error("special_closes", "are given without regular_closes")


def _check_among(record: Record, key: str, days: Sequence[int], allowed: frozenset[int], problem: str) -> None:
    for k, day in enumerate(days):
        if day not in allowed:
            raise record.make_error(f"{key}[{k}]", f"is {day}, which is {problem}")
