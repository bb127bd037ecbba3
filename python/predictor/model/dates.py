"""The dates of an instance, checked against the calendar and the clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, IndexArray
from predictor.bars import BarPanel
from predictor.bars.checks import check_past, find_latest_day
from predictor.covariates import NO_COVARIATES
from predictor.dates import is_weekend, to_date, to_dates
from predictor.errors import BarIncompleteError, BarsError, BarsStaleError, QuantraError, SessionGapError, format_date
from predictor.instance import GapPolicy, Instance
from predictor.model.prepared_instance import check_length
from predictor.sessions import SessionCalendar
from predictor.windows import Pipeline

MAX_CACHED: Final = 256
"""Most entries in the cache of dates; one takes a few KiB."""

NO_EXCHANGE_WARNING = (
    "target sessions are Monday to Friday, holidays included, because the model has no exchange's calendar; "
    "train it with --calendar"
)
"""Warning on every forecast of such a model."""
GUESSED_SESSIONS_WARNING = (
    "the bars begin on {first}, after the first of the {encoder} sessions that the model reads; earlier sessions are "
    "taken to be Monday to Friday, so a network that reads their calendar forecasts slightly differently than with "
    "a symbol that has bars on them: send such bars too, or train with --calendar"
)
"""Warning when such a model fills the encoder with sessions that the request lacks."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastDates:
    """The dates of an instance. B sessions that a forecast depends on, the last T of them in the encoder."""

    sessions: NDArray[np.int32]
    """[B]"""
    positions: IndexArray | None
    """[B] index of each session in the bars, -1 = missing; None if they are the bars' last sessions."""
    encoder: NDArray[np.int32]
    """[T]"""
    following: NDArray[np.int32]
    """[D] sessions that the target reaches."""
    target_sessions: tuple[date, ...]
    """[H] session that each horizon ends on."""
    base_session: date
    """Session that horizons count from."""
    known: NDArray[np.float32] | None
    """[1, T + D, K] known features; None if they also depend on covariates."""
    warnings: tuple[str, ...]

    @property
    def as_of(self) -> int:
        """The last session, yyyymmdd."""
        return int(self.sessions[-1])

    def recent(self, bars: BarPanel) -> BarPanel:
        """Select the bars of these sessions; a missing session is unknown."""
        if self.positions is None:
            return bars.last(len(self.sessions))
        return bars.between(int(self.sessions[0]), self.as_of).on_sessions(self.sessions)


class _CachedDates(NamedTuple):
    """Cached dates and the time of their check."""

    dates: ForecastDates
    now: datetime


