"""What the columns of a table are called: names in any case, and the symbol's under a few that mean nothing else."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from predictor.errors import BarsError, listed

if TYPE_CHECKING:
    import polars as pl

SYMBOL: Final = "symbol"
SYNONYMS: Final = ("ticker", "ticker_symbol", "stock_symbol")
"""Read as `symbol`. Names such as code, name or isin may mean something else: they are named in errors, not guessed."""


class NamedSource(Protocol):
    """Where columns come from, as messages call it."""

    @property
    def name(self) -> str:
        """Such as the file's name."""
        ...


def plainly_named(frame: "pl.DataFrame", source: NamedSource) -> "pl.DataFrame":
    """The columns under lower-case names, underscores for spaces, and one column symbol where there is any.

    Raises:
        BarsError: If two columns get the same name, or two columns that name the symbol disagree.
    """
    names = [plain_name(name) for name in frame.columns]
    twice = repeated(names)
    if twice:
        raise BarsError(f"{source.name} has more than one column {', '.join(twice)}")
    return _with_symbol(frame.rename(dict(zip(frame.columns, names, strict=True))), source)


def plain_name(name: str) -> str:
    """A column's name in lower case, with underscores for spaces and without the brackets of <DATE>."""
    return name.strip().lower().removeprefix("<").removesuffix(">").replace(" ", "_")


def repeated(names: Sequence[str]) -> list[str]:
    """The names that appear more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _with_symbol(frame: "pl.DataFrame", source: NamedSource) -> "pl.DataFrame":
    """The symbol under its own name; a second column that says the same in every row is left out."""
    names = [name for name in (SYMBOL, *SYNONYMS) if name in frame.columns]
    for other in names[1:]:
        _check_same(frame, names[0], other, source)
    return frame.drop(names[1:]).rename({names[0]: SYMBOL}) if names else frame


def _check_same(frame: "pl.DataFrame", first: str, second: str, source: NamedSource) -> None:
    one, two = (texts_of(frame[name], source).fill_null("") for name in (first, second))
    different = np.flatnonzero((one != two).to_numpy())
    if different.size:
        row = int(different[0])
        raise BarsError(
            f"{source.name}: row {row + 1} after the header: column {first} says {one[row]!r}, column {second} says "
            f"{two[row]!r}; keep the one that names the stock, and remove or rename the other"
        )


def texts_of(column: "pl.Series", source: NamedSource) -> "pl.Series":
    """A column as texts without blanks around them; an empty cell stays null.

    Raises:
        BarsError: If its cells are not single values.
    """
    import polars as pl

    if column.dtype.is_nested() or isinstance(column.dtype, pl.Binary | pl.Object):
        raise BarsError(f"{source.name}: column {column.name} holds {column.dtype}, but must hold texts or numbers")
    return column.cast(pl.String).str.strip_chars()


def named_texts(frame: "pl.DataFrame", read: Sequence[str]) -> "dict[str, pl.Series]":
    """The columns of texts beside those that are read: one of them may say what each row is about.

    Args:
        frame: columns under plain names.
        read: names whose meaning is known.

    Returns:
        By name, the texts of each column that says something in every row, none of it a number.
    """
    import polars as pl

    columns: dict[str, pl.Series] = {}
    for column in frame:
        if column.name in read or not (column.dtype == pl.String or isinstance(column.dtype, pl.Categorical | pl.Enum)):
            continue
        texts = column.cast(pl.String).str.strip_chars().fill_null("")
        if not ((texts == "") | texts.cast(pl.Float64, strict=False).is_not_null()).any():
            columns[column.name] = texts
    return columns


def renaming(names: Sequence[str]) -> str:
    """What to do about a table without a column symbol, in which these columns may hold it."""
    quoted = listed([repr(name) for name in names])
    return f"if column {quoted} holds it, rename it to {SYMBOL}" if names else f"give the table a column {SYMBOL}"
