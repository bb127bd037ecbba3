"""Conversion of a table with one row per bar to arrays by symbol and session, with remarks and warnings."""

import csv
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray, IndexArray
from predictor.bars.columns import SYMBOL, find_text_columns, suggest_symbol_column, to_strings
from predictor.bars.dates import DateForm, SessionColumn, parse_dates
from predictor.bars.files import TableCells, get_file_stem, read_cells
from predictor.bars.layouts import (
    KNOWN,
    OPTIONAL,
    PLAIN_LAYOUT,
    REQUIRED,
    THOUSANDS,
    DateOrder,
    DecimalSign,
    Layout,
    PriceKind,
    extract_symbol,
    get_layout,
    identify_layout,
    map_fields,
    suggest_python_option,
)
from predictor.bars.number_columns import NumberColumns, UnreadCell, find_unread_cells, parse_number_columns
from predictor.dates import to_days
from predictor.errors import BarsError, BarsWarning, format_date
from predictor.replacement import replace_file

if TYPE_CHECKING:
    import polars as pl


MIN_DATES: Final = 5
"""Dates that are needed to decide whether bars are daily."""
MIN_GAP_DAYS: Final = 5
"""If all gaps between dates are at least so many days, bars are not daily."""
MAX_UNCHECKED_CELLS: Final = 10_000_000
"""Largest product of symbols and dates that is accepted regardless of the number of bars."""
MAX_CELLS_PER_ROW: Final = 100
MAX_LISTED_COLUMNS: Final = 20


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingOptions:
    """Options that resolve ambiguous tables.

    Attributes:
        layout: Name of the layout; empty = infer it from the columns.
        date_order: dmy, mdy or ymd, for dates such as 03/04/2020; None = infer it from all dates.
        time_zone: The exchange's time zone, for UTC timestamps, such as America/New_York; empty = infer it from the
            layout or the days of the week.
        decimal: The decimal sign; None = infer it from the numbers.
        volume_unit: Shares per unit of volume; 0 = one, and ambiguous columns are errors.
    """

    layout: str = ""
    date_order: DateOrder | None = None
    time_zone: str = ""
    decimal: DecimalSign | None = None
    volume_unit: int = 0


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class TableSource:
    """The source of a table.

    Attributes:
        name: The source's name, for messages.
        symbol: The symbol of a table without a symbol column.
        is_ordered: Whether the order of rows has a meaning, as in a file; a query may return rows in any order.
        options: The user's options.
    """

    name: str
    symbol: str
    is_ordered: bool = True
    options: ReadingOptions = field(default_factory=ReadingOptions)


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BarTable:
    """The bars of a table as arrays.

    Attributes:
        symbols: S names, in the order of their first rows.
        sessions: int32 [T], every date of the table.
        columns: float64 [S, T] by field name, NaN where a symbol has no row.
        layout: The layout's name.
        prices: How the table records splits and dividends.
        remarks: Notes on the interpretation.
        warnings: Doubtful properties of the table, such as dropped rows.
    """

    symbols: tuple[str, ...]
    sessions: NDArray[np.int32]
    columns: Mapping[str, FloatArray]
    layout: str = PLAIN_LAYOUT.name
    prices: PriceKind = PriceKind.UNADJUSTED
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def select(self, rows: Sequence[int]) -> Self:
        """Select symbols by row, and the sessions on which one of them has a value."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        is_used = np.logical_or.reduce([~np.isnan(values).all(axis=0) for values in columns.values()])
        return replace(
            self,
            symbols=tuple(self.symbols[row] for row in rows),
            sessions=self.sessions[is_used],
            columns={name: values[:, is_used] for name, values in columns.items()},
        )


def read_table(path: Path, options: ReadingOptions | None = None) -> BarTable:
    """Read a file; see `BarPanel.read`."""
    cells = read_cells(path)
    options = options or ReadingOptions()
    layout = (
        get_layout(options.layout)
        if options.layout
        else cells.layout or identify_layout(cells.frame.columns, path.name)
    )
    source = TableSource(name=path.name, symbol=extract_symbol(get_file_stem(path), layout), options=options)
    return build_table(cells, source, layout)


def emit_warnings(warned: Sequence[str], name: str) -> None:
    """Emit a table's warnings as BarsWarning, attributed to the caller of the reading function."""
    for warning in warned:
        warnings.warn(f"{name}: {warning}", BarsWarning, stacklevel=3)


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BarRows:
    """The rows of a table, each for one symbol and day.

    Attributes:
        symbols: S names.
        owner: [rows] index of each row's symbol.
        days: int32 [rows], yyyymmdd.
        columns: float64 [rows] by field.
        row_numbers: [rows] index of each row in the table, from 0.
    """

    symbols: tuple[str, ...]
    owner: IndexArray
    days: NDArray[np.int32]
    columns: Mapping[str, FloatArray]
    row_numbers: IndexArray

    def select(self, rows: IndexArray | BoolArray) -> "BarRows":
        """Select rows, in this order."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return BarRows(
            symbols=self.symbols,
            owner=self.owner[rows],
            days=self.days[rows],
            columns=columns,
            row_numbers=self.row_numbers[rows],
        )


def build_table(cells: TableCells, source: TableSource, layout: Layout = PLAIN_LAYOUT) -> BarTable:
    """Convert a table with normalised column names to arrays.

    Raises:
        BarsError: A cell is invalid; the message names the column, row and value.
    """
    if cells.frame.height == 0:
        raise BarsError(f"{source.name} has no rows")
    frame = _rename_to_fields(cells.frame, source, layout)
    options = source.options
    form = DateForm(order=options.date_order or layout.date_order, zone=options.time_zone or layout.time_zone)
    days = parse_dates(frame["date"], source.name, form)
    symbols, owner = _index_symbols(frame, source)
    row_numbers = np.arange(frame.height)
    unreadable: dict[str, UnreadCell] = {}
    try:
        numbers = _parse_numbers(frame, source, layout, cells)
    except BarsError:
        decimal = options.decimal or layout.decimal
        for cell in find_unread_cells(_list_number_columns(frame), source.name, decimal=decimal):
            unreadable.setdefault(symbols[owner[cell.row]], cell)
        if not unreadable or 2 * len(unreadable) > len(symbols):
            raise
        names = np.array(symbols, dtype=object)
        is_kept = ~np.isin(names, [*unreadable])
        row_numbers = np.flatnonzero(is_kept[owner])
        numbers = _parse_numbers(frame[row_numbers], source, layout, cells)
        symbols, owner = tuple(names[is_kept]), (np.cumsum(is_kept) - 1)[owner]
    columns = {**numbers.columns, "volume": numbers.columns["volume"] * max(options.volume_unit, 1)}
    rows = BarRows(
        symbols=symbols,
        owner=owner[row_numbers],
        days=days.sessions[row_numbers],
        columns=columns,
        row_numbers=row_numbers,
    )
    ordered, is_sorted = sort_rows(frame, rows, source)
    repeated = find_repeated_rows(frame, ordered, source)
    rows = ordered.select(~repeated) if repeated.any() else ordered
    sessions, positions = np.unique(rows.days, return_inverse=True)
    check_daily(sessions, source.name)
    _check_size(len(symbols), sessions.size, frame.height, source)
    placed = {name: np.full((len(symbols), sessions.size), np.nan) for name in rows.columns}
    for name, column in rows.columns.items():
        placed[name][rows.owner, positions] = column
    prices = PriceKind.ADJUSTED if layout.is_adjusted else PriceKind.UNADJUSTED
    if "adj_close" in columns:
        prices = PriceKind.WITH_ADJUSTED_CLOSE
    elif "split_ratio" in columns or "cash_dividend" in columns:
        prices = PriceKind.WITH_EVENTS
    return BarTable(
        symbols=symbols,
        sessions=sessions,
        columns=placed,
        layout=layout.name,
        prices=prices,
        remarks=tuple(_list_remarks(is_sorted=is_sorted, days=days, columns=columns)),
        warnings=(
            *(f"{cell}; {symbol} is left out" for symbol, cell in unreadable.items()),
            *_list_warnings(numbers, ordered, repeated),
        ),
    )


def _rename_to_fields(frame: "pl.DataFrame", source: TableSource, layout: Layout) -> "pl.DataFrame":
    """Rename the columns with a known meaning to their fields' names, and keep the unknown ones."""
    import polars as pl

    names = map_fields(frame.columns, layout, source.name)
    doubtful = next((name for name in frame.columns if THOUSANDS.fullmatch(name)), "")
    if doubtful and "volume" not in names:
        if not source.options.volume_unit:
            raise BarsError(
                f"{source.name}: column {doubtful} may count thousands of shares or single shares; choose "
                f"--volume-unit 1000 if 1 means 1,000 shares, or "
                f"--volume-unit 1 if it means one share{suggest_python_option('volume_unit')}"
            )
        names["volume"] = doubtful
    missing = [name for name in ("date", *REQUIRED) if name not in names]
    if missing:
        advice = "; rename the columns that hold them"
        if missing == ["volume"]:
            advice = "; if the volume is unknown, add an empty column volume"
        elif len(frame.columns) < 1 + len(REQUIRED):
            advice += "; closing prices are not enough: export open, high, low, close and volume"
        raise BarsError(f"{source.name} has no column {', '.join(missing)}; it has {_format(frame.columns)}{advice}")
    if layout.daily_bars is not None and layout.daily_bars[0] in frame.columns:
        column, daily = layout.daily_bars
        other = frame[column].filter(frame[column].str.strip_chars() != daily)
        if len(other):
            raise BarsError(f"{source.name}: column {column} is {other[0]!r}, but must be {daily!r} for daily bars")
    others = [name for name in frame.columns if name not in names.values() and name not in (*KNOWN, SYMBOL)]
    return frame.select(*(pl.col(name).alias(field) for field, name in names.items()), *others)