@final
class DateReader:
    """Reads the dates of instances for one pipeline and caches them. Thread-safe.

    Dates that passed the check once pass at any later time, because sessions only close.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._cache: dict[tuple[bytes, str, str, bool], _CachedDates] = {}

    def read(self, instance: Instance, bars: BarPanel, now: datetime) -> ForecastDates:
        """Read and check the dates of an instance's bars; `now` has a time zone.

        Raises:
            BarsError, BarIncompleteError, SessionGapError, CalendarEndedError: the dates violate the calendar.
            TooFewBarsError, NoUsableSymbolError: the bars are too short for every symbol.
        """
        key = (bars.sessions.tobytes(), bars.calendar, instance.gap_policy.value, instance.allow_incomplete_last_bar)
        entry = self._cache.get(key)
        if entry is not None and now.tzinfo is not None and now >= entry.now:
            return entry.dates
        pipeline = self.pipeline
        sessions = _choose_sessions(pipeline, bars, instance, now)
        last, following = int(sessions[-1]), pipeline.following(int(sessions[-1]))
        of_covariates = bool(pipeline.features.features.covariates.known)
        dates = ForecastDates(
            sessions=sessions,
            positions=_find_positions(bars.sessions, sessions),
            encoder=sessions[-pipeline.encoder_length :],
            following=following,
            target_sessions=to_dates(pipeline.target_sessions(last)),
            base_session=to_date(pipeline.base_session(last)),
            known=None if of_covariates else pipeline.latest_known(sessions, following, NO_COVARIATES),
            warnings=_find_warnings(pipeline, bars.sessions),
        )
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        self._cache[key] = _CachedDates(dates, now)
        return dates


def check_age(calendar: SessionCalendar, as_of: int, limit: int | None, now: datetime) -> None:
    """Reject an instance whose last session is older than the caller allows.

    Args:
        calendar: the model's calendar.
        as_of: the last session, yyyymmdd; 0 = unknown.
        limit: most sessions that may have closed since; None = any number.
        now: the present, with a time zone.

    Raises:
        BarsStaleError: more sessions have closed, or their number is unknown.
        CalendarEndedError: the calendar does not cover today.
    """
    if limit is None:
        return
    if not as_of:
        raise BarsStaleError(
            f"as_of_session is 0, so the window's age is unknown, and at most {limit} sessions may have closed since; "
            "send the session of the last row",
            metadata={"most": str(limit)},
        )
    have = calendar.closed_since(as_of, now)
    if have > limit:
        raise BarsStaleError.of(as_of, have=have, limit=limit)


def drop_wrong_sessions(
    pipeline: Pipeline, instance: Instance, bars: BarPanel, now: datetime
) -> tuple[BarPanel, dict[str, QuantraError]]:
    """Drop sessions that are in the future, not closed yet or not of the calendar, and the symbols with a bar on one.

    Returns:
        The panel, in which each such symbol has no bars at all, and the error of each. The panel as it is and no error
        if no symbol has such a bar, no session would be left, or more than half have one: then the whole panel may be
        read wrongly.
    """
    is_wrong, present = _find_wrong_sessions(pipeline, instance, bars.sessions, now), bars.present
    is_refused = np.logical_or.reduce(present[:, is_wrong], axis=1)
    if is_wrong.all() or 2 * np.count_nonzero(is_refused) > len(bars.symbols):
        return bars, {}
    errors: dict[str, QuantraError] = {}
    for row in np.flatnonzero(is_refused).tolist():
        symbol, symbol_sessions = bars.symbols[row], bars.sessions[present[row]]
        try:
            check_past((symbol,), symbol_sessions, np.ones((1, len(symbol_sessions))), now.date())
            _check_calendar(pipeline, symbol_sessions, instance, now, symbol=symbol)
        except (BarsError, BarIncompleteError) as error:
            errors[symbol] = error.without_frames()
    cells = np.repeat(is_refused[:, None], len(bars.sessions), axis=1)
    return bars.without_cells(cells).without_sessions(bars.sessions[is_wrong].tolist()), errors


def _find_wrong_sessions(pipeline: Pipeline, instance: Instance, days: NDArray[np.int32], now: datetime) -> BoolArray:
    calendar = pipeline.calendar
    is_wrong = days > find_latest_day(now.date())
    if not calendar.is_exchange:
        return is_wrong
    while not is_wrong.all() and len(unexpected := calendar.unexpected(days[~is_wrong][-pipeline.bars_needed :])):
        is_wrong |= np.isin(days, unexpected)  # which makes room for earlier sessions
    if not instance.allow_incomplete_last_bar:
        for position in np.flatnonzero(~is_wrong)[::-1].tolist():
            if calendar.is_complete(int(days[position]), now):
                break
            is_wrong[position] = True
    return is_wrong


def _check_calendar(
    pipeline: Pipeline, sessions: NDArray[np.int32], instance: Instance, now: datetime, *, symbol: str = ""
) -> None:
    """Check that bars are on closed sessions of the exchange, if the model has one.

    Raises:
        BarsError: A session that the model reads is not one of the calendar.
        BarIncompleteError: The last session has not closed yet.
    """
    calendar, recent, last = pipeline.calendar, sessions[-pipeline.bars_needed :], int(sessions[-1])
    if not calendar.is_exchange:
        return
    name = f"{symbol}: " if symbol else ""
    if not calendar.is_gapless(recent) and len(unexpected := calendar.unexpected(recent)):
        days = _format_days(unexpected)
        raise BarsError(f"{name}{calendar.name} held no session on {days}; {calendar.remedy(unexpected)}")
    if not instance.allow_incomplete_last_bar and not calendar.is_complete(last, now):
        raise BarIncompleteError(
            f"{name}the session of {_format_days([last])} has not closed yet, so its bar has no close; leave it out, "
            "or set allow_incomplete_last_bar",
            metadata={"date": _format_days([last])},
        )


def _choose_sessions(pipeline: Pipeline, bars: BarPanel, instance: Instance, now: datetime) -> NDArray[np.int32]:
    """Return the sessions [B] that the forecast depends on, checked against the exchange's if known."""
    calendar, sessions = pipeline.calendar, bars.sessions
    check_past(bars.symbols, sessions, bars.close, now.date())
    if not calendar.is_exchange:
        check_length(pipeline, bars)
        return pipeline.recent_sessions(sessions, bars.symbols)
    if bars.calendar and bars.calendar != calendar.name:
        raise BarsError(f"the bars are of calendar {bars.calendar!r}, but the model's calendar is {calendar.name!r}")
    _check_calendar(pipeline, sessions, instance, now)
    recent = sessions[-pipeline.bars_needed :]
    missing = recent[:0] if calendar.is_gapless(recent) else calendar.missing(recent)
    if len(missing) and instance.gap_policy is GapPolicy.REFUSE:
        lacks_weekends = is_weekend(missing).any() and not is_weekend(recent).any()
        hint = "; bars of Monday to Friday need a model that was trained with their exchange's calendar"
        raise SessionGapError(
            f"{calendar.name} held sessions on {_format_days(missing)} that the bars lack; send them, or choose the "
            f"gap policy mask or ignore{hint if lacks_weekends else ''}",
            metadata={"missing": _format_days(missing), "count": str(len(missing))},
        )
    check_length(pipeline, bars)
    if len(missing) and instance.gap_policy is GapPolicy.MASK:
        recent = np.union1d(recent, missing)[-pipeline.bars_needed :].astype(np.int32)
    return pipeline.recent_sessions(recent, bars.symbols)


def _find_positions(have: NDArray[np.int32], want: NDArray[np.int32]) -> IndexArray | None:
    """See `ForecastDates.positions`."""
    if np.array_equal(have[-len(want) :], want):
        return None
    positions = np.searchsorted(have, want)
    return np.where(have.take(positions, mode="clip") == want, positions, -1)


def _find_warnings(pipeline: Pipeline, sessions: NDArray[np.int32]) -> tuple[str, ...]:
    if pipeline.calendar.is_exchange:
        return ()
    if len(sessions) >= pipeline.encoder_length:
        return (NO_EXCHANGE_WARNING,)
    return (
        NO_EXCHANGE_WARNING,
        GUESSED_SESSIONS_WARNING.format(first=format_date(int(sessions[0])), encoder=pipeline.encoder_length),
    )


def _format_days(sessions: Sequence[int] | NDArray[np.int32]) -> str:
    """Format up to five dates in ISO form."""
    days = [format_date(int(session)) for session in sessions[:5]]
    return ", ".join(days) + (f" and {len(sessions) - 5} more" if len(sessions) > 5 else "")  # noqa: PLR2004
