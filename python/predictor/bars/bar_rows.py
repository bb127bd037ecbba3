"""The rows of a table of bars: sorting, duplicates, and the check that bars are daily."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray, IndexArray
from predictor.bars.columns import SYMBOL, symbol_advice, text_columns
from predictor.bars.layouts import KNOWN
from predictor.dates import days_of
from predictor.errors import BarsError, shown_date

if TYPE_CHECKING:
    import polars as pl

    from predictor.bars.tables import TableSource

LEAST_DATES: Final = 5
"""Dates that are needed to decide whether bars are daily."""
LEAST_GAP_DAYS: Final = 5
"""If all gaps between dates are at least so many days, bars are not daily."""


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BarRows:
    """The rows of a table, each for one symbol and day.

    Attributes:
        symbols: S names.
        owner: [rows] index of each row's symbol.
        days: int32 [rows], yyyymmdd.
        columns: float64 [rows] by field.
        places: [rows] index of each row in the table, from 0.
    """

    symbols: tuple[str, ...]
    owner: IndexArray
    days: NDArray[np.int32]
    columns: Mapping[str, FloatArray]
    places: IndexArray

    def of(self, rows: IndexArray | BoolArray) -> "BarRows":
        """Select rows, in this order."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return BarRows(
            symbols=self.symbols,
            owner=self.owner[rows],
            days=self.days[rows],
            columns=columns,
            places=self.places[rows],
        )


def sort_rows(frame: "pl.DataFrame", rows: BarRows, source: "TableSource") -> tuple[BarRows, bool]:
    """Sort rows by symbol and day; the second value says whether each symbol's rows were sorted already."""
    unordered = _first_unordered(rows.owner, rows.days, ordered=source.ordered)
    if unordered is not None and SYMBOL not in frame.columns:
        _refuse_several(frame, rows, source)
    if unordered is None and source.ordered:
        return rows, True
    return rows.of(np.lexsort((rows.days, rows.owner))), unordered is None


def _first_unordered(owner: IndexArray, days: NDArray[np.int32], *, ordered: bool) -> tuple[int, int] | None:
    """The first row whose date is not after its symbol's previous row, and that row; None if all rows are in order."""
    order = np.argsort(owner, kind="stable") if ordered else np.lexsort((days, owner))
    owned, day = owner[order], days[order]
    wrong = np.flatnonzero((owned[1:] == owned[:-1]) & (day[1:] <= day[:-1]))
    return (int(order[wrong[0] + 1]), int(order[wrong[0]])) if wrong.size else None


def find_repeated_rows(frame: "pl.DataFrame", rows: BarRows, source: "TableSource") -> BoolArray:
    """Which rows repeat the row before, [rows].

    Args:
        frame: the table; its dates as text reveal intraday bars.
        rows: the sorted rows.
        source: the table's source, for messages.

    Raises:
        BarsError: two rows of the same symbol and day differ.
    """
    repeated = np.zeros(rows.days.size, dtype=np.bool_)
    repeated[1:] = (rows.owner[1:] == rows.owner[:-1]) & (rows.days[1:] == rows.days[:-1])
    if not repeated.any():
        return repeated
    for name, values in rows.columns.items():
        different = repeated[1:] & ~((values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1])))
        if different.any():
            _refuse_different(frame, rows, int(np.argmax(different)) + 1, name, source)
    return repeated


def _refuse_different(frame: "pl.DataFrame", rows: BarRows, at: int, field: str, source: "TableSource") -> None:
    symbol, day = rows.symbols[rows.owner[at]], shown_date(int(rows.days[at]))
    first, second = sorted((int(rows.places[at - 1]), int(rows.places[at])))
    times = [str(frame["date"][place]) for place in (first, second)]
    if times[0] != times[1]:
        raise BarsError(
            f"{symbol} {day} appears twice in {source.name}, as {times[0]} and {times[1]}: the bars are intraday, but "
            "must be daily; aggregate each day to the first open, the highest high, the lowest low, the last close "
            "and the sum of the volumes"
        )
    values = [float(rows.columns[field][row]) for row in (at - 1, at)]
    advice = "" if SYMBOL in frame.columns else f", or add a column {SYMBOL}"
    raise BarsError(
        f"{symbol} {day} appears twice in {source.name}, in rows {first + 1} and {second + 1} after the header with "
        f"{field} {values[0]:.10g} and {values[1]:.10g}; give each day one row{advice}"
    )


def _refuse_several(frame: "pl.DataFrame", rows: BarRows, source: "TableSource") -> None:
    """Raise BarsError if a table without a symbol column seems to hold several symbols."""
    days, first, count = np.unique(rows.days, return_index=True, return_counts=True)
    likely = _likely_symbols(frame, rows.days)
    if (count > 1).any():
        if not likely:
            return
        day = shown_date(int(days[count > 1][np.argmin(first[count > 1])]))
        raise BarsError(f"{source.name} has no column {SYMBOL}, and {day} appears twice; {symbol_advice(likely)}")
    if likely:
        raise BarsError(
            f"{source.name} has no column {SYMBOL}, and its dates are not in order; {symbol_advice(likely)}"
        )


def _likely_symbols(frame: "pl.DataFrame", days: NDArray[np.int32]) -> list[str]:
    """The text columns that could hold the symbol: each value has several days, no day twice."""
    likely: list[str] = []
    for name, texts in text_columns(frame, KNOWN).items():
        symbols, owner = np.unique(texts.to_numpy(), return_inverse=True)
        blocks = 1 + int(np.count_nonzero(owner[1:] != owner[:-1]))
        is_block = blocks == len(symbols) > 1
        is_each_day_once = _first_unordered(owner, days, ordered=False) is None
        is_mixed = np.unique(days).size < days.size
        if len(symbols) <= frame.height // 2 and is_each_day_once and (is_block or is_mixed):
            likely.append(name)
    return likely


def check_daily(sessions: NDArray[np.int32], source: str) -> None:
    """Raise BarsError for weekly or monthly bars, which have no adjacent dates."""
    if sessions.size < LEAST_DATES:
        return
    gaps = np.diff(days_of(sessions)).astype(np.int64)
    if gaps.min() >= LEAST_GAP_DAYS:
        raise BarsError(
            f"{source}: its bars are {int(np.median(gaps))} days apart, the nearest {gaps.min()}, but must be "
            "daily; export it with an interval of one day"
        )
