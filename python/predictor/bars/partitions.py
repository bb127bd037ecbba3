"""Bars in partitioned Parquet, such as `bars/year=2020/part.parquet`, read a few hundred symbols at a time."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from predictor.bars.columns import SYMBOL, SYNONYMS, normalise_columns, normalise_name
from predictor.bars.files import PARQUET, TableCells, describe_problem, require_package
from predictor.bars.layouts import get_layout, identify_layout
from predictor.bars.tables import BarTable, ReadingOptions, TableSource, build_table
from predictor.errors import BarsError, listed

if TYPE_CHECKING:
    import polars as pl

SYMBOLS_AT_ONCE: Final = 500
"""Symbols per block: the rows of all would take several times the memory of the panel."""
MOST_FAILURES: Final = 3
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
            if not tables and len(failures) == MOST_FAILURES:
                raise _FirstSymbolsError from error

    try:
        frame, column = _scan(str(source), name)
        every = frame.select(pl.col(column).unique()).collect()[column].sort()
        if every.null_count():
            raise BarsError(f"{name} has rows with an empty {column}; fill or remove them")
        for first in range(0, len(every), SYMBOLS_AT_ONCE):
            read(every[first : first + SYMBOLS_AT_ONCE])
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
    column = next((one for one in columns if normalise_name(one) in (SYMBOL, *SYNONYMS)), None)
    if column is None:
        raise BarsError(f"{name} has no column {SYMBOL}; it has {listed(columns)}")
    return frame, column


def _read_symbols(
    frame: "pl.LazyFrame", column: str, symbols: "pl.Series", name: str, options: ReadingOptions
) -> BarTable:
    import polars as pl

    rows = frame.filter(pl.col(column).is_in(symbols.implode())).collect().sort(column, maintain_order=True)
    source = TableSource(name=name, symbol="", ordered=False, options=options)
    cells = normalise_columns(rows, name)
    layout = get_layout(options.layout) if options.layout else identify_layout(cells.columns, name)
    return build_table(TableCells(frame=cells), source, layout)
