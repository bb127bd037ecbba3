"""The session calendar: sessions, close times, fields that features read, and which exchange fits given sessions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from importlib.util import find_spec
from typing import Final, Self, final
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from predictor.dates import (
    ONE_DAY,
    compute_weekdays,
    extend_to_whole_months,
    is_weekend,
    to_date,
    to_date_number,
    to_date_numbers,
    to_days,
)
from predictor.errors import BarsError, CalendarEndedError, ConfigurationError, format_date
from predictor.sessions import exchange, schedule
from predictor.sessions.schedule import EVERY_DAY, MIDNIGHT, WEEKDAYS, CloseTime, Schedule

FIELDS = ("weekday", "sessions_to_month_end", "sessions_from_month_start", "days_to_holiday", "days_from_holiday")
"""The fields of a calendar's table, in order."""
DATE_FIELDS = ("day_of_month", "month_of_year")
"""The fields of `SessionCalendar.fields` that follow from the date."""


HOLIDAY_REACH = 30
"""Upper bound of the distances to holidays, in calendar days."""


@dataclass(frozen=True, slots=True)
class SessionTable:
    """All sessions of a calendar: dates int32 [N], ascending, and FIELDS float64 [5, N]."""

    sessions: NDArray[np.int32]
    fields: NDArray[np.float64]


def compute_table(schedule: Schedule) -> SessionTable:
    """Compute the sessions of a schedule and their fields."""
    closed, surprises = to_days(schedule.holidays), to_days(schedule.unannounced)
    days = np.setdiff1d(schedule.days, closed)
    values = np.stack(
        [
            compute_weekdays(days).astype(np.float64),
            _count_later_in_month(days, np.union1d(days, surprises)),
            _count_earlier_in_month(days),
            _count_days_to(days, np.setdiff1d(closed, surprises)),
            _count_days_since(days, closed),
        ],
    )
    sessions = to_date_numbers(days)
    sessions.flags.writeable = False
    return SessionTable(sessions, values)


