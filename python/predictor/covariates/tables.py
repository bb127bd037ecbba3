"""The tables of covariate files: series whose values become known on a date, and static values."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.bars.columns import SYMBOL, find_text_columns, suggest_symbol_column, to_strings
from predictor.bars.dates import parse_sessions
from predictor.bars.files import read_cells
from predictor.bars.number_columns import parse_numbers
from predictor.errors import BarsError, ConfigurationError, CovariatesError, format_date

if TYPE_CHECKING:
    import polars as pl


_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")

_MAX_SHOWN_CHARACTERS: Final = 70


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """R values of one covariate in any order, each with its symbol, its date and the date from which it is known.

    The value of a symbol at session t is the one with the latest date among the values known by the close of t. Of
    several values with that date, it is the one that became known last. A restated value thus takes effect when it
    becomes known.

    Attributes:
        name: The column's name.
        symbols: The symbols of the file; empty = every value applies to all symbols.
        owner: int [R], index in `symbols`; 0 if `symbols` is empty.
        date: int32 [R], the day that the value describes, yyyymmdd.
        known_from: int32 [R], the first day at whose close the value is known, yyyymmdd.
        value: float64 [R]; NaN = withdrawn.
        row: int [R], row number from 1 after the file's header, for messages.

    Raises:
        CovariatesError: Two values with the same symbol and date became known on the same day.
    """

    name: str
    symbols: tuple[str, ...]
    owner: NDArray[np.intp]
    date: NDArray[np.int32]
    known_from: NDArray[np.int32]
    value: FloatArray
    row: NDArray[np.int64]
    _bounds: NDArray[np.intp] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Sort by symbol, then by `known_from`, then by date."""
        order = np.lexsort((self.date, self.known_from, self.owner))
        for column in fields(self)[2:7]:
            object.__setattr__(self, column.name, getattr(self, column.name)[order])
        bounds = np.searchsorted(self.owner, np.arange(max(1, len(self.symbols)) + 1))
        object.__setattr__(self, "_bounds", bounds)
        keys = np.stack([self.owner, self.known_from, self.date])
        twice = np.flatnonzero((keys[:, 1:] == keys[:, :-1]).all(axis=0))
        if twice.size:
            first, second = sorted(self.row[twice[0] : twice[0] + 2].tolist())
            advice = "keep one" if self.symbols else "keep one, or add a column symbol that tells them apart"
            raise CovariatesError(
                f"covariate {self.name}: rows {first} and {second} after the header are two values of one day that "
                f"became known on the same day; {advice}"
            )

    def as_of(self, symbols: Sequence[str], sessions: NDArray[np.int32]) -> FloatArray:
        """The values known at the close of each session: float64 [S, T], or [1, T] if equal for all symbols."""
        return self._stack_by_symbol(symbols, lambda rows: self._as_of(rows, sessions), len(sessions))

    def of_days(self, symbols: Sequence[str], sessions: NDArray[np.int32], *, known_by: int) -> FloatArray:
        """The latest values dated on or before each session, among those known by one day's close.

        Args:
            symbols: S names.
            sessions: int32 [A]; may include future sessions.
            known_by: yyyymmdd.

        Returns:
            float64 [S, A], or [1, A] if equal for all symbols.
        """
        return self._stack_by_symbol(symbols, lambda rows: self._of_days(rows, sessions, known_by), len(sessions))

    def check_known_ahead(self, axis: NDArray[np.int32], reach: int) -> None:
        """Check that no value is read before it is known.

        Args:
            axis: int32 [A], all sessions from the first bar to the last forecast one.
            reach: number of future sessions that a model reads.

        Raises:
            CovariatesError: a value is read too early; the message names its row.
        """
        first_use = np.searchsorted(axis, self.date)  # the first session at which the row is the latest
        seen_by = axis[np.clip(first_use - reach, 0, len(axis) - 1)]
        # only rows that are the latest at any session must be known in time
        order = np.lexsort((self.known_from, self.date, self.owner))
        owner, use = self.owner[order], first_use[order]
        is_latest = np.ones(len(order), np.bool_)
        is_latest[order[:-1]] = (owner[1:] != owner[:-1]) | (use[1:] > use[:-1])
        late_rows = np.flatnonzero(is_latest & (first_use < len(axis)) & (self.known_from > seen_by))
        if late_rows.size:
            first = late_rows[np.argmin(self.row[late_rows])]
            day, known, by = (format_date(int(dates[first])) for dates in (self.date, self.known_from, seen_by))
            raise CovariatesError(
                f"known covariate {self.name}: row {int(self.row[first])} after the header is for {day} and known from "
                f"{known}, but the model reads {reach} sessions ahead, so it must be known by {by}; remove such rows, "
                "choose shorter horizons, or do not list the covariate under --known",
                metadata={"covariate": self.name, "row": str(int(self.row[first]))},
            )

    def _stack_by_symbol(
        self, symbols: Sequence[str], values_of: Callable[[slice], FloatArray], length: int
    ) -> FloatArray:
        if not self.symbols:
            return values_of(slice(0, len(self.date)))[None]
        row_of = {symbol: k for k, symbol in enumerate(self.symbols)}
        values = np.full((len(symbols), length), np.nan)
        for s, symbol in enumerate(symbols):
            if symbol in row_of:
                k = row_of[symbol]
                values[s] = values_of(slice(int(self._bounds[k]), int(self._bounds[k + 1])))
        return values

    def _as_of(self, rows: slice, sessions: NDArray[np.int32]) -> FloatArray:
        date = self.date[rows]
        latest = np.maximum.accumulate(date)
        valid = np.maximum.accumulate(np.where(date == latest, np.arange(len(date)), 0))
        count = np.searchsorted(self.known_from[rows], sessions, side="right")
        return _take_last_values(self.value[rows][valid], count)

    def _of_days(self, rows: slice, sessions: NDArray[np.int32], known_by: int) -> FloatArray:
        count = int(np.searchsorted(self.known_from[rows], known_by, side="right"))
        date, value = self.date[rows][:count], self.value[rows][:count]
        order = np.argsort(date, kind="stable")  # rows with the same date stay in the order in which they became known
        return _take_last_values(value[order], np.searchsorted(date[order], sessions, side="right"))


