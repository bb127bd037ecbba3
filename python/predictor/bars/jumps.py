"""Price jumps that the columns of a panel do not explain: unrecorded splits, real moves, or wrong closes."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.bars.adjustment import RawBars, close_before
from predictor.errors import format_count, format_date

MAX_USUAL_MOVE: Final = 1.4
"""A price above this multiple of the previous close, or below its inverse, is a jump. Detects splits from 3:2."""

MAX_CLOSE_JUMP: Final = 5.0
"""A close that moves by a larger factor than the adjusted close jumps."""

MAX_ERROR_SESSIONS: Final = 20
"""Most sessions after which a wrong close returns; a split and its reverse by the same factor are farther apart."""

LEVEL_TOLERANCE: Final = math.log(2)
"""Log distance within which the close divided by the adjusted close counts as the same, because of later dividends."""

SPLIT_TOLERANCE: Final = 0.04
"""Largest overnight move, in log terms, that may occur on top of a split."""

MAX_LISTED_JUMPS: Final = 10
"""Jumps of one panel that are listed; further ones are only counted."""

COMMON_SPLITS: Final = ((3, 2), (2, 1), (3, 1), (4, 1), (5, 1), (7, 1), (10, 1), (15, 1), (20, 1))


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class PriceJump:
    """A price jump, which may be a split that the data does not record or a real move.

    Attributes:
        symbol: The symbol's name.
        session: The first day at the new price, yyyymmdd.
        ratio: New price divided by the previous close; a 2:1 split gives 0.5.
    """

    symbol: str
    session: int
    ratio: float

    @property
    def nearest_split(self) -> str:
        """The common split, such as "2:1", that explains the ratio within SPLIT_TOLERANCE; empty if none does."""
        if not 0 < self.ratio < math.inf:
            return ""  # the quotient of the prices is beyond the range of a double
        for new, old in COMMON_SPLITS:
            if abs(math.log(self.ratio) + math.log(new / old)) < SPLIT_TOLERANCE:
                return f"{new}:{old}"
            if abs(math.log(self.ratio) - math.log(new / old)) < SPLIT_TOLERANCE:
                return f"{old}:{new}"
        return ""

    def __str__(self) -> str:
        """A warning for the user, with the action to take."""
        hint = f" (a {self.nearest_split} split would look like this)" if self.nearest_split else ""
        return (
            f"{self.symbol} {format_date(self.session)}: the price is {self.ratio:.3g} times the close before{hint}: "
            "split or crash? If it is a split, add split_ratio or adj_close; the bars stay unchanged"
        )


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class CloseJump:
    """A jump of the close that the adjusted close lacks, though it does not look like a recorded split.

    Attributes:
        symbol: The symbol's name.
        session: The first day of the jump, yyyymmdd.
        closes: The close before and the one of that day.
        adjusted: The adjusted closes of the same days.
        back: The day on which the close is back at the old level, yyyymmdd; 0 if it is not.
    """

    symbol: str
    session: int
    closes: tuple[float, float]
    adjusted: tuple[float, float]
    back: int

    @property
    def ratio(self) -> float:
        """The close divided by the previous close."""
        return self.closes[1] / self.closes[0]

    def __str__(self) -> str:
        """A warning for the user, as a question."""
        (close, jumped), (adjusted, later) = self.closes, self.adjusted
        back, question = "", "a split, or a wrong close? Forecast prices start from the last close"
        if self.back:
            back, question = f" and back on {format_date(self.back)}", "no split does that: a wrong close?"
        return (
            f"{self.symbol} {format_date(self.session)}: the close changes from {close:g} to {jumped:g}{back}, the "
            f"adjusted close from {adjusted:g} to {later:g}: {question}"
        )


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class PriceJumps:
    """The jumps of a panel.

    Attributes:
        count: Number of jumps.
        shown: The first MAX_LISTED_JUMPS jumps, by symbol and then by date.
    """

    count: int = 0
    shown: tuple[PriceJump | CloseJump, ...] = ()

    @classmethod
    def join(cls, parts: Sequence["PriceJumps"]) -> Self:
        """The jumps of a panel from those of its parts, in order."""
        shown = tuple(jump for part in parts for jump in part.shown)
        return cls(count=sum(part.count for part in parts), shown=shown[:MAX_LISTED_JUMPS])

    def lines(self) -> Iterator[str]:
        """One warning per shown jump, and the number of the others."""
        yield from map(str, self.shown)
        if self.count > len(self.shown):
            more = format_count(self.count - len(self.shown), "more price jump")
            yield f"{more} like these; check the source of the bars"


def find_jumps(bars: RawBars, explained: Collection[tuple[str, int]] = ()) -> PriceJumps:
    """Find the price jumps of raw bars that may be unrecorded splits or wrong closes; none if splits are recorded.

    Without adjusted closes, a bar jumps if its open or close differs from the previous close by more than the largest
    usual move. With them, a close jumps if it moves by more than MAX_CLOSE_JUMP times what the adjusted close does,
    and no split explains it. A split takes the close towards the adjusted close, which it equals at the end, and stays.
    So a close that returns to the old level within MAX_ERROR_SESSIONS is wrong, and one that leaves the adjusted close
    in the last of them may be.

    Args:
        bars: The bars.
        explained: Symbols and sessions, yyyymmdd, whose jumps are known and left out.
    """
    if bars.split_ratio is not None:
        return PriceJumps()
    if bars.adj_close is None:
        ratios = _compute_ratios(bars.open, bars.close, close_before(bars.close))
        columns = {session: column for column, session in enumerate(bars.sessions.tolist())}
        for symbol, session in explained:
            ratios[bars.symbols.index(symbol), columns[session]] = 1.0
        return _list_jumps(bars.symbols, bars.sessions, ratios)
    with np.errstate(all="ignore"):
        levels = bars.close / bars.adj_close
        may_jump = _is_jump(levels / close_before(levels), MAX_CLOSE_JUMP).any(axis=1)
    jumps = [
        jump
        for s in np.flatnonzero(may_jump)
        for jump in _find_close_jumps(bars.symbols[s], bars.sessions, bars.close[s], bars.adj_close[s])
        if (jump.symbol, jump.session) not in explained
    ]
    return PriceJumps(count=len(jumps), shown=tuple(jumps[:MAX_LISTED_JUMPS]))


def _find_close_jumps(
    symbol: str, sessions: NDArray[np.int32], close: FloatArray, adj_close: FloatArray
) -> Iterator[CloseJump]:
    present, largest = np.flatnonzero(~np.isnan(close)), math.log(MAX_CLOSE_JUMP)
    days, close, adj_close = sessions[present].tolist(), close[present], adj_close[present]
    levels, adjusted = np.log(close / adj_close), np.log(adj_close)
    jumps = 1 + np.flatnonzero((np.abs(np.diff(levels)) > largest) & (np.abs(np.diff(adjusted)) <= largest))
    k = 0
    while k < len(jumps):
        bar = int(jumps[k])
        level, old = levels[bar], levels[bar - 1]
        later = jumps[k + 1 : k + 1 + MAX_ERROR_SESSIONS]
        back = later[(later <= bar + MAX_ERROR_SESSIONS) & (np.abs(levels[later] - old) < LEVEL_TOLERANCE)]
        is_away = abs(level - np.clip(level, min(old, 0.0), max(old, 0.0))) > LEVEL_TOLERANCE
        if back.size or (is_away and bar >= len(days) - MAX_ERROR_SESSIONS):
            yield CloseJump(
                symbol=symbol,
                session=days[bar],
                closes=(float(close[bar - 1]), float(close[bar])),
                adjusted=(float(adj_close[bar - 1]), float(adj_close[bar])),
                back=days[back[0]] if back.size else 0,
            )
        k = int(np.searchsorted(jumps, back[0])) + 1 if back.size else k + 1


def find_last_jumps(
    symbols: tuple[str, ...], sessions: NDArray[np.int32], open_: FloatArray, close: FloatArray
) -> PriceJumps:
    """Find the jumps of open or close [S, T] from the previous close on the last session."""
    last = slice(-1, None)
    return _list_jumps(
        symbols, sessions[last], _compute_ratios(open_[:, last], close[:, last], close_before(close)[:, last])
    )


def _compute_ratios(open_: FloatArray, close: FloatArray, before: FloatArray) -> FloatArray:
    """The ratio of the open, at which a split acts, if it is a jump, and that of the close otherwise."""
    with np.errstate(all="ignore"):
        opening, closing = open_ / before, close / before
    return np.where(_is_jump(opening), opening, closing)


def _list_jumps(symbols: tuple[str, ...], sessions: NDArray[np.int32], ratios: FloatArray) -> PriceJumps:
    places = np.argwhere(_is_jump(ratios))
    shown = tuple(
        PriceJump(symbol=symbols[s], session=int(sessions[t]), ratio=float(ratios[s, t]))
        for s, t in places[:MAX_LISTED_JUMPS]
    )
    return PriceJumps(count=len(places), shown=shown)


def _is_jump(ratios: FloatArray, largest: float = MAX_USUAL_MOVE) -> NDArray[np.bool_]:
    return (ratios > largest) | (ratios < 1 / largest)
