"""What a subscription keeps, and what a push makes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, final

import numpy as np

from predictor.arrays import BoolArray, IndexArray
from predictor.bars import BarPanel
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.errors import (
    BarsError,
    CovariatesError,
    MalformedRequestError,
    NoUsableSymbolError,
    ResubscribeError,
    TooFewBarsError,
    listed,
    shown_date,
)
from predictor.forecast import Forecast, Outcome
from predictor.instance import GapPolicy, Instance
from predictor.subscription import day_covariates


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Push:
    """Bars of one day, as they were pushed, of some of a subscription's symbols."""

    bars: BarPanel | None = None
    """[P, 1] a bar that is NaN throughout says that its symbol has none that day; None: no bars, only `flush`."""
    covariates: Covariates = NO_COVARIATES
    """Beside the bars: observed [P, 1], known [P, 1 + D]."""
    flush: bool = False
    """Whether the day is to be answered although symbols of it have not come."""
    gap_policy: GapPolicy | None = None
    """None, or that of the subscription."""
    allow_incomplete_last_bar: bool = False
    """False, or as said at the subscription."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartialDay:
    """A day's bars and covariates as far as they have come, of S symbols."""

    bars: BarPanel
    """[S, 1] NaN where none has come."""
    covariates: Covariates
    """Observed [S, 1] and known [S, 1 + D]; no static ones."""
    has_come: BoolArray
    """[S] whose bars have come, or are known not to be."""
    is_answered: bool
    """Whether the day was complete or flushed once: from then on each of its bars is answered."""

    @property
    def session(self) -> int:
        """The day, yyyymmdd."""
        return int(self.bars.sessions[0])

    @property
    def is_new(self) -> bool:
        """Whether no bar of it has come yet."""
        return not self.has_come.any()

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Symbols whose bars have to come until the day is answered."""
        if self.is_answered:
            return ()
        return tuple(self.bars.symbols[row] for row in np.flatnonzero(~self.has_come))

    def next(self, session: int, covariates: Covariates) -> "PartialDay":
        """A later day, of which no bar has come; of the covariates it knows what was sent ahead.

        Args:
            session: the day, yyyymmdd.
            covariates: those that are pushed with its first bars.
        """
        return PartialDay(
            bars=self.bars.without_bars(session),
            covariates=self._moved(session, covariates),
            has_come=np.zeros(len(self.bars.symbols), np.bool_),
            is_answered=False,
        )

    def with_rows(self, bars: BarPanel, covariates: Covariates, rows: IndexArray) -> "PartialDay":
        """The day with bars [P, 1] and covariates that were pushed, in their P rows [P].

        Raises:
            CovariatesError: they are of other future sessions than those of symbols that have come before.
        """
        has_come = self.has_come.copy()
        has_come[rows] = True
        return PartialDay(
            bars=self.bars.with_bars(bars, rows),
            covariates=day_covariates.with_rows(self._ahead(covariates, rows), covariates, rows),
            has_come=has_come,
            is_answered=self.is_answered or bool(has_come.all()),
        )

    def answered(self) -> Self:
        """The day, to be answered as it is."""
        return replace(self, is_answered=True)

    def _ahead(self, pushed: Covariates, rows: IndexArray) -> Covariates:
        """The day's covariates on the future sessions that were pushed; symbols of one day share them."""
        if np.array_equal(pushed.future_sessions, self.covariates.future_sessions):
            return self.covariates
        others = self.has_come.copy()
        others[rows] = False
        if others.any() and self.covariates.known:
            raise CovariatesError(
                f"future_sessions are others than those pushed for {listed(self._names(others))} on "
                f"{shown_date(self.session)}; push the same with each bar of a day"
            )
        return self._moved(self.session, pushed)

    def _moved(self, session: int, pushed: Covariates) -> Covariates:
        have = np.concatenate([self.bars.sessions, self.covariates.future_sessions])
        return day_covariates.moved(self.covariates, have, session, pushed.future_sessions)

    def _names(self, these: BoolArray) -> Sequence[str]:
        return [self.bars.symbols[row] for row in np.flatnonzero(these)]


