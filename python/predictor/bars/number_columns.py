"""Parsing of the number columns of a table, including formatted numbers; an ambiguous decimal sign is an error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

import numpy as np

from predictor.arrays import BoolArray, FloatArray
from predictor.bars.dates import check_parsed, find_unread_rows
from predictor.bars.layouts import DecimalSign, suggest_python_option
from predictor.errors import BarsError

if TYPE_CHECKING:
    import polars as pl

NOTHING: Final = ("null", "none", "nan", "na", "n/a", "#n/a", "-", "--")
"""Placeholders that programs write for a day without a bar."""
NO_NUMBER: Final = "is not a number"
CURRENCY: Final = r"^[$€£¥]\s*|\s*[$€£¥]$"
SCALED: Final = r"^([+-]?[0-9.,]+)\s*([KkMmBbTt])$"
POWERS: Final = {"k": "e3", "m": "e6", "b": "e9", "t": "e12"}


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NumberColumns:
    """The numbers of a table's columns.

    Attributes:
        columns: float64 [rows] by name, NaN for an empty cell.
        is_rounded: Whether some cells are abbreviated, such as 1.2M, so that digits are lost.
    """

    columns: Mapping[str, FloatArray]
    is_rounded: bool = False


@final
@dataclass(frozen=True, slots=True)
class UnreadCell:
    """A cell that is not a number."""

    row: int
    column: str
    text: str

    def __str__(self) -> str:
        return f"row {self.row + 1} after the header, column {self.column}: {self.text!r} {NO_NUMBER}"


def parse_numbers(column: "pl.Series", source: str) -> FloatArray:
    """Parse a column with decimal points as float64 [rows]; an empty cell is NaN."""
    cleaned = _clean(column, source)
    numbers = _cast(cleaned)
    check_parsed(cleaned, numbers, source, NO_NUMBER)
    return _fill(numbers)


def parse_number_columns(
    columns: "Sequence[pl.Series]", source: str, *, decimal: DecimalSign | None, is_plain: bool
) -> NumberColumns:
    """Parse the columns of one table.

    Args:
        columns: Strings or numbers, each [rows].
        source: The table's source, for messages.
        decimal: The decimal sign; None = infer it from the cells.
        is_plain: Prefer the decimal point if all cells parse with it, as in comma-separated files.

    Raises:
        BarsError: A cell is not a number, or the decimal sign is ambiguous; the message names the option that decides.
    """
    import polars as pl

    cleaned = _clean_all(columns, source)
    if is_plain and decimal is not DecimalSign.COMMA:
        numbers = [_cast(column) for column in cleaned]
        if all(number.null_count() == column.null_count() for number, column in zip(numbers, cleaned, strict=True)):
            return NumberColumns(columns={number.name: _fill(number) for number in numbers})
    cleaned = _replace_in_empty_rows(cleaned)
    scaled = [_scale(column) for column in cleaned]
    sign = decimal.character if decimal else _find_decimal_sign(scaled, source)
    parsed: dict[str, FloatArray] = {}
    for cells, column in zip(cleaned, scaled, strict=True):
        numbers = _cast(_rewrite_with_points(column, sign))
        check_parsed(cells, numbers, source, NO_NUMBER)  # the message shows the original cell
        parsed[cells.name] = _fill(numbers)
    is_rounded = any(column.dtype == pl.String and column.str.contains(SCALED).any() for column in cleaned)
    return NumberColumns(columns=parsed, is_rounded=is_rounded)


def find_unread_cells(columns: "Sequence[pl.Series]", source: str, *, decimal: DecimalSign | None) -> list[UnreadCell]:
    """The cells of a table, by row, that are not numbers with the decimal sign that reads most cells."""
    cleaned = _replace_in_empty_rows(_clean_all(columns, source))
    scaled = [_scale(column) for column in cleaned]
    unread = (
        [
            UnreadCell(row=row, column=cells.name, text=str(cells[row]))
            for cells, column in zip(cleaned, scaled, strict=True)
            for row in find_unread_rows(cells, _cast(_rewrite_with_points(column, sign)))
        ]
        for sign in ([decimal.character] if decimal else [".", ","])
    )
    return sorted(min(unread, key=len), key=attrgetter("row"))


def _clean_all(columns: "Sequence[pl.Series]", source: str) -> "list[pl.Series]":
    """The columns with null for an empty cell and, in the column of volumes, for a placeholder."""
    import polars as pl

    cleaned = [_clean(column, source) for column in columns]
    return [
        column.set(_is_nothing(column), None) if column.name == "volume" and column.dtype == pl.String else column
        for column in cleaned
    ]


def _clean(column: "pl.Series", source: str) -> "pl.Series":
    import polars as pl

    if column.dtype == pl.String:
        column = column.str.strip_chars()
        return column.set(column == "", None)
    if not column.dtype.is_numeric() and column.dtype != pl.Null:
        raise BarsError(f"{source}: column {column.name} holds {column.dtype}, but must hold numbers")
    return column


def _is_nothing(texts: "pl.Series") -> "pl.Series":
    """Where a column of strings is empty or holds a placeholder."""
    return (texts.is_null() | texts.str.to_lowercase().is_in(NOTHING)).fill_null(value=True)


def _cast(column: "pl.Series") -> "pl.Series":
    """Convert a column to floats; null where that fails."""
    import polars as pl

    return column.cast(pl.Float64, strict=False)


def _fill(numbers: "pl.Series") -> FloatArray:
    return numbers.fill_null(float("nan")).to_numpy()


def _replace_in_empty_rows(columns: "Sequence[pl.Series]") -> "list[pl.Series]":
    """Replace placeholders by null in rows that hold nothing else."""
    import polars as pl

    texts = [column.cast(pl.String) for column in columns]
    empty: BoolArray = np.logical_and.reduce([_is_nothing(text).to_numpy() for text in texts])
    mask = pl.Series(empty)
    return [column.set(mask, None) if empty.any() and column.dtype == pl.String else column for column in columns]


def _scale(column: "pl.Series") -> "pl.Series":
    """Remove currency signs and rewrite 1.2M as 1.2e6, which parses exactly, whereas a product would round."""
    import polars as pl

    if column.dtype != pl.String:
        return column
    plain = column.str.replace(CURRENCY, "")
    powers = plain.str.extract(SCALED, 2).str.to_lowercase().replace_strict(POWERS, default=None)
    scaled = plain.str.extract(SCALED, 1) + powers
    frame = pl.DataFrame({"plain": plain, "scaled": scaled})
    return frame.select(pl.coalesce("scaled", "plain")).to_series().rename(column.name)


def _rewrite_with_points(column: "pl.Series", sign: str) -> "pl.Series":
    """Rewrite numbers with decimal points and without thousands separators."""
    import polars as pl

    if column.dtype != pl.String:
        return column
    other = "." if sign == "," else ","
    thousands = rf"^[+-]?[0-9]{{1,3}}(?:\{other}[0-9]{{3}})+(?:\{sign}[0-9]+)?(?:[eE][0-9]+)?$"
    grouped = column.str.contains(thousands).fill_null(value=False)
    ungrouped = column.set(~grouped & column.str.contains(other, literal=True).fill_null(value=False), None)
    return ungrouped.str.replace_all(other, "", literal=True).str.replace(sign, ".", literal=True)


def _find_decimal_sign(columns: "Sequence[pl.Series]", source: str) -> str:
    """The only decimal sign with which all cells are numbers.

    Raises:
        BarsError: All cells are numbers with either sign, and the numbers differ.
    """
    import polars as pl

    texts = [column for column in columns if column.dtype == pl.String]
    by_sign = {sign: [_cast(_rewrite_with_points(text, sign)) for text in texts] for sign in (".", ",")}
    fits = {
        sign: all(number.null_count() == text.null_count() for number, text in zip(numbers, texts, strict=True))
        for sign, numbers in by_sign.items()
    }
    if fits["."] != fits[","]:
        return "." if fits["."] else ","
    if not fits["."]:
        return "."  # the caller reports the cell that is not a number
    different = [
        (text, np.flatnonzero((point != comma).fill_null(value=False).to_numpy()), point, comma)
        for text, point, comma in zip(texts, by_sign["."], by_sign[","], strict=True)
    ]
    for text, rows, point, comma in different:
        if rows.size:
            row = int(rows[0])
            raise BarsError(
                f"{source}: row {row + 1} after the header, column {text.name}: {text[row]!r} is "
                f"ambiguous, and so are all other cells; choose {point[row]:g} with --decimal point or {comma[row]:g} "
                f"with --decimal comma{suggest_python_option('decimal')}"
            )
    return "."
