"""Layouts of tables that other programs write: the names and meanings of their columns, and wide tables.

A file has the layout of `LAYOUTS` whose `required_columns` are all among its columns. To support another layout, add it
there, and a sample in `tests/exports.py`.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self, final

from predictor.bars.columns import SYMBOL, find_duplicates, normalise_name
from predictor.errors import BarsError, format_names

if TYPE_CHECKING:
    import polars as pl

PLAIN: Final = "plain"
REQUIRED: Final = ("open", "high", "low", "close", "volume")
OPTIONAL: Final = ("adj_close", "split_ratio", "cash_dividend")
KNOWN: Final = ("date", *REQUIRED, *OPTIONAL)
THOUSANDS: Final = re.compile(r"vol(?:ume|\.)?_(?:in_)?\(?(?:in_)?(?:000s?|k|thousands?|tsd\.?)\)?")
"""Names of volume columns that suggest thousands, although the values may be single shares."""


class DateOrder(StrEnum):
    """The order of day, month and year in dates such as 03/04/2020."""

    DAY_FIRST = "dmy"
    MONTH_FIRST = "mdy"
    YEAR_FIRST = "ymd"


class DecimalSign(StrEnum):
    """The decimal sign of numbers."""

    POINT = "point"
    COMMA = "comma"

    @property
    def character(self) -> str:
        """`.` or `,`."""
        return "." if self is DecimalSign.POINT else ","


class PriceKind(StrEnum):
    """How a table records splits and dividends."""

    UNADJUSTED = "no splits or dividends recorded"
    ADJUSTED = "prices adjusted for splits and dividends"
    WITH_ADJUSTED_CLOSE = "with adjusted closes"
    WITH_EVENTS = "with splits and dividends"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The table layout of one program. Column names are normalised by `columns.normalise_name`.

    Attributes:
        name: The value for `--layout`.
        required_columns: Columns that identify the layout.
        excluded_columns: Columns that exclude the layout.
        columns: Fields by column name, for columns that do not have the field's name. If several columns have the same
            field, the first one counts.
        ignored_columns: Columns with a field's name but another meaning.
        prefixes: Fields by prefix of the column's name; the first matching column counts.
        is_adjusted: Whether the prices are adjusted for splits and dividends if there is no adjusted close.
        time_zone: The time zone that converts a timestamp to its session; empty = unknown.
        date_order: The order of ambiguous dates; None = depends on the user's country.
        decimal: The decimal sign; None = either.
        header: The columns of files without a header.
        stem_prefix: Prefix of file names before the symbol.
        stem_suffix: Suffix of file names after the symbol.
        daily_bars: The column with the bars' period, and its value for daily bars.
    """

    name: str
    required_columns: frozenset[str]
    excluded_columns: frozenset[str] = frozenset()
    columns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    ignored_columns: frozenset[str] = frozenset()
    prefixes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    is_adjusted: bool = False
    time_zone: str = ""
    date_order: DateOrder | None = None
    decimal: DecimalSign | None = None
    header: tuple[str, ...] = ()
    stem_prefix: str = ""
    stem_suffix: str = ""
    daily_bars: tuple[str, str] | None = None


def _make_investing_layout(
    language: str, date: str, prices: tuple[str, str, str, str], stem_suffix: str, stem_prefix: str = ""
) -> Layout:
    """The layout of investing.com in a language other than English; prices are open, high, low and close."""
    return Layout(
        name=f"investing-{language}",
        required_columns=frozenset({date, prices[-1], "vol."}),
        columns={date: "date", **dict(zip(prices, ("open", "high", "low", "close"), strict=True))},
        date_order=DateOrder.DAY_FIRST,
        decimal=DecimalSign.COMMA,
        stem_prefix=stem_prefix,
        stem_suffix=stem_suffix,
    )


_KLINES: Final = (
    *("open_time", "open", "high", "low", "close", "volume", "close_time", "quote_volume", "count"),
    *("taker_buy_volume", "taker_buy_quote_volume", "ignore"),
)