def _format(columns: Sequence[str]) -> str:
    more = len(columns) - MAX_LISTED_COLUMNS
    return ", ".join(columns[:MAX_LISTED_COLUMNS]) + (f" and {more} more" if more > 0 else "")


def _list_number_columns(frame: "pl.DataFrame") -> "list[pl.Series]":
    return [frame[name] for name in (*REQUIRED, *OPTIONAL) if name in frame.columns]


def _parse_numbers(frame: "pl.DataFrame", source: TableSource, layout: Layout, cells: TableCells) -> NumberColumns:
    decimal = source.options.decimal or layout.decimal
    is_plain = cells.delimiter in ("", ",")
    return parse_number_columns(_list_number_columns(frame), source.name, decimal=decimal, is_plain=is_plain)


def _index_symbols(frame: "pl.DataFrame", source: TableSource) -> tuple[tuple[str, ...], IndexArray]:
    """The symbols in the order of their first rows, and the index of each row's symbol."""
    import polars as pl

    if SYMBOL not in frame.columns:
        return (source.symbol,), np.zeros(frame.height, dtype=np.intp)
    column = to_strings(frame[SYMBOL], source.name)
    empty = np.flatnonzero((column.is_null() | (column == "")).to_numpy())
    if empty.size:
        raise BarsError(f"{source.name}: row {int(empty[0]) + 1} after the header: the symbol is empty")
    symbols = tuple(column.unique(maintain_order=True).to_list())
    return symbols, column.cast(pl.Enum(symbols)).to_physical().to_numpy().astype(np.intp)