_BYTES_OF_A_NAME: Final = 128
"""About what a symbol takes beside its bars."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subscription:
    """The bars that the forecasts of one subscription depend on. It never changes: a push gives another one.

    Of T sessions, T - 1 are `history`, and the last is `day`.
    """

    asked: Instance
    """How bars are read; its own bars are those of one day."""
    history: BarPanel
    """[S, T - 1] raw bars of the days before the last one."""
    covariates: Covariates
    """Beside the history, observed and known [S, T - 1] each; and the static ones."""
    day: PartialDay
    """The last day."""
    places: Mapping[str, int]
    """The row of each symbol."""
    most: int
    """Sessions that are kept."""
    has_dropped: bool
    """Whether there were more."""

    @classmethod
    def of(cls, instance: Instance, bars_needed: int) -> "Subscription":
        """Begin with an instance that was forecast, and keep what forecasts depend on.

        Args:
            instance: bars, of two sessions at least.
            bars_needed: sessions that the model reads.

        Raises:
            MalformedRequestError: it holds windows, or a single session.
        """
        bars = panel_of(instance)
        most = max(bars_needed, 2)
        kept = bars.last(most)
        count = len(kept.sessions)
        history, ahead = day_covariates.split(instance.covariates.last(count), count)
        last = replace(kept.last(1))
        day = PartialDay(bars=last, covariates=ahead, has_come=np.ones(len(bars.symbols), np.bool_), is_answered=True)
        return cls(
            asked=replace(instance, input=last, covariates=NO_COVARIATES, request_id=""),
            history=replace(kept.until(int(kept.sessions[-2]))),  # copies: a part would keep the whole history alive
            covariates=history,
            day=day,
            places={symbol: row for row, symbol in enumerate(bars.symbols)},
            most=most,
            has_dropped=len(bars.sessions) > count,
        )

    @property
    def symbols(self) -> tuple[str, ...]:
        """S names."""
        return self.history.symbols

    @property
    def sessions(self) -> int:
        """T, the sessions that are kept."""
        return len(self.history.sessions) + 1

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Symbols whose bars of the last day have to come until it is answered."""
        return self.day.waits_for

    @property
    def size(self) -> int:
        """Bytes that it holds, about."""
        count = sum(getattr(self.history, name).nbytes for name in self.history.columns)
        columns = count + day_covariates.size_of(self.covariates) + day_covariates.size_of(self.day.covariates)
        day = len(self.symbols) * (8 * len(self.history.columns) + _BYTES_OF_A_NAME)
        return columns + self.history.sessions.nbytes + 2 * day

    def instance(self) -> Instance:
        """All bars that are kept, the last day's as far as they have come."""
        return replace(
            self.asked,
            input=self.history.followed_by(self.day.bars),
            covariates=day_covariates.joined(self.covariates, self.day.covariates),
        )

    def pushed(self, push: Push, bars_needed: int) -> "AcceptedPush":
        """What becomes of it when bars of a day come.

        Args:
            push: the bars.
            bars_needed: sessions that the model reads now; another version may read more than the one before.

        Raises:
            ResubscribeError: the model reads bars that are not kept, or a price jumps as at a split.
            BarsError: bars of an older day, of a later one while this one waits for some, of symbols or columns that
                the subscription lacks, or of several days.
            MalformedRequestError: there is nothing to take.
            CovariateMissingError, UnknownCovariateError, CovariatesError: other covariates than the subscription's.
        """
        if push.bars is None:
            return _kept(self._flushed(push), bars_needed)
        rows = self._rows(push.bars)
        _check_columns(self.history, push.bars)
        self._check_reading(push)
        push.covariates.check(len(rows), push.bars.sessions)
        day_covariates.check_pushed(self.covariates, push.covariates, push.bars.symbols, rows)
        begun = self._on(int(push.bars.sessions[0]), push.covariates, max(self.most, bars_needed))
        _check_jumps(begun.history, push.bars)
        day = begun.day.with_rows(push.bars, push.covariates, rows)
        after = replace(begun, day=day.answered() if push.flush else day)
        return _kept(AcceptedPush(after=after, is_first=begun.day.is_new), bars_needed)

    def _flushed(self, push: Push) -> "AcceptedPush":
        if not push.flush:
            raise MalformedRequestError(
                "the push has no bars; push a day's, or flush alone", metadata={"field": "bars"}
            )
        if self.day.is_answered:
            raise MalformedRequestError(
                f"there is nothing to flush: {shown_date(self.day.session)} was answered, and no later bar has come",
                metadata={"field": "flush"},
            )
        return AcceptedPush(after=replace(self, day=self.day.answered()), is_first=False)

    def _rows(self, bars: BarPanel) -> IndexArray:
        """[P] the places of the pushed symbols."""
        if bars.symbols == self.symbols:
            return np.arange(len(self.symbols))
        strange = [symbol for symbol in bars.symbols if symbol not in self.places]
        if strange:
            raise BarsError(
                f"{listed(strange)}: not among the symbols of the session, {listed(self.symbols)}; open another one",
                metadata={"symbol": strange[0]},
            )
        return np.array([self.places[symbol] for symbol in bars.symbols], np.intp)

    def _check_reading(self, push: Push) -> None:
        """Refuse bars that are to be read in another way than those of the subscription."""
        own = self.asked
        if push.gap_policy not in (None, own.gap_policy):
            raise BarsError(
                f"gap policy {push.gap_policy} is not that of the subscription, {own.gap_policy}; leave it out, for "
                "it stays"
            )
        if push.allow_incomplete_last_bar and not own.allow_incomplete_last_bar:
            raise BarsError(
                "allow_incomplete_last_bar was not said at the subscription, and so it stays; leave it out, or open "
                "another session"
            )

    def _on(self, session: int, covariates: Covariates, most: int) -> "Subscription":
        """The subscription whose last day is this session: as it is, or with a new day."""
        if session == self.day.session:
            return self
        if session < self.day.session:
            raise BarsError(
                f"the bars are of {shown_date(session)}, but those of {shown_date(self.day.session)} have come; push "
                "bars of this day or of later ones, or open the session again",
                metadata={"date": shown_date(session), "last": shown_date(self.day.session)},
            )
        if self.waits_for:
            raise BarsError(
                f"{shown_date(self.day.session)} still waits for {listed(self.waits_for)}; push these, or flush the "
                f"day, before bars of {shown_date(session)}",
                metadata={"date": shown_date(self.day.session), "symbol": self.waits_for[0]},
            )
        return self._next(session, covariates, most)

    def _next(self, session: int, covariates: Covariates, most: int) -> "Subscription":
        bars = self.history.followed_by(self.day.bars)
        kept = bars.last(most - 1)
        return replace(
            self,
            most=most,
            history=kept,
            covariates=day_covariates.joined_past(self.covariates, self.day.covariates).last(len(kept.sessions)),
            day=self.day.next(session, covariates),
            has_dropped=self.has_dropped or len(kept.sessions) < len(bars.sessions),
        )