LAYOUTS: Final = (
    Layout(
        name="binance",
        required_columns=frozenset({"open_time", "close_time"}),
        columns={"open_time": "date"},
        time_zone="UTC",
        header=_KLINES,
        stem_suffix="-1d",
    ),
    Layout(
        name="cryptodatadownload",
        required_columns=frozenset({"unix", "date", "symbol"}),
        prefixes={"volume_": "volume"},
        time_zone="UTC",
    ),
    Layout(
        name="investing",
        required_columns=frozenset({"price", "vol.", "change_%"}),
        columns={"price": "close"},
        stem_suffix=" Historical Data",
    ),
    _make_investing_layout("german", "datum", ("eröffn.", "hoch", "tief", "zuletzt"), " Historische Daten"),
    _make_investing_layout("french", "date", ("ouv.", "plus_haut", "plus_bas", "dernier"), " Données Historiques"),
    _make_investing_layout("italian", "data", ("apertura", "massimo", "minimo", "ultimo"), " Dati Storici"),
    _make_investing_layout("portuguese", "data", ("abertura", "máxima", "mínima", "último"), " Dados Históricos"),
    _make_investing_layout(
        "spanish",
        "fecha",
        ("apertura", "máximo", "mínimo", "último"),
        " Datos históricos",
        stem_prefix="Datos históricos ",
    ),
    Layout(
        name="japanese",
        required_columns=frozenset({"日付", "始値", "終値"}),
        columns={
            "日付": "date",
            "始値": "open",
            "高値": "high",
            "安値": "low",
            "終値": "close",
            "出来高": "volume",
        },
    ),
    Layout(
        name="ariva",
        required_columns=frozenset({"datum", "erster", "schlusskurs", "stuecke"}),
        columns={
            "datum": "date",
            "erster": "open",
            "hoch": "high",
            "tief": "low",
            "schlusskurs": "close",
            "stuecke": "volume",
        },
        date_order=DateOrder.DAY_FIRST,
        decimal=DecimalSign.COMMA,
    ),
    Layout(
        name="nasdaq",
        required_columns=frozenset({"close/last"}),
        columns={"close/last": "close"},
        date_order=DateOrder.MONTH_FIRST,
    ),
    Layout(
        name="alpha-vantage",
        required_columns=frozenset({"timestamp", "adjusted_close", "split_coefficient"}),
    ),
    Layout(name="tiingo", required_columns=frozenset({"adjclose", "divcash", "splitfactor"})),
    Layout(
        name="quandl",
        required_columns=frozenset({"ex-dividend", "split_ratio", "adj_close"}),
        ignored_columns=frozenset({"split_ratio"}),
    ),
    Layout(
        name="stooq",
        required_columns=frozenset({"per", "vol", "openint"}),
        is_adjusted=True,
        daily_bars=("per", "D"),
    ),
    Layout(
        name="metatrader",
        required_columns=frozenset({"tickvol", "spread"}),
        date_order=DateOrder.YEAR_FIRST,
    ),
    Layout(
        name="alpaca",
        required_columns=frozenset({"timestamp", "trade_count", "vwap"}),
        time_zone="America/New_York",
    ),
    Layout(
        name="polygon",
        required_columns=frozenset("ohlcvt"),
        columns={"t": "date", "o": "open", "h": "high", "l": "low", "c": "close", "v": "volume"},
        time_zone="America/New_York",
    ),
    Layout(
        name="polygon-flat-file",
        required_columns=frozenset({"window_start", "transactions"}),
        columns={"window_start": "date"},
        time_zone="America/New_York",
    ),
    Layout(name="yfinance", required_columns=frozenset({"dividends", "stock_splits"}), is_adjusted=True),
    Layout(
        name="adjusted",
        required_columns=frozenset({"adj_open", "adj_high", "adj_low", "adj_close"}),
        excluded_columns=frozenset({"close"}),
        columns={
            "adj_open": "open",
            "adj_high": "high",
            "adj_low": "low",
            "adj_close": "close",
            "adj_volume": "volume",
            "adj_vol": "volume",
        },
        is_adjusted=True,
    ),
)
PLAIN_LAYOUT: Final = Layout(name=PLAIN, required_columns=frozenset())
SYNONYMS: Final = MappingProxyType(
    {
        **dict.fromkeys(("datetime", "timestamp", "time", "trade_date", "day"), "date"),
        **dict.fromkeys(("vol", "vol."), "volume"),
        **dict.fromkeys(("adjclose", "adj._close", "adj_close*", "adj_close**", "adjusted_close"), "adj_close"),
    }
)
"""Fields by common alternative column names; used in every layout for fields that no other column holds."""
BY_NAME: Final = MappingProxyType({layout.name: layout for layout in (PLAIN_LAYOUT, *LAYOUTS)})


