"""Price moves so large that someone should ask whether they are an unrecorded split."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from predictor.errors import shown_date

FloatArray = NDArray[np.float64]

LARGEST_USUAL_MOVE: Final = 1.4
"""A price beyond this factor of the close before, or below its inverse, is a jump; a 3:2 split is the smallest."""

SPLIT_TOLERANCE: Final = 0.04
"""How far a split's first open may lie from the close before, apart from the split itself."""

MOST_SHOWN: Final = 10
"""Jumps of one panel that are told one by one."""

COMMON_SPLITS: Final = ((3, 2), (2, 1), (3, 1), (4, 1), (5, 1), (7, 1), (10, 1), (15, 1), (20, 1))


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class PriceJump:
    """One day's jump, as a question: the data alone cannot tell a split from a crash.

    Attributes:
        symbol: Whose price jumped.
        session: The first day at the new price, yyyymmdd.
        ratio: New price divided by the close before; 0.5 is what a 2:1 split leaves.
    """

    symbol: str
    session: int
    ratio: float

    @property
    def nearest_split(self) -> str:
        """The common split, such as "2:1", that would leave this ratio within 4 %; empty if there is none."""
        if not 0 < self.ratio < math.inf:
            return ""  # prices so far apart that a double cannot hold their quotient
        for new, old in COMMON_SPLITS:
            if abs(math.log(self.ratio) + math.log(new / old)) < SPLIT_TOLERANCE:
                return f"{new}:{old}"
            if abs(math.log(self.ratio) - math.log(new / old)) < SPLIT_TOLERANCE:
                return f"{old}:{new}"
        return ""

    def __str__(self) -> str:
        """The question, with what to do."""
        hint = f" (a {self.nearest_split} split would look like this)" if self.nearest_split else ""
        return (
            f"{self.symbol} {shown_date(self.session)}: the price went to {self.ratio:.3g} times the close before{hint}"
            ": split or crash? If it was a split, give split_ratio or adj_close; the bars were left as they are"
        )


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Jumps:
    """The jumps of a panel: how many there are, and the first of them.

    Attributes:
        count: All of them.
        shown: The first, by symbol and then by date; a broken file has more than anybody would read.
    """

    count: int = 0
    shown: tuple[PriceJump, ...] = ()

    def lines(self) -> Iterator[str]:
        """The questions, and how many more there are."""
        yield from map(str, self.shown)
        if self.count > len(self.shown):
            yield f"{self.count - len(self.shown)} more prices jumped like that; check where these bars come from"


def find_jumps(symbols: tuple[str, ...], sessions: NDArray[np.int32], open_: FloatArray, close: FloatArray) -> Jumps:
    """Every bar that opens or closes beyond the largest usual move from the close before.

    A split acts at the open, so the opening ratio is reported where it is a jump, the closing one otherwise.

    Args:
        symbols: S names.
        sessions: T dates, yyyymmdd.
        open_: Raw opening prices [S, T], NaN = no bar.
        close: Raw closing prices [S, T], NaN = no bar.
    """
    before = _close_before(close)
    with np.errstate(all="ignore"):
        opening, closing = open_ / before, close / before
    ratios = np.where(_is_jump(opening), opening, closing)
    places = np.argwhere(_is_jump(ratios))
    shown = tuple(
        PriceJump(symbol=symbols[s], session=int(sessions[t]), ratio=float(ratios[s, t]))
        for s, t in places[:MOST_SHOWN]
    )
    return Jumps(count=len(places), shown=shown)


def _close_before(close: FloatArray) -> FloatArray:
    """[S, T] the last close before each session; NaN where there is none."""
    columns = np.arange(close.shape[1])
    last = np.maximum.accumulate(np.where(np.isnan(close), -1, columns), axis=1)
    before = np.full_like(close, np.nan)
    rows, later = np.nonzero(last[:, :-1] >= 0)
    before[rows, later + 1] = close[rows, last[rows, later]]
    return before


def _is_jump(ratios: FloatArray) -> NDArray[np.bool_]:
    return (ratios > LARGEST_USUAL_MOVE) | (ratios < 1 / LARGEST_USUAL_MOVE)
