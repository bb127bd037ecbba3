"""Files of bars, one per symbol or with several symbols each, as one table."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from predictor.bars.files import has_known_ending
from predictor.bars.partitions import is_partitioned, read_blocks
from predictor.bars.tables import BarTable, ReadingOptions, read_table
from predictor.errors import BarsError, listed

MOST_NAMED: Final = 3
"""Names in the first line about a source; more are counted."""


def read_path(path: Path, options: ReadingOptions | None = None) -> BarTable:
    """Read a file, all files of a folder, or its partitions."""
    if is_partitioned(path):
        return read_partitions(path, options)
    return read_folder(path, options) if path.is_dir() else read_table(path, options)


def read_partitions(source: str | Path, options: ReadingOptions | None = None) -> BarTable:
    """Read partitioned Parquet; a symbol that cannot be read is left out, with a warning that names the reason.

    Args:
        source: A folder with partitions, or an address of Parquet files that polars reads.
        options: The user's options.

    Raises:
        BarsError: No symbol can be read, or blocks of symbols have different columns.
    """
    tables, failures = read_blocks(source, options)
    _check_columns(tables)
    return _join(tables, failures)


def read_paths(paths: Sequence[Path], options: ReadingOptions | None = None) -> BarTable:
    """Read files and folders as one table; see `read_folder`.

    Raises:
        BarsError: A path does not exist; or see `read_folder`.
    """
    if len(paths) == 1:
        return read_path(paths[0], options)
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise BarsError(f"there is no file {listed(missing)}")
    files = {str(file): file for path in paths for file in (_files_of(path) if path.is_dir() else [path])}
    return _read_files(files, options, "the files")


def name_of(paths: Sequence[Path]) -> str:
    """The names of files for messages, or their number."""
    return ", ".join(path.name for path in paths) if len(paths) <= MOST_NAMED else f"{len(paths)} files"


def read_folder(folder: Path, options: ReadingOptions | None = None) -> BarTable:
    """Read all files of a folder; a file that cannot be read is left out, with a warning that names the reason.

    Raises:
        BarsError: No file can be read, files have different columns, or two files have bars of the same symbol.
    """
    return _read_files({path.name: path for path in _files_of(folder)}, options, f"the folder {folder}")


def _files_of(folder: Path) -> list[Path]:
    files = (path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith("."))
    return list(filter(has_known_ending, files))


def _read_files(files: Mapping[str, Path], options: ReadingOptions | None, source: str) -> BarTable:
    """Read these files by name."""
    tables: dict[str, BarTable] = {}
    failures: dict[str, str] = {}
    for name, path in files.items():
        try:
            tables[name] = read_table(path, options)
        except BarsError as error:
            failures[name] = error.message
    if not tables:
        reasons = "; ".join(failures.values()) or "there is no file such as AAPL.csv or AAPL.parquet"
        raise BarsError(f"no bars can be read from {source}: {reasons}")
    _check_columns(tables)
    _check_symbols(tables)
    return _join(tables, failures)


def _check_columns(tables: Mapping[str, BarTable]) -> None:
    first, *others = (f"{name} ({table.layout})" for name, table in tables.items())
    columns = [", ".join(table.columns) for table in tables.values()]
    for name, own in zip(others, columns[1:], strict=True):
        if own != columns[0]:
            raise BarsError(
                f"{first} has the columns {columns[0]}, but {name} has {own}; give all files the same columns"
            )


def _check_symbols(tables: Mapping[str, BarTable]) -> None:
    owner: dict[str, str] = {}
    for name, table in tables.items():
        for symbol in table.symbols:
            if symbol in owner:
                raise BarsError(f"both {owner[symbol]} and {name} have bars of {symbol}; keep one of them")
            owner[symbol] = name


def _join(tables: dict[str, BarTable], failures: Mapping[str, str]) -> BarTable:
    """Join the tables, and empty `tables` meanwhile, so that memory never holds all bars twice."""
    first = next(iter(tables.values()))
    sessions = np.unique(np.concatenate([table.sessions for table in tables.values()]))
    symbols = tuple(symbol for table in tables.values() for symbol in table.symbols)
    layouts = Counter(table.layout for table in tables.values())
    mixed = ", ".join(f"{layout} ({count} file{'s' if count > 1 else ''})" for layout, count in layouts.items())
    remarks = tuple(dict.fromkeys(f"{name}: {note}" for name, table in tables.items() for note in table.remarks))
    warnings = (
        *(f"{name}: {note}" for name, table in tables.items() for note in table.warnings),
        *(f"{name} is left out: {reason}" for name, reason in failures.items()),
    )
    columns = {name: np.empty((len(symbols), sessions.size)) for name in first.columns}
    row = 0
    for key in list(tables):
        table = tables.pop(key)
        rows, places = slice(row, row + len(table.symbols)), np.searchsorted(sessions, table.sessions)
        for name, values in table.columns.items():
            columns[name][rows] = np.nan
            columns[name][rows, places] = values
        row = rows.stop
    for values in columns.values():
        values.setflags(write=False)
    return BarTable(
        symbols=symbols,
        sessions=sessions,
        columns=columns,
        layout=first.layout if len(layouts) == 1 else mixed,
        prices=first.prices,
        remarks=remarks,
        warnings=warnings,
    )
