"""Normalisation of a table's column names, and detection of the symbol's column."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from predictor.errors import BarsError, format_names

if TYPE_CHECKING:
    import polars as pl

SYMBOL: Final = "symbol"
SYNONYMS: Final = ("ticker", "ticker_symbol", "stock_symbol")
"""Read as `symbol`. Ambiguous names such as code, name or isin are suggested in errors but not used."""


def normalise_columns(frame: "pl.DataFrame", source: str) -> "pl.DataFrame":
    """Normalise all column names with `normalise_name`, and rename or merge the symbol's columns to `symbol`.

    Messages name the `source`, such as a file.

    Raises:
        BarsError: Two columns get the same name, or two columns with the symbol disagree.
    """
    names = [normalise_name(name) for name in frame.columns]
    twice = find_duplicates(names)
    if twice:
        raise BarsError(f"{source} has more than one column {', '.join(twice)}")
    frame = frame.rename(dict(zip(frame.columns, names, strict=True)))
    symbols = [name for name in (SYMBOL, *SYNONYMS) if name in frame.columns]
    for other in symbols[1:]:
        _check_same(frame, symbols[0], other, source)
    return frame.drop(symbols[1:]).rename({symbols[0]: SYMBOL}) if symbols else frame


def normalise_name(name: str) -> str:
    """Convert a column's name to lower case, with underscores for spaces and without the brackets of <DATE>."""
    return name.strip().lower().removeprefix("<").removesuffix(">").replace(" ", "_")


def find_duplicates(names: Sequence[str]) -> list[str]:
    """The names that occur more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _check_same(frame: "pl.DataFrame", first: str, second: str, source: str) -> None:
    left, right = (to_strings(frame[name], source).fill_null("") for name in (first, second))
    different = np.flatnonzero((left != right).to_numpy())
    if different.size:
        row = int(different[0])
        raise BarsError(
            f"{source}: row {row + 1} after the header: column {first} is {left[row]!r}, column {second} is "
            f"{right[row]!r}; keep the column with the symbol, and remove or rename the other"
        )


def to_strings(column: "pl.Series", source: str) -> "pl.Series":
    """Convert a column to strings without surrounding blanks; empty cells stay null.

    Raises:
        BarsError: Its cells are not single values.
    """
    import polars as pl

    if column.dtype.is_nested() or isinstance(column.dtype, pl.Binary | pl.Object):
        raise BarsError(f"{source}: column {column.name} holds {column.dtype}, but must hold text or numbers")
    return column.cast(pl.String).str.strip_chars()


def find_text_columns(frame: "pl.DataFrame", columns_read: Sequence[str]) -> "dict[str, pl.Series]":
    """Find text columns that could identify the rows.

    Args:
        frame: a table with normalised names.
        columns_read: names of columns with a known meaning, which are skipped.

    Returns:
        The values by name of each column that has text in every row and no numbers.
    """
    import polars as pl

    columns: dict[str, pl.Series] = {}
    for column in frame:
        if column.name in columns_read or not (
            column.dtype == pl.String or isinstance(column.dtype, pl.Categorical | pl.Enum)
        ):
            continue
        texts = column.cast(pl.String).str.strip_chars().fill_null("")
        if not ((texts == "") | texts.cast(pl.Float64, strict=False).is_not_null()).any():
            columns[column.name] = texts
    return columns


def suggest_symbol_column(names: Sequence[str]) -> str:
    """Advice for a table without a column `symbol`, naming the columns that may hold it."""
    quoted = format_names([repr(name) for name in names])
    return f"if column {quoted} holds it, rename it to {SYMBOL}" if names else f"add a column {SYMBOL}"