def _check_size(symbols: int, sessions: int, rows: int, source: TableSource) -> None:
    """Raise BarsError if the panel would be a huge array with almost no bars."""
    cells = symbols * sessions
    if cells > MAX_UNCHECKED_CELLS and cells > MAX_CELLS_PER_ROW * rows:
        raise BarsError(
            f"{source.name} has {rows} rows for {symbols} symbols on {sessions} dates, so that fewer than one in "
            f"{MAX_CELLS_PER_ROW} cells has a bar; put symbols with other dates into separate files"
        )


def _list_remarks(*, is_sorted: bool, days: SessionColumn, columns: Mapping[str, FloatArray]) -> list[str]:
    unknown = {name: np.isnan(values) for name, values in columns.items()}
    empty = int(np.logical_and.reduce([*unknown.values()]).sum())
    without_volume = int((unknown["volume"] & ~unknown["close"]).sum())
    remarks = [] if is_sorted else ["rows were not in order of date and were sorted"]
    if days.remark:
        remarks.append(days.remark)
    if empty:
        remarks.append(f"{empty} empty row{'s' if empty > 1 else ''} read as days without a bar")
    if without_volume:
        remarks.append(f"{without_volume} bar{'s' if without_volume > 1 else ''} with an empty volume")
    return remarks


