"""Subscriptions: the bars that they keep, and how a push changes them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self, final

import numpy as np

from predictor.arrays import BoolArray, IndexArray
from predictor.bars import BarPanel
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.dates import to_date
from predictor.errors import (
    BarIncompleteError,
    BarsError,
    CovariatesError,
    MalformedRequestError,
    NoUsableSymbolError,
    QuantraError,
    ResubscribeError,
    TooFewBarsError,
    format_date,
    format_names,
)
from predictor.forecast import Forecast, Outcome
from predictor.instance import GapPolicy, Instance
from predictor.subscription import day_covariates


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Push:
    """Pushed bars of one day, for some of a subscription's symbols."""

    bars: BarPanel | None = None
    """[P, 1]; NaN in all fields = the symbol has no bar that day. None = only `flush`."""
    covariates: Covariates = NO_COVARIATES
    """Observed [P, 1] and known [P, 1 + D]."""
    flush: bool = False
    """Whether to forecast the day although bars of some symbols are missing."""
    gap_policy: GapPolicy | None = None
    """None, or the same as the subscription's."""
    allow_incomplete_last_bar: bool = False
    """May be true only if it is true for the subscription."""
    accept_suspect_bars: bool = False
    """May be true only if it is true for the subscription."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartialDay:
    """The bars and covariates of one day that have arrived so far, for S symbols."""

    bars: BarPanel
    """[S, 1] NaN for bars that have not arrived."""
    covariates: Covariates
    """Observed [S, 1] and known [S, 1 + D], without static values."""
    has_arrived: BoolArray
    """[S] symbols whose bars have arrived, including pushed NaN bars."""
    is_ready: bool
    """Whether the day is complete or was flushed; every later push for it gets a forecast."""

    @property
    def session(self) -> int:
        """The day, yyyymmdd."""
        return int(self.bars.sessions[0])

    @property
    def is_new(self) -> bool:
        """Whether no bar has arrived yet."""
        return not self.has_arrived.any()

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Symbols whose bars must arrive before the day is forecast."""
        if self.is_ready:
            return ()
        return tuple(self.bars.symbols[row] for row in np.flatnonzero(~self.has_arrived))

    def next(self, session: int, covariates: Covariates) -> "PartialDay":
        """Start a later day without bars, with the known covariates that were already sent for it.

        Args:
            session: the day, yyyymmdd.
            covariates: the covariates of its first push, which define its future sessions.
        """
        return PartialDay(
            bars=self.bars.without_bars(session),
            covariates=self._move_covariates(session, covariates),
            has_arrived=np.zeros(len(self.bars.symbols), np.bool_),
            is_ready=False,
        )

    def with_rows(self, bars: BarPanel, covariates: Covariates, rows: IndexArray) -> "PartialDay":
        """Add pushed bars [P, 1] and covariates of P symbols, whose indices are `rows` [P].

        Raises:
            CovariatesError: the future sessions differ from those of an earlier push for the same day.
        """
        has_arrived = self.has_arrived.copy()
        has_arrived[rows] = True
        return PartialDay(
            bars=self.bars.with_bars(bars, rows),
            covariates=day_covariates.replace_rows(self._move_to_future(covariates, rows), covariates, rows),
            has_arrived=has_arrived,
            is_ready=self.is_ready or bool(has_arrived.all()),
        )

    def flushed(self) -> Self:
        """Mark the day as ready for a forecast."""
        return replace(self, is_ready=True)

    def _move_to_future(self, pushed: Covariates, rows: IndexArray) -> Covariates:
        """Move the day's covariates to the pushed future sessions, which all symbols of a day share."""
        if np.array_equal(pushed.future_sessions, self.covariates.future_sessions):
            return self.covariates
        others = self.has_arrived.copy()
        others[rows] = False
        if others.any() and self.covariates.known:
            names = [self.bars.symbols[row] for row in np.flatnonzero(others)]
            raise CovariatesError(
                f"future_sessions differ from those pushed for {format_names(names)} on "
                f"{format_date(self.session)}; push the same with each bar of a day"
            )
        return self._move_covariates(self.session, pushed)

    def _move_covariates(self, session: int, pushed: Covariates) -> Covariates:
        have = np.concatenate([self.bars.sessions, self.covariates.future_sessions])
        return day_covariates.move_to_day(self.covariates, have, session, pushed.future_sessions)


