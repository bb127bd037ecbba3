"""Bars in files: one row a bar, CSV or Parquet, read through polars (extra `data`)."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import numpy as np
from numpy.typing import NDArray

from predictor.errors import BarsError, MissingPackageError, shown_date
from predictor.replacement import replace_file

if TYPE_CHECKING:
    import polars as pl

FloatArray = NDArray[np.float64]
RowIndex = NDArray[np.intp]

REQUIRED: Final = ("open", "high", "low", "close", "volume")
OPTIONAL: Final = ("adj_close", "split_ratio", "cash_dividend")
READABLE_DATE: Final = r"^(?:[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ].*)?)$"


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Table:
    """A file's bars as arrays.

    Attributes:
        symbols: S names, in the order of their first rows.
        sessions: int32 [T], every date of the file.
        columns: float64 [S, T] by field name, NaN where a symbol has no row.
    """

    symbols: tuple[str, ...]
    sessions: NDArray[np.int32]
    columns: Mapping[str, FloatArray]


def read_table(path: Path) -> Table:
    """Read a file; see `BarPanel.read`."""
    frame = _load(path)
    if frame.height == 0:
        raise BarsError(f"{path.name} has no rows")
    names = [name for name in (*REQUIRED, *OPTIONAL) if name in frame.columns]
    missing = [name for name in ("date", *REQUIRED) if name not in frame.columns]
    if missing:
        raise BarsError(f"{path.name} has no column {', '.join(missing)}; it has {', '.join(frame.columns)}")
    dates = _sessions(frame["date"], path)
    values = {name: _numbers(frame[name], path) for name in names}
    symbols, rows = _symbols(frame, path)
    _check_sorted(symbols, rows, dates)
    sessions, places = np.unique(dates, return_inverse=True)
    columns = {name: _spread(column, rows, places, (len(symbols), sessions.size)) for name, column in values.items()}
    return Table(symbols=symbols, sessions=sessions, columns=columns)


def _load(path: Path) -> "pl.DataFrame":
    """The file's columns under lower-case names; text stays text, so that a wrong cell can be shown as it stands."""
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
        raise BarsError(f"there is no file {path}")
    try:
        frame = readers[path.suffix.lower()](path)
    except pl.exceptions.PolarsError as error:
        raise BarsError(f"{path.name} cannot be read: {error}") from error
    names = [name.strip().lower().replace(" ", "_") for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BarsError(f"{path.name} has more than one column {', '.join(twice)}")
    return frame.rename(dict(zip(frame.columns, names, strict=True)))


def _numbers(column: "pl.Series", path: Path) -> FloatArray:
    """A column as float64; an empty cell is NaN."""
    import polars as pl

    if column.dtype == pl.String:
        column = column.str.strip_chars()
        column = column.set(column == "", None)
    elif not column.dtype.is_numeric():
        raise BarsError(f"{path.name}: column {column.name} holds {column.dtype}, but must hold numbers")
    numbers = column.cast(pl.Float64, strict=False)
    _check_read(column, numbers, path, "is no number")
    return numbers.fill_null(float("nan")).to_numpy()


def _sessions(column: "pl.Series", path: Path) -> NDArray[np.int32]:
    """A column of dates as yyyymmdd: ISO text, dates, times of day (their date) or whole numbers yyyymmdd."""
    import polars as pl

    text = column.cast(pl.String) if column.dtype.is_integer() else column
    if text.dtype == pl.String:
        dates = _dates_of_text(text.str.strip_chars())
    elif isinstance(text.dtype, pl.Date | pl.Datetime):
        dates = text.cast(pl.Date)
    else:
        raise BarsError(f"{path.name}: column date holds {column.dtype}, but must hold dates")
    _check_read(text.fill_null(""), dates, path, "is no date; write 2013-12-31 or 20131231")
    return (dates.dt.year() * 10_000 + dates.dt.month().cast(pl.Int32) * 100 + dates.dt.day()).to_numpy()


def _dates_of_text(text: "pl.Series") -> "pl.Series":
    readable = text.str.contains(READABLE_DATE).fill_null(value=False)
    compact = text.str.slice(0, 10).str.replace_all("-", "", literal=True)
    return compact.set(~readable, None).str.to_date("%Y%m%d", strict=False)


def _check_read(given: "pl.Series", read: "pl.Series", path: Path, problem: str) -> None:
    """Refuse the first cell that held something and could not be read."""
    unread = np.flatnonzero((given.is_not_null() & read.is_null()).to_numpy())
    if unread.size:
        row = int(unread[0])
        raise BarsError(f"{path.name}: row {row + 1} after the header, column {given.name}: {given[row]!r} {problem}")


def _symbols(frame: "pl.DataFrame", path: Path) -> tuple[tuple[str, ...], RowIndex]:
    """The file's symbols in the order of their first rows, and each row's place among them."""
    import polars as pl

    if "symbol" not in frame.columns:
        return (path.stem.upper(),), np.zeros(frame.height, dtype=np.intp)
    column = frame["symbol"].cast(pl.String).str.strip_chars()
    empty = np.flatnonzero((column.is_null() | (column == "")).to_numpy())
    if empty.size:
        raise BarsError(f"{path.name}: row {int(empty[0]) + 1} after the header: the symbol is empty")
    symbols = tuple(column.unique(maintain_order=True).to_list())
    place = {symbol: row for row, symbol in enumerate(symbols)}
    return symbols, np.array([place[symbol] for symbol in column.to_list()], dtype=np.intp)


def _check_sorted(symbols: tuple[str, ...], rows: RowIndex, dates: NDArray[np.int32]) -> None:
    """Refuse a symbol whose dates do not rise down the file."""
    order = np.argsort(rows, kind="stable")
    owner, day = rows[order], dates[order]
    wrong = np.flatnonzero((owner[1:] == owner[:-1]) & (day[1:] <= day[:-1]))
    if wrong.size:
        at = int(wrong[0]) + 1
        symbol, date, before = symbols[owner[at]], shown_date(int(day[at])), shown_date(int(day[at - 1]))
        if date == before:
            raise BarsError(f"{symbol} {date} stands twice in the file; give each day one row")
        raise BarsError(f"{symbol} {date} stands after {before} in the file; sort each symbol's rows, oldest first")


def _spread(values: FloatArray, rows: RowIndex, places: RowIndex, shape: tuple[int, int]) -> FloatArray:
    """Put a column of rows onto the panel's [S, T]."""
    panel = np.full(shape, np.nan)
    panel[rows, places] = values
    return panel


def write_table(table: Table, path: Path) -> None:
    """Write a CSV file beside its place and move it there when it is whole; see `BarPanel.write_csv`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("symbol", "date", *table.columns))
    for row, symbol in enumerate(table.symbols):
        writer.writerows(_rows_of(table, row, symbol))
    replace_file(path, text.getvalue().encode())


def _rows_of(table: Table, row: int, symbol: str) -> list[Sequence[str]]:
    """One symbol's rows; a day on which nothing is known of it has none."""
    values = np.stack([column[row] for column in table.columns.values()], axis=1)
    return [
        (symbol, shown_date(int(session)), *("" if np.isnan(value) else repr(float(value)) for value in bar))
        for session, bar in zip(table.sessions, values, strict=True)
        if not np.isnan(bar).all()
    ]
