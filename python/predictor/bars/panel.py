"""A panel of daily bars: S symbols on one axis of sessions, validated on construction and immutable."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray, IndexArray
from predictor.bars import adjustment, checks, frames, tables
from predictor.bars.adjustment import AdjustedBars
from predictor.bars.folders import name_of, read_paths
from predictor.bars.frames import Frame
from predictor.bars.jumps import PriceJumps, find_jumps, find_last_jumps
from predictor.dates import DateLike, parse_date_number
from predictor.errors import BarsError, format_date, format_names

PRICE_FIELDS: Final = ("open", "high", "low", "close", "volume")
SYMBOLS_AT_ONCE: Final = 64
"""Symbols that are adjusted, or checked again after an error, at a time."""
JUDGED_AT_ONCE: Final = 500
"""Symbols that are searched for jumps and suspects at a time, which bounds memory."""
EVENT_FIELDS: Final = ("split_ratio", "cash_dividend")
OPTIONAL_FIELDS: Final = ("adj_close", *EVENT_FIELDS)


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class BarPanel:
    """Raw daily bars. The arrays are read-only, so a panel never changes.

    Attributes:
        symbols: S unique names.
        sessions: int32 [T], yyyymmdd, oldest first.
        open: float64 [S, T], like all the following; NaN in all fields = no bar that day.
        high: The day's highest price.
        low: The day's lowest price.
        close: The day's last price.
        volume: Shares traded, 0 or more; NaN with prices = unknown.
        adj_close: Close adjusted for splits and dividends, on any scale; excludes the two following.
        split_ratio: 3.0 if 3 new shares replace 1 old share at that day's open; 1 or NaN = none.
        cash_dividend: Quote currency per share on the ex-date; 0 or NaN = none.
        calendar: The exchange's code, such as "XNYS"; empty = unknown.
        currency: The code of the quote currency; empty = unknown.

    Raises:
        BarsError: On construction, for the first rule that is broken.
    """

    symbols: tuple[str, ...]
    sessions: NDArray[np.int32]
    open: FloatArray
    high: FloatArray
    low: FloatArray
    close: FloatArray
    volume: FloatArray
    adj_close: FloatArray | None = None
    split_ratio: FloatArray | None = None
    cash_dividend: FloatArray | None = None
    calendar: str = ""
    currency: str = ""

    def __post_init__(self) -> None:
        checks.check_symbols(self.symbols)
        checks.check_label("calendar", self.calendar)
        checks.check_label("currency", self.currency)
        object.__setattr__(self, "sessions", checks.freeze_sessions(self.sessions, self.symbols))
        if self.adj_close is not None and (self.split_ratio is not None or self.cash_dividend is not None):
            raise BarsError("pass adj_close, or split_ratio and cash_dividend, but not both: they may disagree")
        shape, columns = (len(self.symbols), self.sessions.size), dict[str, FloatArray]()
        for name in (*PRICE_FIELDS, *OPTIONAL_FIELDS):
            if (values := getattr(self, name)) is not None:
                columns[name] = checks.freeze_column(name, values, shape)
                object.__setattr__(self, name, columns[name])
        prices = {name: values for name, values in columns.items() if name not in EVENT_FIELDS}
        checks.check_bars(self.symbols, self.sessions, prices)
        if self.split_ratio is not None:
            is_valid = (self.split_ratio > 0) & np.isfinite(self.split_ratio)
            rule = "a split ratio must be positive and finite, 3 for 3:1; 1 or empty for none"
            checks.check_events(self.symbols, self.sessions, "split_ratio", self.split_ratio, is_valid, rule)
        adjustment.check_dividends(self)

    @classmethod
    def single(  # noqa: PLR0913 (one argument per column)
        cls,
        symbol: str,
        *,
        sessions: NDArray[np.integer],
        open: FloatArray,  # noqa: A002 (the column's name)
        high: FloatArray,
        low: FloatArray,
        close: FloatArray,
        volume: FloatArray,
        adj_close: FloatArray | None = None,
        split_ratio: FloatArray | None = None,
        cash_dividend: FloatArray | None = None,
        calendar: str = "",
        currency: str = "",
    ) -> Self:
        """Create a panel of one symbol from arrays [T]."""
        return cls(
            symbols=(symbol,),
            sessions=np.asarray(sessions, dtype=np.int32),
            open=open[None],
            high=high[None],
            low=low[None],
            close=close[None],
            volume=volume[None],
            adj_close=None if adj_close is None else adj_close[None],
            split_ratio=None if split_ratio is None else split_ratio[None],
            cash_dividend=None if cash_dividend is None else cash_dividend[None],
            calendar=calendar,
            currency=currency,
        )

    @classmethod
    def read(
        cls,
        path: str | Path | Sequence[str | Path],
        *,
        calendar: str = "",
        currency: str = "",
        options: tables.ReadingOptions | None = None,
    ) -> Self:
        """Read a file with one row per bar, or several or a folder of them; emits BarsWarning for doubtful properties.

        Column names, in any case, are date, open, high, low, close, volume, and either adj_close or split_ratio and
        cash_dividend, or those of a layout in `predictor.bars.layouts`. A column symbol or ticker is required for
        several symbols; without it, the symbol is the file's name in capitals. Other columns are ignored. The panel's
        sessions are all dates of the file; a symbol without a row on one of them has no bar there.

        Args:
            path: A text file such as CSV, compressed or not, Excel or Parquet, see `predictor.bars.files`; or several
                in a list or a folder, such as one file per symbol.
            calendar: The exchange's code, such as "XNYS".
            currency: The code of the quote currency.
            options: Options that resolve ambiguous cells.

        Raises:
            BarsError: A cell is invalid, named by column, row and value, or a bar is impossible.
            MissingPackageError: The extra `data` is not installed, or for Excel files the extra `excel`.
        """
        paths = list(map(Path, [path] if isinstance(path, str | Path) else path))
        panel, warnings = cls.of_table(read_paths(paths, options), calendar=calendar, currency=currency)
        tables.emit_warnings(warnings, name_of(paths))
        return panel

    @classmethod
    def of(
        cls,
        frame: Frame,
        *,
        symbol: str = "",
        calendar: str = "",
        currency: str = "",
        options: tables.ReadingOptions | None = None,
    ) -> Self:
        """Read a DataFrame of pandas, polars, pyarrow or a compatible library; see `read`.

        Args:
            frame: One row per bar, or columns by field and symbol as in yfinance; a pandas index of dates counts as a
                column.
            symbol: The symbol, required if no column holds it.
            calendar: The exchange's code, such as "XNYS".
            currency: The code of the quote currency.
            options: Options that resolve ambiguous cells.

        Raises:
            BarsError: A cell is invalid, named by column, row and value, or a bar is impossible.
            MissingPackageError: The extra `data` is not installed.
        """
        table = frames.read_frame(frame, symbol=symbol, options=options)
        panel, warnings = cls.of_table(table, calendar=calendar, currency=currency)
        tables.emit_warnings(warnings, frames.NAME)
        return panel

    @classmethod
    def of_table(
        cls, table: tables.BarTable, *, calendar: str = "", currency: str = ""
    ) -> tuple[Self, tuple[str, ...]]:
        """Create a panel from a table, without the symbols that have an impossible bar or one in the future.

        Returns:
            The panel, and the table's warnings with one for each symbol that is left out.

        Raises:
            BarsError: More than half of the symbols would be left out: the table may be read wrongly.
        """
        try:
            return cls._of_past(table, calendar=calendar, currency=currency), table.warnings
        except BarsError:
            errors = _find_errors(cls._of_past, table)
            if not errors or 2 * len(errors) > len(table.symbols):
                raise
        usable_table = table.select([row for row, symbol in enumerate(table.symbols) if symbol not in errors])
        warnings = (*table.warnings, *(f"{error.message}; {symbol} is left out" for symbol, error in errors.items()))
        return cls._of_past(usable_table, calendar=calendar, currency=currency), warnings

    @classmethod
    def of_possible_bars(
        cls, table: tables.BarTable, *, calendar: str = "", currency: str = ""
    ) -> tuple[Self, Mapping[str, BarsError]]:
        """Create a panel in which each symbol with an impossible bar has no bars at all.

        Returns:
            The panel, and the error of each such symbol.

        Raises:
            BarsError: More than half of the symbols have one, or the error is not one of single symbols.
        """
        try:
            return cls.of_columns(table, calendar=calendar, currency=currency), {}
        except BarsError:
            errors = _find_errors(cls.of_columns, table)
            if not errors or 2 * len(errors) > len(table.symbols):
                raise
        is_impossible = np.array([symbol in errors for symbol in table.symbols])
        columns = {name: np.where(is_impossible[:, None], np.nan, values) for name, values in table.columns.items()}
        return cls.of_columns(replace(table, columns=columns), calendar=calendar, currency=currency), errors

    @classmethod
    def _of_past(cls, table: tables.BarTable, *, calendar: str = "", currency: str = "") -> Self:
        checks.check_past(table.symbols, table.sessions, table.columns["close"], datetime.now(UTC).date())
        return cls.of_columns(table, calendar=calendar, currency=currency)

    @classmethod
    def of_columns(cls, table: tables.BarTable, *, calendar: str = "", currency: str = "") -> Self:
        """Create a panel from arrays by field name."""
        columns = table.columns
        return cls(
            symbols=table.symbols,
            sessions=table.sessions,
            open=columns["open"],
            high=columns["high"],
            low=columns["low"],
            close=columns["close"],
            volume=columns["volume"],
            adj_close=columns.get("adj_close"),
            split_ratio=columns.get("split_ratio"),
            cash_dividend=columns.get("cash_dividend"),
            calendar=calendar,
            currency=currency,
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle a mapped column as a plain array, which the processes of a Ray node share.

        Python before 3.11.4 replaces a `__getstate__` of a dataclass with slots.
        """
        values = [getattr(self, field.name) for field in fields(self)]
        plain = [np.ascontiguousarray(value) if isinstance(value, np.memmap) else value for value in values]
        return object.__new__, (BarPanel,), plain

    def write_csv(self, path: str | Path) -> None:
        """Write one row per bar, with the shortest decimals that parse to the same bits.

        The same panel gives the same text. The file is written atomically. A symbol without bars is lost.
        """
        columns = {name: getattr(self, name) for name in self.columns}
        table = tables.BarTable(symbols=self.symbols, sessions=self.sessions, columns=columns)
        tables.write_table(table, Path(path))

    @property
    def present(self) -> NDArray[np.bool_]:
        """Whether a symbol has a bar in a session, [S, T]."""
        return ~np.isnan(self.close)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the panel's columns; those for splits and dividends come last."""
        return (*PRICE_FIELDS, *(name for name in OPTIONAL_FIELDS if getattr(self, name) is not None))

    @property
    def is_unadjusted(self) -> bool:
        """Whether no column records splits and dividends."""
        return self.adj_close is None and self.split_ratio is None and self.cash_dividend is None

    def __repr__(self) -> str:
        span = f"{format_date(int(self.sessions[0]))} to {format_date(int(self.sessions[-1]))}"
        symbols, columns = format_names(self.symbols), ", ".join(self.columns)
        return f"<BarPanel: {symbols}; {len(self.sessions)} sessions, {span}; {columns}>"

    def select(self, symbols: str | Sequence[str]) -> Self:
        """Select one or several symbols, in this order.

        Raises:
            BarsError: A symbol is not in the panel, or occurs twice.
        """
        symbols = [symbols] if isinstance(symbols, str) else symbols
        places = {symbol: row for row, symbol in enumerate(self.symbols)}
        missing = [symbol for symbol in symbols if symbol not in places]
        if missing:
            raise BarsError(f"no bars of {format_names(missing)}; the panel has {format_names(self.symbols)}")
        checks.check_symbols(tuple(symbols))
        rows = [places[symbol] for symbol in symbols]
        return self._select(rows, slice(None), tuple(symbols))

    def rows(self, rows: Sequence[int] | slice) -> Self:
        """Select symbols by index, each at most once."""
        places = range(len(self.symbols))[rows] if isinstance(rows, slice) else rows
        part = rows if isinstance(rows, slice) else [*rows]
        return self._select(part, slice(None), tuple(self.symbols[row] for row in places))

    def last(self, count: int) -> Self:
        """Select the last `count` sessions, or all if there are fewer."""
        if count < 1:
            raise BarsError(f"a panel needs at least one session, but count is {count}")
        if count >= len(self.sessions):
            return self
        return self._select(slice(None), slice(-count, None), self.symbols)

    def until(self, session: DateLike) -> Self:
        """Select the sessions up to and including `session`.

        Args:
            session: a date, an ISO string such as "2012-06-01", or an integer yyyymmdd.

        Raises:
            BarsError: the panel begins later, or `session` is not a date.
        """
        return self._select_period(0, parse_date_number(session))

    def between(self, first: DateLike, last: DateLike) -> Self:
        """Select the sessions from `first` to `last`, both included; types as in `until`.

        Raises:
            BarsError: the panel has no session in between, or one of them is not a date.
        """
        return self._select_period(parse_date_number(first), parse_date_number(last))

    def _select_period(self, first: int, last: int) -> Self:
        begin, end = np.searchsorted(self.sessions, (first, last + 1))
        if begin >= end:
            start = f"from {format_date(first)} " if first else ""
            have = f"{format_date(int(self.sessions[0]))} to {format_date(int(self.sessions[-1]))}"
            raise BarsError(f"the panel has no session {start}until {format_date(last)}; it has {have}")
        return self._select(slice(None), slice(int(begin), int(end)), self.symbols)

    def on_sessions(self, sessions: NDArray[np.integer]) -> Self:
        """Extend the panel to a longer axis of sessions; added sessions have no bars.

        Args:
            sessions: Integers [T], yyyymmdd, oldest first; must include all sessions of the panel.

        Raises:
            BarsError: A session of the panel is missing in `sessions`.
        """
        lost = self.sessions[~np.isin(self.sessions, sessions)]
        if lost.size:
            raise BarsError(f"the longer axis lacks session {format_date(int(lost[0]))}, which the panel has")
        places = np.searchsorted(sessions, self.sessions)

        def moved(values: FloatArray) -> FloatArray:
            column = np.full((len(self.symbols), sessions.size), np.nan)
            column[:, places] = values
            return column

        return replace(
            self,
            sessions=np.asarray(sessions, dtype=np.int32),
            open=moved(self.open),
            high=moved(self.high),
            low=moved(self.low),
            close=moved(self.close),
            volume=moved(self.volume),
            adj_close=None if self.adj_close is None else moved(self.adj_close),
            split_ratio=None if self.split_ratio is None else moved(self.split_ratio),
            cash_dividend=None if self.cash_dividend is None else moved(self.cash_dividend),
        )

    def followed_by(self, later: Self) -> Self:
        """Append the sessions of another panel; checks only the rules that span both.

        Args:
            later: a panel of the same symbols and columns on later sessions.

        Raises:
            BarsError: symbols, columns or sessions do not fit, or a dividend is not less than the close before it.
        """
        if later.symbols != self.symbols or later.columns != self.columns:
            raise BarsError(
                f"bars of {format_names(later.symbols)} with {format_names(later.columns)} cannot follow those of "
                f"{format_names(self.symbols)} with {format_names(self.columns)}; pass the same symbols and columns"
            )
        if later.sessions[0] <= self.sessions[-1]:
            raise BarsError(f"session {later.sessions[0]} cannot follow {self.sessions[-1]}; pass later bars")
        both = {name: np.concatenate([getattr(self, name), getattr(later, name)], axis=1) for name in self.columns}
        panel = self._with_columns(self.symbols, np.concatenate([self.sessions, later.sessions]), both)
        adjustment.check_dividends(panel)
        return panel

    def without_bars(self, session: int) -> Self:
        """A panel of the same symbols and columns without bars on one session (yyyymmdd)."""
        nothing = np.full((len(self.symbols), 1), np.nan)
        sessions = checks.freeze_sessions(np.array([session]), self.symbols)
        return self._with_columns(self.symbols, sessions, dict.fromkeys(self.columns, nothing))

    def with_bars(self, later: Self, rows: IndexArray) -> Self:
        """Replace the bars of some symbols.

        Args:
            later: the new bars of P symbols, with the same sessions and columns.
            rows: [P] indices of these symbols.
        """
        columns = {name: np.copy(getattr(self, name)) for name in self.columns}
        for name, values in columns.items():
            values[rows] = getattr(later, name)
        return self._with_columns(self.symbols, self.sessions, columns)

    def without_sessions(self, sessions: Sequence[int]) -> Self:
        """The panel without these sessions, yyyymmdd; the panel itself if nothing is removed."""
        is_kept = ~np.isin(self.sessions, sessions)
        return self if is_kept.all() else self._select(slice(None), is_kept, self.symbols)

    def without_cells(self, cells: BoolArray) -> Self:
        """The panel without the bars in these cells, [S, T]; the panel itself if there are none."""
        if not cells.any():
            return self
        columns = {name: np.where(cells, np.nan, getattr(self, name)) for name in self.columns}
        return self._with_columns(self.symbols, self.sessions, columns)

    def without_volumes(self, cells: BoolArray) -> Self:
        """The panel with unknown volumes in these cells, [S, T]; the panel itself if there are none."""
        if not cells.any():
            return self
        return self._with_columns(self.symbols, self.sessions, {"volume": np.where(cells, np.nan, self.volume)})

    def _select(self, rows: list[int] | slice, columns: slice | BoolArray, symbols: tuple[str, ...]) -> Self:
        """Select rows and columns without validating them again; a period of mapped columns stays mapped."""
        arrays = {name: getattr(self, name)[rows, columns] for name in self.columns}
        if not isinstance(arrays["close"], np.memmap):
            arrays = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
        return self._with_columns(symbols, self.sessions[columns], arrays)

    def with_columns(self, columns: Mapping[str, FloatArray]) -> Self:
        """The panel with its columns in other memory, such as a mapped file; their values must be the same."""
        return self._with_columns(self.symbols, self.sessions, columns)

    def _with_columns(
        self, symbols: tuple[str, ...], sessions: NDArray[np.int32], columns: Mapping[str, FloatArray]
    ) -> Self:
        """Create a panel from valid bars without checks; calendar and currency stay the same."""
        panel = object.__new__(type(self))
        for field in fields(self):
            object.__setattr__(panel, field.name, getattr(self, field.name))
        for name, values in (("sessions", sessions), *columns.items()):
            values.setflags(write=False)
            object.__setattr__(panel, name, values)
        object.__setattr__(panel, "symbols", symbols)
        return panel

    def adjusted(self) -> AdjustedBars:
        """Adjust the bars for splits and dividends; see `predictor.bars.adjustment`.

        Raises:
            BarsError: splits, dividends or volume take a bar beyond the range of a double.
        """
        return adjustment.adjust(self)

    def adjusted_blocks(self) -> Iterator[tuple[slice, AdjustedBars]]:
        """The adjusted bars of a few symbols at a time, each with their rows: those of all would take more memory."""
        for rows, block in self.blocks(SYMBOLS_AT_ONCE):
            yield rows, block.adjusted()

    def blocks(self, most: int) -> Iterator[tuple[slice, Self]]:
        """Panels of at most `most` symbols, each with their rows; the panel itself if it has no more."""
        if len(self.symbols) <= most:
            yield slice(0, most), self
            return
        for first in range(0, len(self.symbols), most):
            rows = slice(first, first + most)
            yield rows, self.rows(rows)

    def adjusted_each(self) -> tuple[AdjustedBars, Mapping[int, BarsError]]:
        """As `adjusted`, but a symbol that cannot be adjusted gets no bars, and its row an error."""
        return adjustment.adjust_each(self)

    def suspicious_jumps(self, explained: Collection[tuple[str, int]] = ()) -> PriceJumps:
        """Find price jumps that may be unrecorded splits, or, with adjusted closes, wrong closes.

        They are only reported: the bars stay unchanged. Those of the explained symbols and sessions are left out.
        """
        return PriceJumps.join([find_jumps(block, explained) for _, block in self.blocks(JUDGED_AT_ONCE)])

    def unexplained_jumps(self) -> PriceJumps:
        """Find price jumps of the last session that remain after the adjustment."""
        adjusted, _ = self.adjusted_each()
        return find_last_jumps(self.symbols, self.sessions, adjusted.open, adjusted.close)


def _find_errors(make: Callable[[tables.BarTable], object], table: tables.BarTable) -> dict[str, BarsError]:
    """The error of each symbol whose bars do not form a panel; ends early if most symbols have one."""
    errors: dict[str, BarsError] = {}
    for first in range(0, len(table.symbols), SYMBOLS_AT_ONCE):
        block = range(first, min(first + SYMBOLS_AT_ONCE, len(table.symbols)))
        if _catch_error(make, table.select(block)) is None:
            continue
        for row in block:
            if (error := _catch_error(make, table.select([row]))) is not None:
                errors[table.symbols[row]] = error
        if 2 * len(errors) > len(table.symbols):
            break
    return errors


def _catch_error(make: Callable[[tables.BarTable], object], table: tables.BarTable) -> BarsError | None:
    try:
        make(table)
    except BarsError as error:
        return error
    return None