_BYTES_OF_A_NAME: Final = 128
"""Estimated size of a symbol's name and index entry."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subscription:
    """The bars that forecasts of one subscription depend on. Immutable: a push returns a new one.

    The first T - 1 of its T sessions are `history`, and the last is `day`.
    """

    template: Instance
    """The options of the subscribed instance; its bars are only a placeholder."""
    history: BarPanel
    """[S, T - 1] raw bars of the days before the last one."""
    covariates: Covariates
    """Covariates of the history, observed and known [S, T - 1] each, and static values."""
    day: PartialDay
    """The last day."""
    places: Mapping[str, int]
    """The row of each symbol."""
    max_sessions: int
    """Most sessions that are kept."""
    has_dropped: bool
    """Whether older sessions were dropped."""

    @classmethod
    def of(cls, instance: Instance, bars_needed: int) -> "Subscription":
        """Start a subscription with an instance, keeping only the sessions that forecasts depend on.

        Args:
            instance: bars of at least two sessions.
            bars_needed: sessions that the model reads.

        Raises:
            MalformedRequestError: the instance has feature windows or a single session.
        """
        bars = require_panel(instance)
        max_sessions = max(bars_needed, 2)
        recent = bars.last(max_sessions)
        count = len(recent.sessions)
        history, ahead = day_covariates.split_last_day(instance.covariates.last(count), count)
        last = replace(recent.last(1))
        day = PartialDay(bars=last, covariates=ahead, has_arrived=np.ones(len(bars.symbols), np.bool_), is_ready=True)
        return cls(
            template=replace(instance, input=last, covariates=NO_COVARIATES, request_id=""),
            history=replace(
                recent.until(int(recent.sessions[-2]))
            ),  # a copy: a view would keep the complete history in memory
            covariates=history,
            day=day,
            places={symbol: row for row, symbol in enumerate(bars.symbols)},
            max_sessions=max_sessions,
            has_dropped=len(bars.sessions) > count,
        )

    @property
    def symbols(self) -> tuple[str, ...]:
        """S names."""
        return self.history.symbols

    @property
    def sessions(self) -> int:
        """Number of kept sessions T."""
        return len(self.history.sessions) + 1

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Symbols whose bars must arrive before the last day is forecast."""
        return self.day.waits_for

    @property
    def size(self) -> int:
        """Estimated size in bytes."""
        count = sum(getattr(self.history, name).nbytes for name in self.history.columns)
        columns = count + day_covariates.count_bytes(self.covariates) + day_covariates.count_bytes(self.day.covariates)
        day = len(self.symbols) * (8 * len(self.history.columns) + _BYTES_OF_A_NAME)
        return columns + self.history.sessions.nbytes + 2 * day

    def instance(self) -> Instance:
        """The instance to forecast: all kept bars, including those of the last day that have arrived."""
        return replace(
            self.template,
            input=self.history.followed_by(self.day.bars),
            covariates=day_covariates.append_day(self.covariates, self.day.covariates),
        )

    def pushed(self, push: Push, bars_needed: int) -> "AcceptedPush":
        """Add pushed bars; returns the new subscription.

        Args:
            push: the bars.
            bars_needed: sessions that the model reads now; a new version may read more than the previous one.

        Raises:
            ResubscribeError: the model reads bars that were dropped, or a price jumps as at a split.
            BarsError: the bars are of an older day, of a later day while the last one is incomplete, of several days,
                or of symbols or columns that the subscription lacks.
            MalformedRequestError: the push has no bars, or there is nothing to flush.
            CovariateMissingError, UnknownCovariateError, CovariatesError: the covariates do not match the subscription.
        """
        if push.bars is None:
            return _check(self._flush(push), bars_needed)
        rows = self._find_rows(push.bars)
        _check_columns(self.history, push.bars)
        template = self.template
        if push.gap_policy not in (None, template.gap_policy):
            raise BarsError(
                f"gap policy is {push.gap_policy}, but the subscription's is {template.gap_policy} and cannot change; "
                "leave it out"
            )
        for name, pushed, opened in (
            ("allow_incomplete_last_bar", push.allow_incomplete_last_bar, template.allow_incomplete_last_bar),
            ("accept_suspect_bars", push.accept_suspect_bars, template.accept_suspect_bars),
        ):
            if pushed and not opened:
                raise BarsError(
                    f"{name} is not set for the subscription and cannot change; leave it out, or open another session"
                )
        push.covariates.check(len(rows), push.bars.sessions)
        day_covariates.check_pushed(self.covariates, push.covariates, push.bars.symbols, rows)
        before = self._continue_on(int(push.bars.sessions[0]), push.covariates, max(self.max_sessions, bars_needed))
        _check_jumps(before.history, push.bars)
        day = before.day.with_rows(push.bars, push.covariates, rows)
        after = replace(before, day=day.flushed() if push.flush else day)
        return _check(AcceptedPush(after=after, is_first=before.day.is_new), bars_needed)

    def _flush(self, push: Push) -> "AcceptedPush":
        if not push.flush:
            raise MalformedRequestError(
                "the push has neither bars nor flush; set one of them", metadata={"field": "bars"}
            )
        if self.day.is_ready:
            raise MalformedRequestError(
                f"there is nothing to flush: {format_date(self.day.session)} is complete, and no later bar has arrived",
                metadata={"field": "flush"},
            )
        return AcceptedPush(after=replace(self, day=self.day.flushed()), is_first=False)

    def _find_rows(self, bars: BarPanel) -> IndexArray:
        if bars.symbols == self.symbols:
            return np.arange(len(self.symbols))
        unknown = [symbol for symbol in bars.symbols if symbol not in self.places]
        if unknown:
            raise BarsError(
                f"the session has no symbol {format_names(unknown)}, only {format_names(self.symbols)}; open "
                "another session",
                metadata={"symbol": unknown[0]},
            )
        return np.array([self.places[symbol] for symbol in bars.symbols], np.intp)

    def _continue_on(self, session: int, covariates: Covariates, max_sessions: int) -> "Subscription":
        """Return this subscription if `session` is its last day, else a copy with `session` as the new last day."""
        if session == self.day.session:
            return self
        if session < self.day.session:
            raise BarsError(
                f"the bars are of {format_date(session)}, but those of {format_date(self.day.session)} have arrived; "
                "push bars of that day or a later one, or open the session again",
                metadata={"date": format_date(session), "last": format_date(self.day.session)},
            )
        if self.waits_for:
            raise BarsError(
                f"{format_date(self.day.session)} still waits for {format_names(self.waits_for)}; push them, or "
                f"flush the day, before bars of {format_date(session)}",
                metadata={"date": format_date(self.day.session), "symbol": self.waits_for[0]},
            )
        bars = self.history.followed_by(self.day.bars)
        recent = bars.last(max_sessions - 1)
        return replace(
            self,
            max_sessions=max_sessions,
            history=recent,
            covariates=day_covariates.append_past(self.covariates, self.day.covariates).last(len(recent.sessions)),
            day=self.day.next(session, covariates),
            has_dropped=self.has_dropped or len(recent.sessions) < len(bars.sessions),
        )