def _kept(pushed: "AcceptedPush", bars_needed: int) -> "AcceptedPush":
    """The push itself, if the bars that the model reads are kept; where none was dropped, it gets all that were sent.

    Raises:
        ResubscribeError: they are not.
    """
    after = pushed.after
    if after.has_dropped and bars_needed > after.sessions:
        raise ResubscribeError(
            f"the model reads {bars_needed} bars now, and the session keeps {after.sessions}; open it again with its "
            "history",
            metadata={"have": str(after.sessions), "need": str(bars_needed)},
        )
    return pushed


def _check_columns(own: BarPanel, bars: BarPanel) -> None:
    """Refuse several days, other columns and another calendar or currency than the subscription's own."""
    if len(bars.sessions) != 1:
        raise BarsError(f"a push has the bars of one session, but these are of {len(bars.sessions)}; push each day")
    if bars.columns != own.columns:
        raise BarsError(
            f"a push must have the columns of the subscription, {', '.join(own.columns)}, but has "
            f"{', '.join(bars.columns)}"
        )
    for name in ("calendar", "currency"):
        had, pushed = getattr(own, name), getattr(bars, name)
        if pushed and pushed != had:
            raise BarsError(f"{name} of the push is {pushed!r}, that of the subscription {had!r}; leave it out")


def _check_jumps(history: BarPanel, bars: BarPanel) -> None:
    """Refuse prices that jump as at a split which the columns do not tell: the bars before are on another scale.

    Raises:
        ResubscribeError: naming the symbol.
    """
    own = history if bars.symbols == history.symbols else history.select(bars.symbols)
    recent = own.last(1)
    jumps = (own if np.isnan(recent.close).any() else recent).followed_by(bars).unexplained_jumps()
    if not jumps.count:
        return
    first = jumps.shown[0]
    raise ResubscribeError(
        f"{first}; a session goes on only with bars on the scale of those before: open it again with its whole "
        "history, adjusted where that was a split",
        metadata={"symbol": first.symbol, "date": shown_date(first.session), "ratio": repr(first.ratio)},
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AcceptedPush:
    """A push that a subscription can take, if a model can begin with its day."""

    after: Subscription
    """The subscription once the push is taken."""
    is_first: bool
    """Whether no bar of its day had come before."""

    @property
    def is_due(self) -> bool:
        """Whether it is answered with a forecast."""
        return self.after.day.is_answered

    @property
    def asks(self) -> bool:
        """Whether a model has to be asked: for the answer, or whether it can begin with that day at all."""
        return self.is_due or self.is_first

    def answer(self, outcome: Outcome) -> Outcome | None:
        """What the push is answered with, when a model was asked about the subscription after it.

        Returns:
            The forecast; or None: the push is taken, and there is no forecast of it yet, or none of that day; or an
            error: it is not taken.
        """
        if isinstance(outcome, Forecast):
            return outcome if self.is_due else None
        if isinstance(outcome, NoUsableSymbolError | TooFewBarsError) and not (self.is_due and self._has_bars):
            return None
        return outcome

    @property
    def _has_bars(self) -> bool:
        return bool(self.after.day.bars.present.any())


def panel_of(instance: Instance) -> BarPanel:
    """The bars of an instance that a subscription can begin with.

    Raises:
        MalformedRequestError: it holds windows, or a single session.
    """
    bars = instance.input
    if not isinstance(bars, BarPanel):
        raise MalformedRequestError("a session begins with bars; windows cannot be gone on with")
    if len(bars.sessions) < 2:  # noqa: PLR2004 - a history, and its last day
        raise MalformedRequestError("a session begins with a history of two sessions at least")
    return bars