def _list_warnings(numbers: NumberColumns, rows: BarRows, repeated: BoolArray) -> list[str]:
    messages = ["numbers such as 1.2M are rounded in the file"] if numbers.is_rounded else []
    if repeated.any():
        at, count = int(np.argmax(repeated)), int(repeated.sum())
        first = f"{rows.symbols[rows.owner[at]]} {format_date(int(rows.days[at]))}"
        messages.append(f"{count} repeated row{'s' if count > 1 else ''} dropped, first {first}")
    return messages


def write_table(table: BarTable, path: Path) -> None:
    """Write a table as CSV, atomically; see `BarPanel.write_csv`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("symbol", "date", *table.columns))
    for row, symbol in enumerate(table.symbols):
        writer.writerows(_list_rows(table, row, symbol))
    replace_file(path, text.getvalue().encode())


def _list_rows(table: BarTable, row: int, symbol: str) -> list[Sequence[str]]:
    """The rows of one symbol, for the days with any value."""
    values = np.stack([column[row] for column in table.columns.values()], axis=1)
    return [
        (symbol, format_date(int(session)), *("" if np.isnan(value) else repr(float(value)) for value in bar))
        for session, bar in zip(table.sessions, values, strict=True)
        if not np.isnan(bar).all()
    ]


def sort_rows(frame: "pl.DataFrame", rows: BarRows, source: TableSource) -> tuple[BarRows, bool]:
    """Sort rows by symbol and day; the second value says whether each symbol's rows were sorted already."""
    order = np.argsort(rows.owner, kind="stable") if source.is_ordered else np.lexsort((rows.days, rows.owner))
    steps = np.diff(rows.days[order])[np.diff(rows.owner[order]) == 0]
    if (steps <= 0).any() and SYMBOL not in frame.columns:
        _refuse_several(frame, rows, source)
    if source.is_ordered and (steps > 0).all():
        return rows, True
    return rows.select(np.lexsort((rows.days, rows.owner))), not (steps < 0).any()


def find_repeated_rows(frame: "pl.DataFrame", rows: BarRows, source: TableSource) -> BoolArray:
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


def _refuse_different(frame: "pl.DataFrame", rows: BarRows, at: int, field: str, source: TableSource) -> None:
    symbol, day = rows.symbols[rows.owner[at]], format_date(int(rows.days[at]))
    first, second = sorted((int(rows.row_numbers[at - 1]), int(rows.row_numbers[at])))
    times = [str(frame["date"][row]) for row in (first, second)]
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


def _refuse_several(frame: "pl.DataFrame", rows: BarRows, source: TableSource) -> None:
    """Raise BarsError if a table without a symbol column seems to hold several symbols."""
    days, first, count = np.unique(rows.days, return_index=True, return_counts=True)
    likely: list[str] = []
    for name, texts in find_text_columns(frame, KNOWN).items():
        symbols, owner = np.unique(texts.to_numpy(), return_inverse=True)
        blocks = 1 + int(np.count_nonzero(owner[1:] != owner[:-1]))
        is_block = blocks == len(symbols) > 1
        is_each_day_once = np.unique(np.stack((owner, rows.days)), axis=1).shape[1] == rows.days.size
        is_mixed = np.unique(rows.days).size < rows.days.size
        if len(symbols) <= frame.height // 2 and is_each_day_once and (is_block or is_mixed):
            likely.append(name)
    if (count > 1).any():
        if not likely:
            return
        day = format_date(int(days[count > 1][np.argmin(first[count > 1])]))
        raise BarsError(
            f"{source.name} has no column {SYMBOL}, and {day} appears twice; {suggest_symbol_column(likely)}"
        )
    if likely:
        raise BarsError(
            f"{source.name} has no column {SYMBOL}, and its dates are not in order; {suggest_symbol_column(likely)}"
        )


def check_daily(sessions: NDArray[np.int32], source: str) -> None:
    """Raise BarsError for weekly or monthly bars, which have no adjacent dates."""
    if sessions.size < MIN_DATES:
        return
    gaps = np.diff(to_days(sessions)).astype(np.int64)
    if gaps.min() >= MIN_GAP_DAYS:
        raise BarsError(
            f"{source}: its bars are {int(np.median(gaps))} days apart, the nearest {gaps.min()}, but must be "
            "daily; export it with an interval of one day"
        )
