"""What a person should know of bars before training on them, symbol by symbol; nothing is changed."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray
from predictor.bars import BarPanel, PriceJumps
from predictor.errors import ConfigurationError
from predictor.sessions import SessionCalendar
from trainers.stock.enough_bars import bars_of_a_window, check_enough
from trainers.stock.reads import features_named
from trainers.stock.recipe import StockRecipe

MOST_SHOWN: Final = 3
"""Days of one kind that are named; the others are counted."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SymbolFindings:
    """One symbol's bars.

    Attributes:
        symbol: Its name.
        bars: Days with a bar.
        first: Day of the first, yyyymmdd; 0 without any.
        last: Day of the last.
        gaps: int32, sessions of the calendar between these two without a bar.
        strangers: int32, days with a bar on which the calendar has no session.
        stale: int32, days whose bar repeats the one before in every price and in volume.
        without_volume: int32, days whose volume is 0.
        jumps: Prices that changed as by a split, where none is recorded.
    """

    symbol: str
    bars: int
    first: int
    last: int
    gaps: NDArray[np.int32]
    strangers: NDArray[np.int32]
    stale: NDArray[np.int32]
    without_volume: NDArray[np.int32]
    jumps: PriceJumps

    def windows(self, needs: "BarRequirement") -> int:
        """Windows with a known outcome that it gives a model."""
        return max(0, self.bars - needs.bars + 1 - needs.reach)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BarRequirement:
    """What a model of default settings needs of bars.

    Attributes:
        bars: That one of its forecasts depends on.
        reach: Sessions that its farthest horizon lies ahead.
        refusal: Why it cannot be trained on the bars at hand, with what to do; empty = it can.
    """

    bars: int
    reach: int
    refusal: str


def findings_of(bars: BarPanel, calendar: SessionCalendar) -> tuple[SymbolFindings, ...]:
    """Those of each symbol, in the panel's order.

    Args:
        bars: the panel.
        calendar: covers its sessions.
    """
    strange = np.isin(bars.sessions, calendar.unexpected(bars.sessions))
    return tuple(_of(bars, row, calendar, strange) for row in range(len(bars.symbols)))


def _of(bars: BarPanel, row: int, calendar: SessionCalendar, strange: BoolArray) -> SymbolFindings:
    present = bars.present[row]
    days, volume = bars.sessions[present], bars.volume[row, present]
    expected = bars.sessions[present & ~strange]
    return SymbolFindings(
        symbol=bars.symbols[row],
        bars=int(present.sum()),
        first=int(days[0]) if days.size else 0,
        last=int(days[-1]) if days.size else 0,
        gaps=calendar.missing(expected),
        strangers=bars.sessions[present & strange],
        stale=days[_repeats(bars, row, present)],
        without_volume=days[volume == 0],
        jumps=bars.select(bars.symbols[row]).suspicious_jumps(),
    )


def _repeats(bars: BarPanel, row: int, present: BoolArray) -> BoolArray:
    """Which of a symbol's bars say what the one before says."""
    columns = [getattr(bars, name)[row, present] for name in ("open", "high", "low", "close", "volume")]
    again = np.zeros(int(present.sum()), dtype=np.bool_)
    again[1:] = np.logical_and.reduce([values[1:] == values[:-1] for values in columns])
    return again


def needs_of(bars: BarPanel, calendar: str) -> BarRequirement:
    """What a training with the defaults of `quantra train stock` and this calendar needs of bars."""
    recipe, features = StockRecipe(calendar=calendar), features_named("default", calendar)
    try:
        check_enough(bars.sessions, len(bars.symbols), features, recipe, recipe.splits(bars.sessions))
        refusal = ""
    except ConfigurationError as error:
        refusal = error.message
    return BarRequirement(bars=bars_of_a_window(features, recipe), reach=recipe.target.reach, refusal=refusal)