def _check(pushed: "AcceptedPush", bars_needed: int) -> "AcceptedPush":
    """Return the push unchanged, if the bars that the model reads are kept or none was ever dropped.

    Raises:
        ResubscribeError: the model reads bars that were dropped.
    """
    after = pushed.after
    if after.has_dropped and bars_needed > after.sessions:
        raise ResubscribeError(
            f"the model reads {bars_needed} bars now, but the session keeps {after.sessions}; open it again with its "
            "history",
            metadata={"have": str(after.sessions), "need": str(bars_needed)},
        )
    return pushed


def _check_columns(history: BarPanel, bars: BarPanel) -> None:
    """Raise BarsError for several days, or for other columns, calendar or currency than the subscription's."""
    if len(bars.sessions) != 1:
        raise BarsError(f"a push must have bars of one session, but has {len(bars.sessions)}; push each day separately")
    if bars.columns != history.columns:
        raise BarsError(
            f"a push must have the columns of the subscription, {', '.join(history.columns)}, but has "
            f"{', '.join(bars.columns)}"
        )
    for name in ("calendar", "currency"):
        had, pushed = getattr(history, name), getattr(bars, name)
        if pushed and pushed != had:
            raise BarsError(f"{name} of the push is {pushed!r}, but the subscription's is {had!r}; leave it out")


