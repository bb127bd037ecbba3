"""Wide tables: one column per field and stock, below two header lines, as yfinance and pandas write them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, final

from predictor.bars.columns import SYMBOL, find_duplicates, normalise_name
from predictor.bars.layouts import BY_NAME, Layout
from predictor.errors import BarsError, format_names

if TYPE_CHECKING:
    import polars as pl

PRICES: Final = frozenset({"open", "high", "low", "close", "adj_close"})
FIELDS: Final = PRICES | {"volume", "dividends", "stock_splits", "capital_gains", "repaired?"}
DATES: Final = frozenset({"date", "datetime", "timestamp", "index", ""})
CORNERS: Final = DATES | {"price", "ticker", "tickers", "symbol", "symbols", "field", "fields", "attributes"}
"""First cells of the two header lines; the first cell of a bar is its date."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WideHeader:
    """The header of a wide table.

    Attributes:
        fields: The field of each column except the first, as normalised name.
        symbols: The stock of each of these columns.
        lines: Number of header lines; most files have a third line that names the date column.
    """

    fields: tuple[str, ...]
    symbols: tuple[str, ...]
    lines: int

    @classmethod
    def of(cls, rows: Sequence[Sequence[str]]) -> Self | None:
        """Parse the header from a file's first rows; None if they are not one.

        Args:
            rows: The cells of up to three lines.
        """
        if len(rows) < 2 or len(rows[0]) != len(rows[1]):  # noqa: PLR2004 (two lines of names)
            return None
        if not {normalise_name(row[0]) for row in rows[:2]} <= CORNERS:
            return None
        first, second = ([normalise_name(cell) for cell in row[1:]] for row in rows[:2])
        lines = 3 if len(rows) > 2 and _is_date_header(rows[2]) else 2  # noqa: PLR2004
        if _are_fields(first) and _are_symbols(rows[1][1:]):
            return cls(fields=tuple(first), symbols=tuple(rows[1][1:]), lines=lines)
        if _are_fields(second) and _are_symbols(rows[0][1:]):
            return cls(fields=tuple(second), symbols=tuple(rows[0][1:]), lines=lines)
        return None

    @property
    def layout(self) -> Layout:
        """The layout of yfinance, whose prices are adjusted if there is no adjusted close."""
        return BY_NAME["yfinance"]

    def stacked(self, wide: "pl.DataFrame", source: str) -> "pl.DataFrame":
        """Convert a wide table to one row per day and stock.

        Args:
            wide: The columns in the header's order, the dates first.
            source: The table's name, for messages.

        Returns:
            Columns date, symbol and the fields; a field that a stock lacks is null.

        Raises:
            BarsError: A stock has two columns with the same field.
        """
        import polars as pl

        twice = find_duplicates(
            [f"{field} of {symbol}" for field, symbol in zip(self.fields, self.symbols, strict=True)]
        )
        if twice:
            raise BarsError(f"{source} has more than one column {format_names(twice)}; remove all but one")

        dates = wide.to_series(0).alias("date")
        columns: dict[str, list[pl.Series]] = {}
        for at, (field, symbol) in enumerate(zip(self.fields, self.symbols, strict=True), start=1):
            columns.setdefault(symbol, []).append(wide.to_series(at).alias(field))
        parts = [
            pl.DataFrame([dates, *fields]).with_columns(pl.lit(symbol).alias(SYMBOL))
            for symbol, fields in columns.items()
        ]
        return pl.concat(parts, how="diagonal")


def _is_date_header(row: Sequence[str]) -> bool:
    """Whether a header line only names the date column."""
    return bool(row) and normalise_name(row[0]) in DATES and not any(row[1:])


def _are_fields(names: Sequence[str]) -> bool:
    return set(names) <= FIELDS and set(names) >= PRICES - {"adj_close"}


def _are_symbols(cells: Sequence[str]) -> bool:
    return all(cell and not _is_number(cell) for cell in cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
