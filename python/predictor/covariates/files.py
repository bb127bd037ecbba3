"""Covariates in files, CSV or Parquet, read through polars (extra `data`)."""

from collections.abc import Sequence
from datetime import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from predictor.bars.columns import SYMBOL, named_texts, renaming, texts_of
from predictor.bars.dates import sessions_of
from predictor.bars.files import read_cells
from predictor.bars.numbers import numbers_of
from predictor.covariates.tables import Series, StaticTable, check_name
from predictor.errors import BarsError, ConfigurationError, CovariatesError

if TYPE_CHECKING:
    import polars as pl

KNOWN_FROM: Final = "known_from"
_KEYS: Final = (SYMBOL, "date", KNOWN_FROM)
_MIDNIGHT: Final = r"^[T ]00:00(:00(\.0+)?)?(Z|[+-][0-9:]+)?$"


def read_series(path: Path) -> tuple[Series, ...]:
    """One series per column of a file; see `CovariateSource.read`."""
    try:
        return _series(path, _frame(path))
    except BarsError as error:
        raise CovariatesError(error.message, metadata=error.metadata) from error


def read_statics(path: Path) -> StaticTable:
    """A file of one row per symbol; see `CovariateSource.read`."""
    try:
        return _statics(path, _frame(path))
    except BarsError as error:
        raise CovariatesError(error.message, metadata=error.metadata) from error


def _frame(path: Path) -> "pl.DataFrame":
    """The columns of a file; commas part those of a text, since between others a point may part thousands."""
    cells = read_cells(path)
    if cells.delimiter not in ("", ","):
        raise CovariatesError(
            f"{path.name} has {cells.delimiter!r} between its columns, where 1.234 may be more than 1,000; put commas "
            "between them, and points before decimals"
        )
    return cells.frame


def _series(path: Path, frame: "pl.DataFrame") -> tuple[Series, ...]:
    if KNOWN_FROM not in frame.columns:
        raise CovariatesError(
            f"{path.name} has no column {KNOWN_FROM}, the day on which each row became known. Without it a value would "
            "be used from the day that it is about, which for most figures is before anybody knew it: the model would "
            f"learn from the future. Where both are one day, repeat the date; it has {', '.join(frame.columns)}"
        )
    names = _value_columns(path, frame, ("date", KNOWN_FROM))
    date, known_from = (sessions_of(frame[key], path) for key in ("date", KNOWN_FROM))
    _check_whole_days(path, frame[KNOWN_FROM])
    symbols, owner = _owners(path, frame)
    if not symbols:
        _refuse_texts(path, frame)
    columns = [(name, _finite(path, frame[name]), _stated(path, frame[name])) for name in names]
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


def _statics(path: Path, frame: "pl.DataFrame") -> StaticTable:
    if SYMBOL not in frame.columns:
        raise CovariatesError(
            f"{path.name} has no column {SYMBOL}; it has {', '.join(frame.columns)}; "
            f"{renaming([name for name, texts in named_texts(frame, ()).items() if texts.is_unique().all()])}"
        )
    names = _value_columns(path, frame, (SYMBOL,))
    symbols, owner = _owners(path, frame)
    if len(symbols) != frame.height:
        twice = symbols[int(np.argmax(np.bincount(owner)))]
        raise CovariatesError(f"{path.name}: symbol {twice} has several rows; static values stay the same, keep one")
    return StaticTable(
        symbols=symbols,
        texts={name: _texts(path, frame[name]) for name in names},
        numbers={name: _finite(path, frame[name]) for name in names if _is_numeric(frame[name])},
    )


def _value_columns(path: Path, frame: "pl.DataFrame", keys: Sequence[str]) -> list[str]:
    """The columns of values, checked."""
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
        raise CovariatesError(f"{path.name} has no column of values beside {', '.join(keys)}")
    return names


def _owners(path: Path, frame: "pl.DataFrame") -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """The file's symbols, and each row's place among them; none and zeros where it has no such column."""
    if SYMBOL not in frame.columns:
        return (), np.zeros(frame.height, np.intp)
    names = _texts(path, frame[SYMBOL])
    if "" in names:
        raise CovariatesError(
            f"{path.name}: row {names.index('') + 1} after the header has no symbol; a file about all symbols has no "
            "column symbol"
        )
    symbols = tuple(dict.fromkeys(names))
    place = {symbol: k for k, symbol in enumerate(symbols)}
    return symbols, np.array([place[name] for name in names], np.intp)


def _refuse_texts(path: Path, frame: "pl.DataFrame") -> None:
    """Refuse columns of texts in a file about all symbols: one of them may say which symbol each row is about."""
    texts = list(named_texts(frame, _KEYS))
    if texts:
        raise CovariatesError(
            f"{path.name}: row 1 after the header, column {texts[0]}: {str(frame[texts[0]][0])!r} is not a number, and "
            f"the file has no column {SYMBOL}; {renaming(texts)}"
        )


def _check_whole_days(path: Path, column: "pl.Series") -> None:
    """Refuse a time of day: the value would be used at the close of that day, which may come before it."""
    import polars as pl

    if column.dtype == pl.String:
        rest = column.str.strip_chars().str.slice(10)  # after 2013-12-31
        late = (rest != "") & ~rest.str.contains(_MIDNIGHT)
    elif isinstance(column.dtype, pl.Datetime):
        late = column.dt.time() != time(0)
    else:
        return
    rows = late.arg_true()
    if len(rows):
        raise CovariatesError(
            f"{path.name}: row {rows[0] + 1} after the header, column {KNOWN_FROM}: {str(column[rows[0]])!r} has a "
            "time of day, but a value is used from the close of its day on, which may come before that time; write the "
            "first day whose close knows it"
        )


def _finite(path: Path, column: "pl.Series") -> NDArray[np.float64]:
    """A column of numbers, NaN where a cell is empty or says `nan`."""
    values = numbers_of(column, path)
    infinite = np.flatnonzero(np.isinf(values))
    if infinite.size:
        row = int(infinite[0])
        raise CovariatesError(
            f"{path.name}: row {row + 1} after the header, column {column.name}: {str(column[row])!r} is not a finite "
            "number; leave the cell empty, or write nan to withdraw what was said"
        )
    return values


def _texts(path: Path, column: "pl.Series") -> tuple[str, ...]:
    return tuple(texts_of(column, path).fill_null("").to_list())


def _stated(path: Path, column: "pl.Series") -> NDArray[np.bool_]:
    """Where a cell is not empty; NaN is not."""
    return np.array([text != "" for text in _texts(path, column)], np.bool_)


def _is_numeric(column: "pl.Series") -> bool:
    """Whether every cell that says anything is a number."""
    import polars as pl

    if column.dtype != pl.String:
        return column.dtype.is_numeric()
    said = column.str.strip_chars().replace("", None).drop_nulls()
    return len(said) > 0 and said.cast(pl.Float64, strict=False).null_count() == 0