def _check_jumps(history: BarPanel, bars: BarPanel) -> None:
    """Check that prices do not jump as at an unrecorded split, which would change the scale of the history.

    Raises:
        ResubscribeError: a price jumps; the message names the symbol.
    """
    past = history if bars.symbols == history.symbols else history.select(bars.symbols)
    recent = past.last(1)
    jumps = (past if np.isnan(recent.close).any() else recent).followed_by(bars).unexplained_jumps()
    if not jumps.count:
        return
    first = jumps.shown[0]
    raise ResubscribeError(
        f"{first}; a session needs bars on the scale of those before: open it again with its full history, adjusted "
        "if this is a split",
        metadata={"symbol": first.symbol, "date": format_date(first.session), "ratio": repr(first.ratio)},
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AcceptedPush:
    """A valid push; the caller still has to check that the model accepts its day."""

    after: Subscription
    """The subscription after the push."""
    is_first: bool
    """Whether it has the first bars of its day."""

    @property
    def is_due(self) -> bool:
        """Whether the push gets a forecast."""
        return self.after.day.is_ready

    @property
    def needs_model(self) -> bool:
        """Whether the model must run: for the forecast, or to check that it accepts a new day."""
        return self.is_due or self.is_first

    def answer(self, outcome: Outcome) -> Outcome | None:
        """The response to the push, from the model's outcome for the new subscription.

        Returns:
            The forecast; None if the push is accepted without a forecast; or the error with which it is rejected.
        """
        if isinstance(outcome, Forecast):
            return make_session_error(outcome, self.after.day.bars) or (outcome if self.is_due else None)
        has_bars = self.is_due and bool(self.after.day.bars.present.any())
        if isinstance(outcome, NoUsableSymbolError | TooFewBarsError) and not has_bars:
            return None
        return outcome


def make_session_error(forecast: Forecast, bars: BarPanel) -> QuantraError | None:
    """The error of the last day of `bars`, if the model has dropped it: then no later day can follow."""
    last = int(bars.sessions[-1])
    if forecast.as_of_session == to_date(last):
        return None
    errors = (forecast.refusals.get(bars.symbols[row]) for row in np.flatnonzero(bars.present[:, -1]))
    return next((error for error in errors if isinstance(error, BarsError | BarIncompleteError)), None)


def require_panel(instance: Instance) -> BarPanel:
    """The bars of an instance to subscribe to.

    Raises:
        MalformedRequestError: the instance has feature windows or a single session.
    """
    bars = instance.input
    if not isinstance(bars, BarPanel):
        raise MalformedRequestError("a session must begin with bars; feature windows cannot be continued")
    if len(bars.sessions) < 2:  # noqa: PLR2004 - a history, and its last day
        raise MalformedRequestError("a session must begin with bars of at least two trading days")
    return bars