def _take_last_values(values: FloatArray, count: NDArray[np.intp]) -> FloatArray:
    """The last of the first `count` values; NaN if `count` is 0."""
    return np.concatenate([[np.nan], values])[count]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StaticTable:
    """Static values with one row per symbol. A numeric column can be read both as numbers and as strings.

    Attributes:
        symbols: R unique names.
        numbers: float64 [R] by column name, NaN = unknown.
        texts: One string per row by column name, empty = unknown.
    """

    symbols: tuple[str, ...]
    numbers: Mapping[str, FloatArray]
    texts: Mapping[str, tuple[str, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(self.texts)

    def numbers_of(self, name: str, symbols: Sequence[str]) -> FloatArray:
        """A numeric column as [S]; NaN for a symbol that the table lacks.

        Raises:
            CovariatesError: The column is not numeric.
        """
        if name not in self.numbers:
            symbol = next(iter(self.without_number(name)), "none")
            raise CovariatesError(
                f"static covariate {name} must be a number for every symbol, but that of {symbol} is not; leave the "
                "cell empty if it is unknown"
            )
        row_of = {symbol: k for k, symbol in enumerate(self.symbols)}
        values = np.append(self.numbers[name], np.nan)
        return values[[row_of.get(symbol, -1) for symbol in symbols]]

    def without_number(self, name: str) -> tuple[str, ...]:
        """The symbols whose value in a column is not a number."""
        return tuple(
            symbol for symbol, text in zip(self.symbols, self.texts[name], strict=True) if text and not _is_number(text)
        )

    def texts_of(self, name: str, symbols: Sequence[str]) -> tuple[str, ...]:
        """A column as one string per symbol; empty for a symbol that the table lacks."""
        texts = dict(zip(self.symbols, self.texts[name], strict=True))
        return tuple(texts.get(symbol, "") for symbol in symbols)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # Python accepts 1_000, the parser of files does not


def check_name(name: str, kind: str = "covariate") -> None:
    """Check that expressions can refer to a name.

    Args:
        name: The covariate's name.
        kind: The kind of name, for messages.

    Raises:
        ConfigurationError: The name is invalid.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{kind} {name[:_MAX_SHOWN_CHARACTERS]!r} must have 1 to 64 lower-case letters, digits and underscores, "
            "and start with a letter, to be named in expressions"
        )


KNOWN_FROM: Final = "known_from"

_KEYS: Final = (SYMBOL, "date", KNOWN_FROM)

_MIDNIGHT: Final = r"^[T ]00:00(:00(\.0+)?)?(Z|[+-][0-9:]+)?$"


def read_series(path: Path) -> tuple[Series, ...]:
    """Read one series per column of a file; see `CovariateSource.read`."""
    try:
        return _read_series(path, _read_frame(path))
    except BarsError as error:
        raise CovariatesError(error.message, metadata=error.metadata) from error


def read_statics(path: Path) -> StaticTable:
    """Read a file with one row per symbol; see `CovariateSource.read`."""
    try:
        return _read_statics(path, _read_frame(path))
    except BarsError as error:
        raise CovariatesError(error.message, metadata=error.metadata) from error


def _read_frame(path: Path) -> "pl.DataFrame":
    """Read a file; text must be comma-separated, since with other delimiters a point may separate thousands."""
    cells = read_cells(path)
    if cells.delimiter not in ("", ","):
        raise CovariatesError(
            f"{path.name} is separated by {cells.delimiter!r}, so that 1.234 may be more than 1,000; separate columns "
            "by commas, and use decimal points"
        )
    return cells.frame


def _read_series(path: Path, frame: "pl.DataFrame") -> tuple[Series, ...]:
    if KNOWN_FROM not in frame.columns:
        raise CovariatesError(
            f"{path.name} has no column {KNOWN_FROM}, the day on which each row became known; it has "
            f"{', '.join(frame.columns)}. Without {KNOWN_FROM} the model would learn from the future, since most "
            "figures are published after the day that they describe. If both are the same day, repeat the date"
        )
    names = _list_value_columns(path, frame, ("date", KNOWN_FROM))
    date, known_from = (parse_sessions(frame[key], path.name) for key in ("date", KNOWN_FROM))
    _check_whole_days(path, frame[KNOWN_FROM])
    symbols, owner = _index_owners(path, frame)
    if not symbols:
        # A text column may hold the symbol.
        texts = list(find_text_columns(frame, _KEYS))
        if texts:
            raise CovariatesError(
                f"{path.name}: row 1 after the header, column {texts[0]}: {str(frame[texts[0]][0])!r} is not a number, "
                f"and the file has no column {SYMBOL}; {suggest_symbol_column(texts)}"
            )
    columns = [
        (name, _parse_finite(path, column), np.array([text != "" for text in _list_texts(path, column)], np.bool_))
        for name, column in ((name, frame[name]) for name in names)
    ]  # `nan` counts as a value
    rows = np.arange(1, frame.height + 1)
    return tuple(
        Series(
            name=name,
            symbols=symbols,
            owner=owner[stated],
            date=date[stated],
            known_from=known_from[stated],
            value=values[stated],
            row=rows[stated],
        )
        for name, values, stated in columns
    )


def _read_statics(path: Path, frame: "pl.DataFrame") -> StaticTable:
    if SYMBOL not in frame.columns:
        likely = [name for name, texts in find_text_columns(frame, ()).items() if texts.is_unique().all()]
        raise CovariatesError(
            f"{path.name} has no column {SYMBOL}; it has {', '.join(frame.columns)}; {suggest_symbol_column(likely)}"
        )
    names = _list_value_columns(path, frame, (SYMBOL,))
    symbols, owner = _index_owners(path, frame)
    if len(symbols) != frame.height:
        twice = symbols[int(np.argmax(np.bincount(owner)))]
        raise CovariatesError(f"{path.name}: symbol {twice} has several rows, but static values never change; keep one")
    return StaticTable(
        symbols=symbols,
        texts={name: _list_texts(path, frame[name]) for name in names},
        numbers={name: _parse_finite(path, frame[name]) for name in names if _is_numeric(frame[name])},
    )


def _list_value_columns(path: Path, frame: "pl.DataFrame", keys: Sequence[str]) -> list[str]:
    missing = [key for key in keys if key not in frame.columns]
    if missing:
        raise CovariatesError(f"{path.name} has no column {', '.join(missing)}; it has {', '.join(frame.columns)}")
    if frame.height == 0:
        raise CovariatesError(f"{path.name} has no rows")
    names = [name for name in frame.columns if name not in _KEYS]
    for name in names:
        try:
            check_name(name, f"{path.name}: column")
        except ConfigurationError as error:
            raise CovariatesError(error.message) from error
    if not names:
        raise CovariatesError(f"{path.name} has no column of values, only {', '.join(keys)}")
    return names


def _index_owners(path: Path, frame: "pl.DataFrame") -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """The file's symbols, and the index of each row's symbol; empty and zeros without a symbol column."""
    if SYMBOL not in frame.columns:
        return (), np.zeros(frame.height, np.intp)
    names = _list_texts(path, frame[SYMBOL])
    if "" in names:
        raise CovariatesError(
            f"{path.name}: row {names.index('') + 1} after the header has no symbol; remove the column symbol if "
            "the file applies to all symbols"
        )
    symbols = tuple(dict.fromkeys(names))
    row_of = {symbol: k for k, symbol in enumerate(symbols)}
    return symbols, np.array([row_of[name] for name in names], np.intp)


def _check_whole_days(path: Path, column: "pl.Series") -> None:
    """Raise CovariatesError for a time of day, since the value would be used at that day's close, perhaps too early."""
    import polars as pl

    if column.dtype == pl.String:
        rest = column.str.strip_chars().str.slice(10)  # after 2013-12-31
        has_time = (rest != "") & ~rest.str.contains(_MIDNIGHT)
    elif isinstance(column.dtype, pl.Datetime):
        has_time = column.dt.time() != time(0)
    else:
        return
    rows = has_time.arg_true()
    if len(rows):
        raise CovariatesError(
            f"{path.name}: row {rows[0] + 1} after the header, column {KNOWN_FROM}: {str(column[rows[0]])!r} has a "
            "time of day, but a value is used from the close of its day on, which may be earlier; write the first day "
            "at whose close it is known"
        )


def _parse_finite(path: Path, column: "pl.Series") -> NDArray[np.float64]:
    """Parse a column of finite numbers; NaN if a cell is empty or `nan`."""
    values = parse_numbers(column, path.name)
    infinite = np.flatnonzero(np.isinf(values))
    if infinite.size:
        row = int(infinite[0])
        raise CovariatesError(
            f"{path.name}: row {row + 1} after the header, column {column.name}: {str(column[row])!r} is not a finite "
            "number; leave the cell empty, or write nan to withdraw an earlier value"
        )
    return values


def _list_texts(path: Path, column: "pl.Series") -> tuple[str, ...]:
    return tuple(to_strings(column, path.name).fill_null("").to_list())


def _is_numeric(column: "pl.Series") -> bool:
    """Whether all cells that are not empty are numbers, and there is at least one."""
    import polars as pl

    if column.dtype != pl.String:
        return column.dtype.is_numeric()
    filled = column.str.strip_chars().replace("", None).drop_nulls()
    return len(filled) > 0 and filled.cast(pl.Float64, strict=False).null_count() == 0
