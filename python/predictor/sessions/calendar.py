"""The calendar itself: which days are sessions, when they close, what is known of them ahead of time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import Final, Self, final
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from predictor.dates import (
    ONE_DAY,
    as_date,
    as_number,
    dates_of,
    day_array,
    is_weekend,
    weekday_of,
    whole_months,
)
from predictor.errors import BarsError, CalendarEndedError, ConfigurationError, shown_date
from predictor.sessions import exchange, schedule
from predictor.sessions.schedule import EVERY_DAY, MIDNIGHT, WEEKDAYS, CloseTime, Schedule

FIELDS = ("weekday", "sessions_to_month_end", "sessions_from_month_start", "days_to_holiday", "days_from_holiday")
"""What `SessionCalendar.fields` gives for a session, in this order."""


HOLIDAY_REACH = 30
"""Calendar days. A holiday further away than this, or none, counts as this far."""


@dataclass(frozen=True, slots=True)
class SessionTable:
    """The sessions of a calendar int32 [N], ascending, and FIELDS float64 [5, N]."""

    sessions: NDArray[np.int32]
    fields: NDArray[np.float64]


def table_of(schedule: Schedule) -> SessionTable:
    """The sessions of a schedule and their fields."""
    closed, surprises = day_array(schedule.holidays), day_array(schedule.unannounced)
    days = np.setdiff1d(schedule.days, closed)
    values = np.stack(
        [
            weekday_of(days).astype(np.float64),
            _later_in_month(days, np.union1d(days, surprises)),
            _earlier_in_month(days),
            _days_to(days, np.setdiff1d(closed, surprises)),
            _days_since(days, closed),
        ],
    )
    sessions = dates_of(days)
    sessions.flags.writeable = False
    return SessionTable(sessions, values)


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
    beyond = days[-1:] + HOLIDAY_REACH * ONE_DAY
    upcoming = np.concatenate([holidays, beyond])[np.searchsorted(holidays, days)]
    return np.minimum((upcoming - days).astype(np.float64), HOLIDAY_REACH)


def _days_since(days: NDArray[np.datetime64], holidays: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Calendar days since the previous holiday, at most HOLIDAY_REACH."""
    beyond = days[:1] - HOLIDAY_REACH * ONE_DAY
    previous = np.concatenate([beyond, holidays])[np.searchsorted(holidays, days)]
    return np.minimum((days - previous).astype(np.float64), HOLIDAY_REACH)


RENEWAL: Final = "train the model again (quantra train stock) to renew its calendar"
"""What helps where a calendar has ended: it goes some years beyond the bars that a model is trained on."""


_OPEN_AT_MOST: Final = 3
"""Of the sessions up to today, so many of the last may still be open, wherever the exchange is."""


def _require_zone(now: datetime) -> None:
    if now.tzinfo is None:
        raise ConfigurationError(f"now is {now.isoformat()}, without a time zone; pass datetime.now(UTC)")