def _count_earlier_in_month(days: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Number of `days` before each one in its month."""
    months = days.astype("datetime64[M]")
    return (np.arange(days.size) - np.searchsorted(months, months)).astype(np.float64)


def _count_later_in_month(days: NDArray[np.datetime64], planned: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Number of `planned` sessions after each of `days` in its month."""
    end = np.searchsorted(planned.astype("datetime64[M]"), days.astype("datetime64[M]"), side="right")
    return (end - np.searchsorted(planned, days, side="right")).astype(np.float64)


def _count_days_to(days: NDArray[np.datetime64], holidays: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Calendar days until the next holiday, at most HOLIDAY_REACH."""
    beyond = days[-1:] + HOLIDAY_REACH * ONE_DAY
    upcoming = np.concatenate([holidays, beyond])[np.searchsorted(holidays, days)]
    return np.minimum((upcoming - days).astype(np.float64), HOLIDAY_REACH)


def _count_days_since(days: NDArray[np.datetime64], holidays: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Calendar days since the previous holiday, at most HOLIDAY_REACH."""
    beyond = days[:1] - HOLIDAY_REACH * ONE_DAY
    previous = np.concatenate([beyond, holidays])[np.searchsorted(holidays, days)]
    return np.minimum((days - previous).astype(np.float64), HOLIDAY_REACH)


RENEWAL: Final = "train the model again (quantra train stock) to renew its calendar"
"""Advice when a calendar has ended, some years after the bars that the model was trained on."""


_OPEN_AT_MOST: Final = 3
"""Most of the last sessions up to today that may still be open, in any time zone."""


def _require_zone(now: datetime) -> None:
    if now.tzinfo is None:
        raise ConfigurationError(f"now is {now.isoformat()}, without a time zone; pass datetime.now(UTC)")


@final
@dataclass(frozen=True, slots=True)
class SessionCalendar:
    """The sessions of a schedule; calendars with equal schedules are equal.

    Create one with `named`, `from_exchange`, `weekdays`, `every_day` or `from_json`, which validate the schedule; the
    constructor does not.
    """

    schedule: Schedule
    _table: SessionTable = field(init=False, repr=False, compare=False)
    _special_closes: Mapping[int, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_table", compute_table(self.schedule))
        object.__setattr__(self, "_special_closes", {close.date: close.time for close in self.schedule.special_closes})

    @classmethod
    def named(cls, name: str, first: int, last: int) -> Self:
        """Create a calendar by name: `weekdays` or empty, `24/7`, or an exchange's code.

        Raises:
            MissingPackageError: the name is an exchange's, and exchange-calendars is not installed.
            ConfigurationError: as `weekdays`, `every_day` and `from_exchange`.
        """
        if name in {"", WEEKDAYS}:
            return cls.weekdays(first, last)
        return cls.every_day(first, last) if name == EVERY_DAY else cls.from_exchange(name, first, last)

    @classmethod
    def weekdays(cls, first: int, last: int) -> Self:
        """Create the calendar of an unknown exchange: Monday to Friday, without holidays and close times.

        Args:
            first: first date, yyyymmdd; extended to the start of its month, so that month fields are right.
            last: last date, yyyymmdd; extended to the end of its month.

        Raises:
            ConfigurationError: `first` or `last` is not a date, or `first` is after `last`.
        """
        start, end = extend_to_whole_months(first, last)
        return cls(Schedule(name=WEEKDAYS, time_zone="UTC", first=start, last=end))

    @classmethod
    def every_day(cls, first: int, last: int) -> Self:
        """Create the calendar of cryptocurrencies: every day of the week, with sessions that end at midnight UTC.

        Args:
            first: first date, yyyymmdd; extended to the start of its month, so that month fields are right.
            last: last date, yyyymmdd; extended to the end of its month.

        Raises:
            ConfigurationError: `first` or `last` is not a date, or `first` is after `last`.
        """
        start, end = extend_to_whole_months(first, last)
        closes = (CloseTime(date=start, time=MIDNIGHT),)
        return cls(
            Schedule(name=EVERY_DAY, time_zone="UTC", first=start, last=end, is_every_day=True, regular_closes=closes)
        )

    @classmethod
    def from_exchange(cls, name: str, first: int, last: int) -> Self:
        """Create the calendar of an exchange with the package exchange-calendars.

        Args:
            name: the exchange's code, such as "XNYS", or an alias of the package, such as "NASDAQ".
            first: first date, yyyymmdd; extended to the start of its month, so that month fields are right.
            last: last date, yyyymmdd; extended to the end of its month. Some exchanges publish only a year or two
                ahead; the calendar's `last` is then earlier.

        Raises:
            MissingPackageError: exchange-calendars is not installed.
            ConfigurationError: the exchange is unknown, has sessions on weekends or past midnight, or is not recorded
                for this range.
        """
        return cls(exchange.load_schedule(name, first, last))

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Decode the result of `to_json` to an equal calendar.

        Raises:
            ArtifactError: it is not strict JSON, or a key is missing, unknown, repeated or invalid; the message and
                `metadata["key"]` name the key.
        """
        return cls(schedule.from_bytes(content))

    def to_json(self) -> bytes:
        """Encode as canonical JSON; equal calendars give equal bytes."""
        return schedule.to_bytes(self.schedule)

    @property
    def name(self) -> str:
        """The exchange's code (ISO 10383, such as "XNYS"), "24/7", or "weekdays" for an unknown exchange."""
        return self.schedule.name

    @property
    def first(self) -> int:
        """First date covered, yyyymmdd."""
        return self.schedule.first

    @property
    def last(self) -> int:
        """Last date covered, yyyymmdd."""
        return self.schedule.last

    @property
    def is_exchange(self) -> bool:
        """Whether the market's sessions are known; False for `weekdays`, which is only an approximation."""
        return self.name != WEEKDAYS

    @property
    def is_every_day(self) -> bool:
        """Whether Saturdays and Sundays are sessions too."""
        return self.schedule.is_every_day

    def sessions(self, first: int, last: int) -> NDArray[np.int32]:
        """The sessions from `first` to `last`, both included, int32 [N] (read-only).

        Raises:
            CalendarEndedError: the calendar does not cover both dates.
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
        self._require_covered(day, day)
        position = int(np.searchsorted(self._table.sessions, day))
        return position < self._table.sessions.size and bool(self._table.sessions[position] == day)

    def following(self, session: int, count: int) -> NDArray[np.int32]:
        """The `count` sessions after a date, which may be any day; int32 [count] (read-only).

        Raises:
            CalendarEndedError: the calendar does not cover the date and all these sessions.
        """
        self._require_covered(session, session)
        start = int(np.searchsorted(self._table.sessions, session, side="right"))
        result = self._table.sessions[start : start + count]
        if result.size < count:
            raise CalendarEndedError(
                f"only {result.size} of the {count} sessions after {format_date(session)} are known: the calendar "
                f"{self.name} ends on {format_date(self.last)}; {RENEWAL}",
                metadata={"calendar": self.name, "date": format_date(session), "last": format_date(self.last)},
            )
        return result

    def preceding(self, session: int, count: int) -> NDArray[np.int32]:
        """The `count` sessions before a date, which may be any day; int32 [count], oldest first (read-only).

        Raises:
            CalendarEndedError: the calendar does not cover the date and all these sessions.
        """
        self._require_covered(session, session)
        stop = int(np.searchsorted(self._table.sessions, session))
        if stop < count:
            raise CalendarEndedError(
                f"only {stop} of the {count} sessions before {format_date(session)} are known: the calendar "
                f"{self.name} begins on {format_date(self.first)}; send later dates",
                metadata={"calendar": self.name, "date": format_date(session), "first": format_date(self.first)},
            )
        return self._table.sessions[stop - count : stop]

    def is_gapless(self, sessions: NDArray[np.int32]) -> bool:
        """Whether these dates, int32 [T], are consecutive sessions; never raises."""
        start = int(np.searchsorted(self._table.sessions, sessions[0])) if sessions.size else 0
        return np.array_equal(self._table.sessions[start : start + sessions.size], sessions)

    def missing(self, sessions: NDArray[np.int32]) -> NDArray[np.int32]:
        """The sessions between the first and the last of the dates that are not among them; int32 [M], ascending.

        Args:
            sessions: int32 [T], dates in any order.

        Raises:
            CalendarEndedError: the calendar does not cover a date.
        """
        if not sessions.size:
            return sessions
        rows = self._find_rows(sessions)
        first, stop = int(rows.min()), int(np.searchsorted(self._table.sessions, sessions.max(), side="right"))
        absent = np.ones(stop - first, np.bool_)
        absent[rows[self._match_rows(sessions, rows)] - first] = False
        return self._table.sessions[first:stop][absent]

    def unexpected(self, sessions: NDArray[np.int32]) -> NDArray[np.int32]:
        """The dates that are not sessions; int32 [M], in the order of `sessions`.

        Args:
            sessions: int32 [T], dates in any order.

        Raises:
            CalendarEndedError: the calendar does not cover a date.
        """
        return sessions[~self._match_rows(sessions, self._find_rows(sessions))]

    def remedy(self, dates: NDArray[np.int32]) -> str:
        """Advice for bars on dates, int32 [M], that are not sessions."""
        if is_weekend(dates).any() and not self.is_every_day:
            return f"remove these bars, or, for what trades on every day of the week, train with --calendar {EVERY_DAY}"
        return (
            "remove these bars (quantra check --fix drops copies of the day before), or train with the calendar of "
            "their exchange"
        )

    def close_instant(self, session: int) -> datetime | None:
        """The time at which a session closes, in UTC; None if the calendar has no close times.

        Raises:
            CalendarEndedError: the calendar does not cover the date.
            BarsError: the date is not a session.
        """
        if not self.is_gapless(np.array([session], np.int32)):
            self.places(np.array([session], np.int32))
        if not self.schedule.regular_closes:
            return None
        regular = [close.time for close in self.schedule.regular_closes if close.date <= session][-1]
        clock, zone = self._special_closes.get(session, regular), self.schedule.time_zone
        if clock == MIDNIGHT:
            return datetime.combine(to_date(session) + timedelta(days=1), time(), ZoneInfo(zone)).astimezone(UTC)
        return datetime.combine(to_date(session), time.fromisoformat(clock), ZoneInfo(zone)).astimezone(UTC)

    def is_complete(self, session: int, now: datetime) -> bool:
        """Whether the session has closed, so that its daily bar is final.

        Without close times a session is considered closed when its date ends in UTC. All stock exchanges from New
        Zealand to California have closed by then, so the result may be late by some hours but is never early.

        Args:
            session: yyyymmdd.
            now: the current time, with a time zone.

        Raises:
            ConfigurationError: `now` has no time zone.
            CalendarEndedError: the calendar does not cover the date.
            BarsError: the date is not a session.
        """
        _require_zone(now)
        close = self.close_instant(session)
        if close is None:
            return now.astimezone(UTC).date() > to_date(session)
        return now >= close

    def closed_since(self, session: int, now: datetime) -> int:
        """Count the later sessions that have closed, whose bars could be known.

        Args:
            session: yyyymmdd; if it has not closed itself, the result is 0.
            now: the current time, with a time zone.

        Raises:
            ConfigurationError: `now` has no time zone.
            CalendarEndedError: the calendar does not cover the session or today.
        """
        _require_zone(now)
        today = to_date_number(now.astimezone(UTC).date())
        later = [int(date) for date in self.sessions(session, max(session, today)) if date > session]
        return sum(self.is_complete(date, now) for date in later[-_OPEN_AT_MOST:]) + len(later[:-_OPEN_AT_MOST])

    def fields(self, sessions: NDArray[np.int32]) -> dict[str, NDArray[np.float64]]:
        """The calendar's fields of each session, which are known in advance.

        The fields of a session depend only on its date and the calendar.

            weekday                    0 (Monday) to 4 (Friday); on every day of the week, to 6 (Sunday)
            sessions_to_month_end      sessions left in its month; 0 on the last
            sessions_from_month_start  sessions before it in its month; 0 on the first
            days_to_holiday            calendar days until the next holiday, at most HOLIDAY_REACH
            days_from_holiday          calendar days since the previous holiday, at most HOLIDAY_REACH
            day_of_month               1 to 31
            month_of_year              1 to 12

        Fields that look ahead treat unannounced closures as ordinary sessions. Holidays outside `first` to `last` are
        ignored.

        Args:
            sessions: int32 [T], sessions in any order.

        Returns:
            FIELDS and DATE_FIELDS, each float64 [T].

        Raises:
            CalendarEndedError: the calendar does not cover a date.
            BarsError: a date is not a session; the message names the first.
        """
        fields = dict(zip(FIELDS, self._table.fields[:, self.places(sessions)], strict=True))
        dates = (sessions % 100, sessions // 100 % 100)
        return {**fields, **{name: part.astype(np.float64) for name, part in zip(DATE_FIELDS, dates, strict=True)}}

    def places(self, sessions: NDArray[np.int32]) -> NDArray[np.intp]:
        """The index of each session [T] among all sessions of the calendar; raises as `fields`."""
        rows = self._find_rows(sessions)
        is_session = self._match_rows(sessions, rows)
        if is_session.all():
            return rows
        day = int(sessions[~is_session][0])
        raise BarsError(
            f"{format_date(day)} is not a session of the calendar {self.name}: {self.remedy(sessions[~is_session])}",
            metadata={"calendar": self.name, "date": format_date(day)},
        )

    def _require_covered(self, first: int, last: int) -> None:
        outside = first if first < self.first else last
        if self.first <= outside <= self.last:
            return
        hint = "send later dates" if outside < self.first else RENEWAL
        raise CalendarEndedError(
            f"{format_date(outside)} is outside the calendar {self.name}, which covers {format_date(self.first)} to "
            f"{format_date(self.last)}; {hint}",
            metadata={"calendar": self.name, "date": format_date(outside), "last": format_date(self.last)},
        )

    def _find_rows(self, sessions: NDArray[np.int32]) -> NDArray[np.intp]:
        """The row in the table of each date, or where it would be inserted; [T]."""
        if sessions.size:
            self._require_covered(int(sessions.min()), int(sessions.max()))
        return np.searchsorted(self._table.sessions, sessions)

    def _match_rows(self, sessions: NDArray[np.int32], rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether each date is in the table at its row; [T]."""
        return self._table.sessions.take(rows, mode="clip") == sessions


SUFFIXES: Final = {
    "AS": "XAMS",
    "AX": "XASX",
    "BO": "XBOM",
    "BR": "XBRU",
    "DE": "XETR",
    "F": "XFRA",
    "HK": "XHKG",
    "KS": "XKRX",
    "L": "XLON",
    "MC": "XMAD",
    "MI": "XMIL",
    "NS": "XBOM",
    "PA": "XPAR",
    "SA": "BVMF",
    "SS": "XSHG",
    "ST": "XSTO",
    "SW": "XSWX",
    "SZ": "XSHG",
    "T": "XTKS",
    "TO": "XTSE",
    "TW": "XTAI",
    "VI": "XWBO",
}
"""Exchanges by the suffix of tickers, as Yahoo writes them."""
OTHERS: Final = ("XNYS", "XLON", "XETR", "XTKS", "XHKG", "XPAR", "XTSE", "XASX", "XSWX", "XBOM", "XSHG")
"""Exchanges that are tried for tickers without a known suffix, in this order."""
MIN_SESSIONS: Final = 20
"""Fewest sessions by which a calendar is recognised."""
MAX_UNEXPECTED_SHARE: Final = 0.01
"""Share of dates that may be holidays: some vendors copy the bar of the day before."""
WEEKENDS: Final = 0.2
"""Share of Saturdays and Sundays from which bars are of every day; two of seven days are."""
SUFFICIENT: Final = 0.9
"""Share of the missing weekdays that an exchange's holidays must explain to end the search."""


def find_fitting_calendar(sessions: NDArray[np.int32], symbols: Sequence[str]) -> str:
    """The calendar whose sessions fit the dates of bars: an exchange's code, `24/7`, or empty if none fits.

    An exchange fits if hardly any bar is dated on one of its holidays; among several, the one that explains most of
    the missing weekdays. Without the package exchange-calendars only `24/7` is recognised.

    Args:
        sessions: [T] yyyymmdd, in increasing order.
        symbols: Tickers, whose suffix names the exchange first.
    """
    if len(sessions) < MIN_SESSIONS:
        return ""
    if is_weekend(sessions).mean() > WEEKENDS:
        return EVERY_DAY
    if is_weekend(sessions).any() or find_spec("exchange_calendars") is None:
        return ""
    missing = SessionCalendar.weekdays(int(sessions[0]), int(sessions[-1])).missing(sessions)
    suffixes = (symbol.rpartition(".")[2] for symbol in symbols if "." in symbol)
    best, max_explained = "", 0
    for name in dict.fromkeys((*(SUFFIXES[suffix] for suffix in suffixes if suffix in SUFFIXES), *OTHERS)):
        try:
            calendar = SessionCalendar.named(name, int(sessions[0]), int(sessions[-1]))
        except ConfigurationError:  # not recorded for these years
            continue
        strange = calendar.unexpected(sessions)
        if len(strange) > MAX_UNEXPECTED_SHARE * len(sessions):
            continue
        explained = len(missing) - len(calendar.missing(np.setdiff1d(sessions, strange))) - len(strange)
        if explained <= max_explained:
            continue
        best, max_explained = name, explained
        if explained >= SUFFICIENT * len(missing):
            break
    return best
