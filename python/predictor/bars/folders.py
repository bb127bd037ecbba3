"""Files of bars, one per symbol or with several symbols each, as one table.

Partitioned Parquet, such as `bars/year=2020/part.parquet`, is read a few hundred symbols at a time.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from predictor.bars.columns import SYMBOL, SYNONYMS, normalise_columns, normalise_name
from predictor.bars.files import PARQUET, TableCells, describe_problem, has_known_ending, require_package
from predictor.bars.layouts import get_layout, identify_layout
from predictor.bars.tables import BarTable, ReadingOptions, TableSource, build_table, read_table
from predictor.errors import BarsError, format_names

if TYPE_CHECKING:
    import polars as pl


MAX_NAMED: Final = 3
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
        BarsError: A path does not exist or is named twice, or a folder has no file; or see `read_folder`.
    """
    if len(paths) == 1:
        return read_path(paths[0], options)
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise BarsError(f"there is no file {format_names(missing)}")
    files: dict[str, Path] = {}
    for path in paths:
        listed = _list_files(path) if path.is_dir() else [path]
        if not listed:
            raise BarsError(f"the folder {path} has no file such as AAPL.csv; read a folder of folders by itself")
        for file in listed:
            if str(file) in files:
                raise BarsError(f"the file {file} is named twice; name it once")
            files[str(file)] = file
    return _read_files(files, options, "the files")


def name_of(paths: Sequence[Path]) -> str:
    """The names of files for messages, or their number."""
    return ", ".join(path.name for path in paths) if len(paths) <= MAX_NAMED else f"{len(paths)} files"


def read_folder(folder: Path, options: ReadingOptions | None = None) -> BarTable:
    """Read all files of a folder; a file that cannot be read is left out, with a warning that names the reason.

    Raises:
        BarsError: No file can be read, files have different columns, or two files have bars of the same symbol.
    """
    return _read_files({path.name: path for path in _list_files(folder)}, options, f"the folder {folder}")


def _list_files(folder: Path) -> list[Path]:
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
    for name, file_columns in zip(others, columns[1:], strict=True):
        if file_columns != columns[0]:
            raise BarsError(
                f"{first} has the columns {columns[0]}, but {name} has {file_columns}; give all files the same columns"
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


SYMBOLS_AT_ONCE: Final = 500
"""Symbols per block: the rows of all would take several times the memory of the panel."""
MAX_FAILURES: Final = 3
"""Symbols that fail before any can be read; then the fault is that of all."""
REMOTE: Final = re.compile(r"(s3|gs|gcs|az|azure|abfss?|hf|https?|file)://[^?#@]+(/|\.parquet)")
_KEY: Final = re.compile(r"([^/\\=]+)=[^/\\]*[/\\]")
_PATH: Final = "path of the file"


def is_partitioned(path: Path) -> bool:
    """Whether a folder has partitions, such as `year=2020`."""
    return path.is_dir() and any("=" in child.name and child.is_dir() for child in path.iterdir())


def is_remote(source: str) -> bool:
    """Whether a source is an address of Parquet files that polars reads, such as s3://bucket/bars/."""
    return REMOTE.fullmatch(source) is not None


def read_blocks(
    source: str | Path, options: ReadingOptions | None = None
) -> tuple[dict[str, BarTable], dict[str, str]]:
    """Read Parquet files of many symbols, block by block.

    Args:
        source: A folder, or an address that ends in `/` or `.parquet`.
        options: The user's options.

    Returns:
        The tables by their symbols as text, and the reason of each symbol that cannot be read.

    Raises:
        BarsError: The files have no column of symbols, or the first symbols cannot be read.
        MissingPackageError: The extra `data` is not installed.
    """
    name = Path(source).name
    require_package("polars", "data", Path(source))
    import polars as pl

    tables: dict[str, BarTable] = {}
    failures: dict[str, str] = {}

    def read(symbols: pl.Series) -> None:
        """Read a block, or if it is refused, each half of it."""
        text = str(symbols[0]) if len(symbols) == 1 else f"{symbols[0]} to {symbols[-1]}"
        try:
            tables[text] = _read_symbols(frame, column, symbols, f"{name}, {text}", options or ReadingOptions())
        except BarsError as error:
            if len(symbols) > 1:
                half = len(symbols) // 2
                read(symbols[:half])
                read(symbols[half:])
                return
            failures[text] = error.message
            if not tables and len(failures) == MAX_FAILURES:
                raise _FirstSymbolsError from error

    try:
        frame, column = _scan(str(source), name)
        values = frame.select(pl.col(column).unique()).collect()[column].sort()
        if values.null_count():
            raise BarsError(f"{name} has rows with an empty {column}; fill or remove them")
        for first in range(0, len(values), SYMBOLS_AT_ONCE):
            read(values[first : first + SYMBOLS_AT_ONCE])
    except _FirstSymbolsError:
        pass
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BarsError(f"{name} cannot be read: {describe_problem(error).splitlines()[0]}") from error
    if not tables:
        raise BarsError(f"no bars can be read from {name}: {'; '.join(failures.values()) or 'it has no rows'}")
    return tables, failures


class _FirstSymbolsError(Exception):
    """None of the first symbols can be read."""


def _scan(source: str, name: str) -> tuple["pl.LazyFrame", str]:
    """The rows of all files with the values of partitions as text, and the name of the symbols' column."""
    import polars as pl

    pattern = source if source.endswith(PARQUET) else f"{source.rstrip('/')}/**/*{PARQUET}"
    paths = pl.scan_parquet(pattern, hive_partitioning=False, include_file_paths=_PATH)
    first = paths.select(_PATH).head(1).collect()[_PATH].to_list()
    keys = dict.fromkeys(_KEY.findall(first[0].removeprefix(source)) if first else [], pl.String)
    frame = pl.scan_parquet(pattern, hive_partitioning=bool(keys), hive_schema=keys or None)
    columns = frame.collect_schema().names()
    column = next((name for name in columns if normalise_name(name) in (SYMBOL, *SYNONYMS)), None)
    if column is None:
        raise BarsError(f"{name} has no column {SYMBOL}; it has {format_names(columns)}")
    return frame, column


def _read_symbols(
    frame: "pl.LazyFrame", column: str, symbols: "pl.Series", name: str, options: ReadingOptions
) -> BarTable:
    import polars as pl

    rows = frame.filter(pl.col(column).is_in(symbols.implode())).collect().sort(column, maintain_order=True)
    source = TableSource(name=name, symbol="", is_ordered=False, options=options)
    cells = normalise_columns(rows, name)
    layout = get_layout(options.layout) if options.layout else identify_layout(cells.columns, name)
    return build_table(TableCells(frame=cells), source, layout)
