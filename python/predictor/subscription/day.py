"""The last day of a subscription: its bars as far as they have come."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np

from predictor.arrays import BoolArray, IndexArray
from predictor.bars import BarPanel
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.errors import CovariatesError, listed, shown_date
from predictor.instance import GapPolicy
from predictor.subscription import beside


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
            covariates=beside.with_rows(self._ahead(covariates, rows), covariates, rows),
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
        return beside.moved(self.covariates, have, session, pushed.future_sessions)

    def _names(self, these: BoolArray) -> Sequence[str]:
        return [self.bars.symbols[row] for row in np.flatnonzero(these)]
