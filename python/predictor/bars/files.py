"""Bars in tables: one row per bar, from CSV or Parquet files or a query, read through polars (extra `data`)."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray, IndexArray
from predictor.bars.columns import SYMBOL, NamedSource, named_texts, plainly_named, renaming, texts_of
from predictor.errors import BarsError, MissingPackageError, shown_date
from predictor.replacement import replace_file

if TYPE_CHECKING:
    import polars as pl


REQUIRED: Final = ("open", "high", "low", "close", "volume")
OPTIONAL: Final = ("adj_close", "split_ratio", "cash_dividend")
ALWAYS_TAKEN: Final = 10_000_000
"""Symbols times dates, however few of these have a bar."""
MOST_CELLS_A_ROW: Final = 100
READABLE_DATE: Final = r"^(?:[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ].*)?)$"


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class TableSource:
    """Where a table comes from.

    Attributes:
        name: As messages call it.
        symbol: Whose bars they are where the table does not say.
        ordered: Whether each symbol's rows must come oldest first, as in a file; a query may give them in any order.
    """

    name: str
    symbol: str
    ordered: bool = True


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BarTable:
    """The bars of a table as arrays.

    Attributes:
        symbols: S names, in the order of their first rows.
        sessions: int32 [T], every date of the table.
        columns: float64 [S, T] by field name, NaN where a symbol has no row.
    """

    symbols: tuple[str, ...]
    sessions: NDArray[np.int32]
    columns: Mapping[str, FloatArray]


def read_table(path: Path) -> BarTable:
    """Read a file; see `BarPanel.read`."""
    return table_of(read_frame(path), TableSource(name=path.name, symbol=path.stem.upper()))


def table_of(frame: "pl.DataFrame", source: TableSource) -> BarTable:
    """The bars of a frame whose columns have lower-case names.

    Raises:
        BarsError: Naming the column, row and value that cannot be read.
    """
    if frame.height == 0:
        raise BarsError(f"{source.name} has no rows")
    names = [name for name in (*REQUIRED, *OPTIONAL) if name in frame.columns]
    missing = [name for name in ("date", *REQUIRED) if name not in frame.columns]
    if missing:
        raise BarsError(f"{source.name} has no column {', '.join(missing)}; it has {', '.join(frame.columns)}")
    dates = sessions_of(frame["date"], source)
    values = {name: numbers_of(frame[name], source) for name in names}
    symbols, rows = _symbols(frame, source)
    _check_dates(frame, symbols, rows, dates, source)
    sessions, places = np.unique(dates, return_inverse=True)
    _check_size(len(symbols), sessions.size, frame.height, source)
    columns = {name: _spread(column, rows, places, (len(symbols), sessions.size)) for name, column in values.items()}
    return BarTable(symbols=symbols, sessions=sessions, columns=columns)


def read_frame(path: Path) -> "pl.DataFrame":
    """The file's columns under lower-case names; text stays text, so that a wrong cell can be shown as it is."""
    try:
        import polars as pl
    except ImportError as error:
        raise MissingPackageError.of("polars", "data", f"reading {path.name}") from error
    readers: Mapping[str, Callable[[Path], pl.DataFrame]] = {
        ".csv": lambda file: pl.read_csv(file, infer_schema=False),
        ".parquet": pl.read_parquet,
    }
    if path.suffix.lower() not in readers:
        raise BarsError(f"{path.name} must end in .csv or .parquet")
    if not path.is_file():
        raise BarsError(f"{path} is a folder, not a file" if path.is_dir() else f"there is no file {path}")
    try:
        frame = readers[path.suffix.lower()](path)
    except pl.exceptions.PolarsError as error:
        problem = str(error).partition("Consider")[0].partition("You might want")[0].strip()
        raise BarsError(
            f"{path.name} cannot be read: {problem}; a CSV file must have commas between its columns and be UTF-8"
        ) from error
    return plainly_named(frame, path)


def numbers_of(column: "pl.Series", source: NamedSource) -> FloatArray:
    """A column as float64 [rows]; an empty cell is NaN."""
    import polars as pl

    if column.dtype == pl.String:
        column = column.str.strip_chars()
        column = column.set(column == "", None)
    elif not column.dtype.is_numeric() and column.dtype != pl.Null:
        raise BarsError(f"{source.name}: column {column.name} holds {column.dtype}, but must hold numbers")
    numbers = column.cast(pl.Float64, strict=False)
    _check_read(column, numbers, source, "is not a number")
    return numbers.fill_null(float("nan")).to_numpy()


def sessions_of(column: "pl.Series", source: NamedSource) -> NDArray[np.int32]:
    """A column of dates as int32 [rows], yyyymmdd: ISO text, dates, times of day (their date) or whole numbers."""
    import polars as pl

    text = column.cast(pl.String) if column.dtype.is_integer() else column
    if text.dtype == pl.String:
        dates = _dates_of_text(text.str.strip_chars())
    elif isinstance(text.dtype, pl.Date | pl.Datetime):
        dates = text.dt.date()  # the date as written; a cast would count from Greenwich
    else:
        raise BarsError(f"{source.name}: column {column.name} holds {column.dtype}, but must hold dates")
    _check_read(text.fill_null(""), dates, source, "is not a date; write 2013-12-31 or 20131231")
    return (dates.dt.year() * 10_000 + dates.dt.month().cast(pl.Int32) * 100 + dates.dt.day()).to_numpy()


def _dates_of_text(text: "pl.Series") -> "pl.Series":
    readable = text.str.contains(READABLE_DATE).fill_null(value=False)
    compact = text.str.slice(0, 10).str.replace_all("-", "", literal=True)
    return compact.set(~readable, None).str.to_date("%Y%m%d", strict=False)