@final
@dataclass(frozen=True, slots=True)
class SessionCalendar:
    """Answers about the sessions of a schedule; equal schedules make equal calendars.

    Make one with `named`, `from_exchange`, `weekdays`, `every_day` or `from_json`; these check what the constructor
    takes on trust.
    """

    schedule: Schedule
    _table: SessionTable = field(init=False, repr=False, compare=False)
    _special_closes: Mapping[int, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the table that answers everything else."""
        object.__setattr__(self, "_table", table_of(self.schedule))
        object.__setattr__(self, "_special_closes", {one.date: one.time for one in self.schedule.special_closes})

    @classmethod
    def named(cls, name: str, first: int, last: int) -> Self:
        """The calendar that a person means: `weekdays` or nothing, `24/7`, or an exchange's code.

        Raises:
            MissingPackageError: an exchange is named, and exchange-calendars is not installed.
            ConfigurationError: as the others of its kind.
        """
        if name in {"", WEEKDAYS}:
            return cls.weekdays(first, last)
        return cls.every_day(first, last) if name == EVERY_DAY else cls.from_exchange(name, first, last)

    @classmethod
    def weekdays(cls, first: int, last: int) -> Self:
        """Monday to Friday, no holidays, closes unknown: the calendar of an unknown exchange.

        Args:
            first: first date, yyyymmdd; widened to the start of its month, so that month fields are right.
            last: last date, yyyymmdd; widened to the end of its month.

        Raises:
            ConfigurationError: no dates, or in the wrong order.
        """
        start, end = whole_months(first, last)
        return cls(Schedule(name=WEEKDAYS, time_zone="UTC", first=start, last=end))

    @classmethod
    def every_day(cls, first: int, last: int) -> Self:
        """Every day of the week, as cryptocurrencies trade; a session ends at midnight UTC, when the next one begins.

        Args:
            first: first date, yyyymmdd; widened to the start of its month, so that month fields are right.
            last: last date, yyyymmdd; widened to the end of its month.

        Raises:
            ConfigurationError: no dates, or in the wrong order.
        """
        start, end = whole_months(first, last)
        closes = (CloseTime(date=start, time=MIDNIGHT),)
        return cls(
            Schedule(name=EVERY_DAY, time_zone="UTC", first=start, last=end, is_every_day=True, regular_closes=closes)
        )

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
        return cls(exchange.schedule_of(name, first, last))

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Read what `to_json` wrote; the result is equal to the calendar that was written.

        Raises:
            ArtifactError: not strict JSON, a key missing, unknown or twice, or an invalid value; the message and
                `metadata["key"]` name the key.
        """
        return cls(schedule.from_bytes(content))

    def to_json(self) -> bytes:
        """The calendar as canonical JSON; equal calendars give equal bytes."""
        return schedule.to_bytes(self.schedule)

    @property
    def name(self) -> str:
        """The exchange's code (ISO 10383, such as "XNYS"), "24/7", or "weekdays" where the exchange is unknown."""
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
        """Whether a market's own sessions are known; False for Monday to Friday, which is only a guess at them."""
        return self.name != WEEKDAYS

    @property
    def is_every_day(self) -> bool:
        """Whether there are sessions on Saturdays and Sundays too."""
        return self.schedule.is_every_day

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
        self._require_covered(day, day)
        place = int(np.searchsorted(self._table.sessions, day))
        return place < self._table.sessions.size and bool(self._table.sessions[place] == day)

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
                f"only {result.size} of the {count} sessions after {shown_date(session)} are known: the calendar "
                f"{self.name} ends on {shown_date(self.last)}; {RENEWAL}",
                metadata={"calendar": self.name, "date": shown_date(session), "last": shown_date(self.last)},
            )
        return result

    def preceding(self, session: int, count: int) -> NDArray[np.int32]:
        """The `count` sessions before a date, which need not be a session itself; int32 [count], oldest first.

        Raises:
            CalendarEndedError: the calendar does not cover the date, or begins after so many sessions.
        """
        self._require_covered(session, session)
        stop = int(np.searchsorted(self._table.sessions, session))
        if stop < count:
            raise CalendarEndedError(
                f"only {stop} of the {count} sessions before {shown_date(session)} are known: the calendar "
                f"{self.name} begins on {shown_date(self.first)}; send later dates",
                metadata={"calendar": self.name, "date": shown_date(session), "first": shown_date(self.first)},
            )
        return self._table.sessions[stop - count : stop]

    def is_gapless(self, sessions: NDArray[np.int32]) -> bool:
        """Whether these dates, int32 [T], are so many of the calendar's sessions in a row; never raises."""
        start = int(np.searchsorted(self._table.sessions, sessions[0])) if sessions.size else 0
        return np.array_equal(self._table.sessions[start : start + sessions.size], sessions)

    def missing(self, sessions: NDArray[np.int32]) -> NDArray[np.int32]:
        """The sessions that are absent between the first and the last date given; int32 [M], ascending.

        Args:
            sessions: int32 [T], dates in any order.

        Raises:
            CalendarEndedError: a date that the calendar does not cover.
        """
        if not sessions.size:
            return sessions
        rows = self._rows(sessions)
        first, stop = int(rows.min()), int(np.searchsorted(self._table.sessions, sessions.max(), side="right"))
        absent = np.ones(stop - first, np.bool_)
        absent[rows[self._found(sessions, rows)] - first] = False
        return self._table.sessions[first:stop][absent]

    def unexpected(self, sessions: NDArray[np.int32]) -> NDArray[np.int32]:
        """Those of the dates given on which the exchange does not trade; int32 [M], in the order given.

        Args:
            sessions: int32 [T], dates in any order.

        Raises:
            CalendarEndedError: a date that the calendar does not cover.
        """
        return sessions[~self._found(sessions, self._rows(sessions))]

    def remedy(self, strangers: NDArray[np.int32]) -> str:
        """What to do about bars on these dates, int32 [M], of which none is a session."""
        if is_weekend(strangers).any() and not self.is_every_day:
            return (
                "remove these bars, or train by every day of the week, as cryptocurrencies trade, with --calendar "
                f"{EVERY_DAY}"
            )
        return "remove these bars, or train by the calendar of the exchange that they come from"

    def close_instant(self, session: int) -> datetime | None:
        """When the session ends, in UTC; None where the calendar knows no closes.

        Raises:
            CalendarEndedError: the calendar does not cover the date.
            BarsError: the date is not a session.
        """
        if not self.is_gapless(np.array([session], np.int32)):
            self.places(np.array([session], np.int32))
        if not self.schedule.regular_closes:
            return None
        clock, zone = self._special_closes.get(session) or self._regular_close(session), self.schedule.time_zone
        if clock == MIDNIGHT:
            return datetime.combine(as_date(session) + timedelta(days=1), time(), ZoneInfo(zone)).astimezone(UTC)
        return datetime.combine(as_date(session), time.fromisoformat(clock), ZoneInfo(zone)).astimezone(UTC)

    def _regular_close(self, session: int) -> str:
        return [close.time for close in self.schedule.regular_closes if close.date <= session][-1]

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
            BarsError: the date is not a session.
        """
        _require_zone(now)
        close = self.close_instant(session)
        if close is None:
            return now.astimezone(UTC).date() > as_date(session)
        return now >= close

    def closed_since(self, session: int, now: datetime) -> int:
        """How many later sessions have closed, so that their bars could be known.

        Args:
            session: yyyymmdd; 0 sessions where it has not closed itself.
            now: an instant with a time zone.

        Raises:
            ConfigurationError: `now` has no time zone.
            CalendarEndedError: the calendar does not cover the session, or today.
        """
        _require_zone(now)
        today = as_number(now.astimezone(UTC).date())
        later = [int(one) for one in self.sessions(session, max(session, today)) if one > session]
        return sum(self.is_complete(one, now) for one in later[-_OPEN_AT_MOST:]) + len(later[:-_OPEN_AT_MOST])

    def fields(self, sessions: NDArray[np.int32]) -> dict[str, NDArray[np.float64]]:
        """What the calendar alone says about each session, which is known ahead of time.

        A session's values depend on its date and on the calendar, not on the other dates in the array.

            weekday                    0 (Monday) to 4 (Friday); on every day of the week, to 6 (Sunday)
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
            BarsError: a date that is not a session; the message names the first.
        """
        return dict(zip(FIELDS, self._table.fields[:, self.places(sessions)], strict=True))

    def places(self, sessions: NDArray[np.int32]) -> NDArray[np.intp]:
        """The place of each session [T] among all of the calendar's, in the shape of `sessions`; raises as `fields`."""
        rows = self._rows(sessions)
        is_session = self._found(sessions, rows)
        if is_session.all():
            return rows
        day = int(sessions[~is_session][0])
        raise BarsError(
            f"{shown_date(day)} is not a session of the calendar {self.name}: {self.remedy(sessions[~is_session])}",
            metadata={"calendar": self.name, "date": shown_date(day)},
        )

    def _require_covered(self, first: int, last: int) -> None:
        """Refuse dates outside the calendar."""
        outside = first if first < self.first else last
        if self.first <= outside <= self.last:
            return
        hint = "send later dates" if outside < self.first else RENEWAL
        raise CalendarEndedError(
            f"{shown_date(outside)} lies outside the calendar {self.name}, which covers {shown_date(self.first)} to "
            f"{shown_date(self.last)}; {hint}",
            metadata={"calendar": self.name, "date": shown_date(outside), "last": shown_date(self.last)},
        )

    def _rows(self, sessions: NDArray[np.int32]) -> NDArray[np.intp]:
        """The row of the table where each date is, or would be; [T]."""
        if sessions.size:
            self._require_covered(int(sessions.min()), int(sessions.max()))
        return np.searchsorted(self._table.sessions, sessions)

    def _found(self, sessions: NDArray[np.int32], rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of the dates are in the table at their row; [T]."""
        return self._table.sessions.take(rows, mode="clip") == sessions