def suggest_python_option(option: str) -> str:
    """The end of a message about a flag: how to set the option in Python."""
    return f"; in Python pass options=ReadingOptions({option}=…) to BarPanel.of or BarPanel.read"


def get_layout(name: str) -> Layout:
    """Look up a layout by name.

    Raises:
        BarsError: No layout has this name.
    """
    if name not in BY_NAME:
        raise BarsError(f"unknown layout {name!r}; use one of {format_names(sorted(BY_NAME))}")
    return BY_NAME[name]


def identify_layout(columns: Sequence[str], source: str) -> Layout:
    """Identify the layout of a table.

    Args:
        columns: normalised names of all columns.
        source: the table's name, for messages.

    Raises:
        BarsError: the columns match several layouts.
    """
    have = frozenset(columns)
    matching = [layout for layout in LAYOUTS if layout.required_columns <= have and not layout.excluded_columns & have]
    if len(matching) > 1:
        names = [layout.name for layout in matching]
        choices = " or ".join(f"--layout {name}" for name in (*names, PLAIN))
        raise BarsError(
            f"{source} has the columns of {format_names(names)}; choose {choices}{suggest_python_option('layout')}"
        )
    return matching[0] if matching else PLAIN_LAYOUT


def identify_headerless_layout(cells: Sequence[str]) -> Layout | None:
    """The layout without a header that matches a first row of cells; None if no layout matches."""
    if not all(re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", cell.strip()) for cell in cells):
        return None
    return next((layout for layout in LAYOUTS if layout.header and len(layout.header) == len(cells)), None)


def map_fields(columns: Sequence[str], layout: Layout, source: str) -> dict[str, str]:
    """Map each field of a table to the column that holds it.

    Args:
        columns: Normalised names of all columns.
        layout: The table's layout.
        source: The table's name, for messages.

    Raises:
        BarsError: Two columns may hold the same field.
    """
    mapped = {target: column for column, target in reversed([*layout.columns.items()]) if column in columns}
    for name in (*KNOWN, SYMBOL):
        if name in columns and name not in layout.ignored_columns and name not in mapped.values():
            mapped.setdefault(name, name)
    for prefix, target in layout.prefixes.items():
        first = next((column for column in columns if column.startswith(prefix)), None)
        if first is not None:
            mapped[target] = first
    synonyms: dict[str, str] = {}
    for column, target in SYNONYMS.items():
        if column not in columns or target in mapped:
            continue
        if target in synonyms:
            raise BarsError(
                f"{source}: columns {synonyms[target]}, {column} may each hold the {target}; rename the right one to "
                f"{target}"
            )
        synonyms[target] = column
    return synonyms | mapped


def extract_symbol(stem: str, layout: Layout) -> str:
    """Extract the symbol from a file's name, in capitals."""
    name = unicodedata.normalize("NFC", stem)  # macOS decomposes accents
    if layout.stem_suffix:
        name = name.partition(layout.stem_suffix)[0].removesuffix(" -")
    return name.removeprefix(layout.stem_prefix).upper()


PRICES: Final = frozenset({"open", "high", "low", "close", "adj_close"})
FIELDS: Final = PRICES | {"volume", "dividends", "stock_splits", "capital_gains", "repaired?"}
DATES: Final = frozenset({"date", "datetime", "timestamp", "index", ""})
CORNERS: Final = DATES | {"price", "ticker", "tickers", "symbol", "symbols", "field", "fields", "attributes"}
"""Names that may stand in the first cell of a header line; the first cell of a bar is its date."""


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
        third = rows[2] if len(rows) > 2 else []  # noqa: PLR2004
        is_date_line = bool(third) and normalise_name(third[0]) in DATES and not any(third[1:])
        lines = 3 if is_date_line else 2
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
        for k, (name, symbol) in enumerate(zip(self.fields, self.symbols, strict=True), start=1):
            columns.setdefault(symbol, []).append(wide.to_series(k).alias(name))
        parts = [
            pl.DataFrame([dates, *series]).with_columns(pl.lit(symbol).alias(SYMBOL))
            for symbol, series in columns.items()
        ]
        return pl.concat(parts, how="diagonal")


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