def _check_read(given: "pl.Series", read: "pl.Series", source: NamedSource, problem: str) -> None:
    """Refuse the first cell that held something and could not be read."""
    unread = np.flatnonzero((given.is_not_null() & read.is_null()).to_numpy())
    if unread.size:
        row = int(unread[0])
        raise BarsError(f"{source.name}: row {row + 1} after the header, column {given.name}: {given[row]!r} {problem}")


def _symbols(frame: "pl.DataFrame", source: TableSource) -> tuple[tuple[str, ...], IndexArray]:
    """The table's symbols in the order of their first rows, and each row's place among them."""
    import polars as pl

    if SYMBOL not in frame.columns:
        return (source.symbol,), np.zeros(frame.height, dtype=np.intp)
    column = texts_of(frame[SYMBOL], source)
    empty = np.flatnonzero((column.is_null() | (column == "")).to_numpy())
    if empty.size:
        raise BarsError(f"{source.name}: row {int(empty[0]) + 1} after the header: the symbol is empty")
    symbols = tuple(column.unique(maintain_order=True).to_list())
    return symbols, column.cast(pl.Enum(symbols)).to_physical().to_numpy().astype(np.intp)


def _check_dates(
    frame: "pl.DataFrame", symbols: tuple[str, ...], rows: IndexArray, dates: NDArray[np.int32], source: TableSource
) -> None:
    """Refuse a symbol whose dates are not in order, or one that has a date twice."""
    wrong = _fallen(rows, dates, ordered=source.ordered)
    if wrong is None:
        return
    if SYMBOL not in frame.columns:
        _refuse_several(frame, dates, source)
    row, earlier = wrong
    symbol, date, before = symbols[rows[row]], shown_date(int(dates[row])), shown_date(int(dates[earlier]))
    if date == before:
        raise BarsError(f"{symbol} {date} appears twice in {source.name}; give each day one row")
    raise BarsError(f"{symbol} {date} comes after {before} in {source.name}; sort each symbol's rows, oldest first")


def _fallen(rows: IndexArray, dates: NDArray[np.int32], *, ordered: bool) -> tuple[int, int] | None:
    """The first row whose date does not come after that of its symbol's row before, and that one; None if all do."""
    order = np.argsort(rows, kind="stable") if ordered else np.lexsort((dates, rows))
    owner, day = rows[order], dates[order]
    wrong = np.flatnonzero((owner[1:] == owner[:-1]) & (day[1:] <= day[:-1]))
    return (int(order[wrong[0] + 1]), int(order[wrong[0]])) if wrong.size else None


def _refuse_several(frame: "pl.DataFrame", dates: NDArray[np.int32], source: TableSource) -> None:
    """Refuse rows of several symbols in a table that names none: a day appears twice, or texts tell them apart."""
    days, first, count = np.unique(dates, return_index=True, return_counts=True)
    is_twice = bool((count > 1).any())
    likely = _likely_symbols(frame, dates, ordered=source.ordered and not is_twice)
    if is_twice:
        day = shown_date(int(days[count > 1][np.argmin(first[count > 1])]))
        advice = "" if likely else "give each day one row, or "
        raise BarsError(f"{source.name} has no column {SYMBOL}, and {day} appears twice; {advice}{renaming(likely)}")
    if likely:
        raise BarsError(f"{source.name} has no column {SYMBOL}, and its dates are not in order; {renaming(likely)}")


def _likely_symbols(frame: "pl.DataFrame", dates: NDArray[np.int32], *, ordered: bool) -> list[str]:
    """The columns of texts by which the rows would be those of several symbols, each of several days."""
    likely: list[str] = []
    for name, texts in named_texts(frame, ("date", *REQUIRED, *OPTIONAL)).items():
        symbols, rows = np.unique(texts.to_numpy(), return_inverse=True)
        if len(symbols) <= frame.height // 2 and _fallen(rows, dates, ordered=ordered) is None:
            likely.append(name)
    return likely


def _check_size(symbols: int, sessions: int, rows: int, source: TableSource) -> None:
    """Refuse a table of a few rows whose panel would be a huge array of nothing."""
    cells = symbols * sessions
    if cells > ALWAYS_TAKEN and cells > MOST_CELLS_A_ROW * rows:
        raise BarsError(
            f"{source.name} has {rows} rows of {symbols} symbols on {sessions} dates, so that fewer than one in "
            f"{MOST_CELLS_A_ROW} of these has a bar; put symbols with other dates into other files"
        )


def _spread(values: FloatArray, rows: IndexArray, places: IndexArray, shape: tuple[int, int]) -> FloatArray:
    """Put a column of rows onto the panel's [S, T]."""
    panel = np.full(shape, np.nan)
    panel[rows, places] = values
    return panel


def write_table(table: BarTable, path: Path) -> None:
    """Write a CSV file beside its place and move it there when it is whole; see `BarPanel.write_csv`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("symbol", "date", *table.columns))
    for row, symbol in enumerate(table.symbols):
        writer.writerows(_rows_of(table, row, symbol))
    replace_file(path, text.getvalue().encode())


def _rows_of(table: BarTable, row: int, symbol: str) -> list[Sequence[str]]:
    """One symbol's rows; a day on which nothing is known of it has none."""
    values = np.stack([column[row] for column in table.columns.values()], axis=1)
    return [
        (symbol, shown_date(int(session)), *("" if np.isnan(value) else repr(float(value)) for value in bar))
        for session, bar in zip(table.sessions, values, strict=True)
        if not np.isnan(bar).all()
    ]
