"""A panel of daily bars: 1 to S symbols on one axis of sessions, checked when it is made and never changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray, IndexArray
from predictor.bars import adjustment, checks, frames, tables
from predictor.bars.adjustment import AdjustedBars, PriceJumps, find_jumps
from predictor.bars.frames import Frame
from predictor.dates import Day, day_number
from predictor.errors import BarsError, listed, shown_date

PRICE_FIELDS: Final = ("open", "high", "low", "close", "volume")
OPTIONAL_FIELDS: Final = ("adj_close", "split_ratio", "cash_dividend")


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class BarPanel:
    """Raw daily bars. The arrays are copied and locked, so a panel never changes.

    Attributes:
        symbols: S unique names.
        sessions: int32 [T], yyyymmdd, oldest first.
        open: float64 [S, T], as are all the following; NaN in all fields of a bar = no bar that day.
        high: The day's highest price.
        low: The day's lowest price.
        close: The day's last price.
        volume: Shares traded, 0 or more.
        adj_close: Close adjusted for splits and dividends, on any scale; never beside the two following.
        split_ratio: 3.0 where 3 new shares replace an old one at that day's open; 1 or NaN = none.
        cash_dividend: Quote currency for one share of the ex-date; 0 or NaN = none.
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
        """Copy, lock and check."""
        checks.check_symbols(self.symbols)
        checks.check_label("calendar", self.calendar)
        checks.check_label("currency", self.currency)
        object.__setattr__(self, "sessions", checks.frozen_sessions(self.sessions, self.symbols))
        self._freeze_columns()
        self._check_bars()
        self._check_splits()
        adjustment.check_dividends(self)

    def _freeze_columns(self) -> None:
        if self.adj_close is not None and (self.split_ratio is not None or self.cash_dividend is not None):
            raise BarsError("give adj_close, or split_ratio and cash_dividend, but not both: they may disagree")
        shape = (len(self.symbols), self.sessions.size)
        for name in (*PRICE_FIELDS, *OPTIONAL_FIELDS):
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, checks.frozen_column(name, values, shape))

    def _check_bars(self) -> None:
        columns = {name: getattr(self, name) for name in PRICE_FIELDS}
        if self.adj_close is not None:
            columns["adj_close"] = self.adj_close
        checks.check_bars(self.symbols, self.sessions, columns)

    def _check_splits(self) -> None:
        if self.split_ratio is not None:
            sound = (self.split_ratio > 0) & np.isfinite(self.split_ratio)
            rule = "a split ratio must be positive and finite, 3 for 3:1; 1 or empty for none"
            checks.check_events(self.symbols, self.sessions, "split_ratio", self.split_ratio, sound, rule)

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
        """A panel of one symbol from arrays of shape [T]."""
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
        path: str | Path,
        *,
        calendar: str = "",
        currency: str = "",
        options: tables.ReadingOptions | None = None,
    ) -> Self:
        """Read a file of one row per bar; what was settled about it that one should look at is warned of.

        Columns, in any case: symbol or ticker (optional when there is one: then the file's name in capitals), date,
        open, high, low, close, volume, and adj_close, or split_ratio and cash_dividend; or those of a known layout,
        see `predictor.bars.layouts`. Other columns are ignored. The panel's sessions are all dates of the file; a
        symbol without a row on one of them has no bar there.

        Args:
            path: Text such as CSV, compressed or not, Excel or Parquet; see `predictor.bars.files`.
            calendar: The exchange's code, such as "XNYS".
            currency: The code of the quote currency.
            options: What decides where the file can be read in several ways.

        Raises:
            BarsError: Naming the column, row and value that cannot be read, or the bar that breaks a rule.
            MissingPackageError: Without the extra `data`, or `excel` for Excel's files.
        """
        table = tables.read_table(Path(path), options)
        tables.warn_of(table.warnings, Path(path).name)
        return cls.of_table(table, calendar=calendar, currency=currency)

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
        """The bars of a DataFrame of pandas, polars, pyarrow or what exchanges columns with them; see `read`.

        Args:
            frame: One row per bar, or columns by field and symbol as yfinance gives them; a pandas index of dates
                counts as a column.
            symbol: Whose bars they are, where no column says it.
            calendar: The exchange's code, such as "XNYS".
            currency: The code of the quote currency.
            options: What decides where the frame can be read in several ways.

        Raises:
            BarsError: Naming the column, row and value that cannot be read, or the bar that breaks a rule.
            MissingPackageError: Without the extra `data`.
        """
        table = frames.frame_table(frame, symbol=symbol, options=options)
        tables.warn_of(table.warnings, frames.NAME)
        return cls.of_table(table, calendar=calendar, currency=currency)

    @classmethod
    def of_table(cls, table: tables.BarTable, *, calendar: str = "", currency: str = "") -> Self:
        """The panel of a table's columns.

        Raises:
            BarsError: For the bar that breaks a rule.
        """
        columns = dict(table.columns)
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

    def write_csv(self, path: str | Path) -> None:
        """Write one row per bar: shortest decimals that read back to the same bits, the same text for the same panel.

        The file appears whole or not at all. A symbol without any bar leaves no row.
        """
        columns = {name: getattr(self, name) for name in self.columns}
        table = tables.BarTable(symbols=self.symbols, sessions=self.sessions, columns=columns)
        tables.write_table(table, Path(path))

    @property
    def present(self) -> NDArray[np.bool_]:
        """Where there is a bar, [S, T]."""
        return ~np.isnan(self.close)

    @property
    def without_volume(self) -> tuple[str, ...]:
        """The symbols that have bars, and 0 as the volume of each."""
        if (self.volume[:, -1] > 0).all():
            return ()
        silent = self.present.any(axis=1) & ~np.any(self.volume > 0, axis=1)
        return tuple(self.symbols[row] for row in np.flatnonzero(silent))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that the panel has, those that record adjustments last."""
        return (*PRICE_FIELDS, *(name for name in OPTIONAL_FIELDS if getattr(self, name) is not None))

    @property
    def is_unadjusted(self) -> bool:
        """Whether no column records splits and dividends."""
        return self.adj_close is None and self.split_ratio is None and self.cash_dividend is None

    def __repr__(self) -> str:
        """Symbols, sessions and what is recorded, in one line."""
        span = f"{shown_date(int(self.sessions[0]))} to {shown_date(int(self.sessions[-1]))}"
        return f"<BarPanel: {listed(self.symbols)}; {len(self.sessions)} sessions, {span}; {', '.join(self.columns)}>"

    def select(self, symbols: str | Sequence[str]) -> Self:
        """The panel of these symbols, in this order, or of one.

        Raises:
            BarsError: If one of them is not in the panel, or is named twice.
        """
        symbols = [symbols] if isinstance(symbols, str) else symbols
        places = {symbol: row for row, symbol in enumerate(self.symbols)}
        missing = [symbol for symbol in symbols if symbol not in places]
        if missing:
            raise BarsError(f"no bars of {listed(missing)}; the panel has {listed(self.symbols)}")
        checks.check_symbols(tuple(symbols))
        rows = [places[symbol] for symbol in symbols]
        return self._part(rows, slice(None), tuple(symbols))

    def rows(self, rows: Sequence[int] | slice) -> Self:
        """The panel of the symbols in these places, each once."""
        places = range(len(self.symbols))[rows] if isinstance(rows, slice) else rows
        part = rows if isinstance(rows, slice) else [*rows]
        return self._part(part, slice(None), tuple(self.symbols[place] for place in places))

    def last(self, count: int) -> Self:
        """The panel's last `count` sessions, or all of them where there are fewer."""
        if count < 1:
            raise BarsError(f"a panel needs at least one session, but {count} were asked for")
        if count >= len(self.sessions):
            return self
        return self._part(slice(None), slice(-count, None), self.symbols)

    def until(self, session: Day) -> Self:
        """The sessions up to this one, itself included.

        Args:
            session: a date, an ISO date such as "2012-06-01", or an integer yyyymmdd.

        Raises:
            BarsError: the panel has no session until then, or `session` is not a date.
        """
        return self._between(0, day_number(session))

    def between(self, first: Day, last: Day) -> Self:
        """The sessions from `first` to `last`, both included, each given as for `until`.

        Raises:
            BarsError: the panel has no session between them, or one of them is not a date.
        """
        return self._between(day_number(first), day_number(last))

    def _between(self, first: int, last: int) -> Self:
        begin, end = np.searchsorted(self.sessions, (first, last + 1))
        if begin >= end:
            wanted = f"from {shown_date(first)} " if first else ""
            have = f"{shown_date(int(self.sessions[0]))} to {shown_date(int(self.sessions[-1]))}"
            raise BarsError(f"the panel has no session {wanted}until {shown_date(last)}; it has {have}")
        return self._part(slice(None), slice(int(begin), int(end)), self.symbols)

    def on_sessions(self, sessions: NDArray[np.integer]) -> Self:
        """The panel on a longer axis of sessions; those that it lacks have no bar.

        Args:
            sessions: Integers [T], yyyymmdd, oldest first; the panel's own sessions must be among them.

        Raises:
            BarsError: Naming a session of the panel that the longer axis lacks.
        """
        lost = self.sessions[~np.isin(self.sessions, sessions)]
        if lost.size:
            raise BarsError(f"the longer axis lacks session {lost[0]}, which the panel has")
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
        """The panel with the sessions of another one behind its own; only what spans the two is checked.

        Args:
            later: the same symbols, with the same columns, on later sessions.

        Raises:
            BarsError: it is another panel's, or a dividend of it is not less than the close before.
        """
        self._check_continues(later)
        both = {name: np.concatenate([getattr(self, name), getattr(later, name)], axis=1) for name in self.columns}
        joined = self._like(self.symbols, np.concatenate([self.sessions, later.sessions]), both)
        adjustment.check_dividends(joined)
        return joined

    def without_bars(self, session: int) -> Self:
        """The same symbols and columns on one session (yyyymmdd) without any bar."""
        nothing = np.full((len(self.symbols), 1), np.nan)
        sessions = checks.frozen_sessions(np.array([session]), self.symbols)
        return self._like(self.symbols, sessions, dict.fromkeys(self.columns, nothing))

    def with_bars(self, later: Self, rows: IndexArray) -> Self:
        """The panel with the bars of another one on the same sessions, with the same columns, in the place of its own.

        Args:
            later: P of the symbols.
            rows: [P] their places.
        """
        columns = {name: np.copy(getattr(self, name)) for name in self.columns}
        for name, values in columns.items():
            values[rows] = getattr(later, name)
        return self._like(self.symbols, self.sessions, columns)

    def _check_continues(self, later: Self) -> None:
        if later.symbols != self.symbols or later.columns != self.columns:
            raise BarsError(
                f"bars of {listed(later.symbols)} with {listed(later.columns)} cannot follow those of "
                f"{listed(self.symbols)} with {listed(self.columns)}; give the same symbols and columns"
            )
        if later.sessions[0] <= self.sessions[-1]:
            raise BarsError(f"session {later.sessions[0]} cannot follow {self.sessions[-1]}; give later bars")

    def _part(self, rows: list[int] | slice, columns: slice, symbols: tuple[str, ...]) -> Self:
        """A panel of some rows and columns; they were checked when this panel was made, so not again."""
        cut = {name: np.ascontiguousarray(getattr(self, name)[rows, columns]) for name in self.columns}
        return self._like(symbols, self.sessions[columns], cut)

    def _like(self, symbols: tuple[str, ...], sessions: NDArray[np.int32], columns: Mapping[str, FloatArray]) -> Self:
        """A panel of these columns, which hold bars that were checked already; calendar and currency are this one's."""
        made = object.__new__(type(self))
        for field in fields(self):
            object.__setattr__(made, field.name, getattr(self, field.name))
        for name, values in (("sessions", sessions), *columns.items()):
            values.setflags(write=False)
            object.__setattr__(made, name, values)
        object.__setattr__(made, "symbols", symbols)
        return made

    def adjusted(self) -> AdjustedBars:
        """The bars in the money and the shares of each symbol's last bar; see predictor.bars.adjustment.

        Raises:
            BarsError: naming the first bar that splits, dividends or volume take beyond what a double can hold.
        """
        return adjustment.adjust(self)

    def adjusted_each(self) -> tuple[AdjustedBars, Mapping[int, BarsError]]:
        """The same symbol by symbol: those that cannot be adjusted have no bars, and an error by their row."""
        return adjustment.adjust_each(self)

    def suspicious_jumps(self) -> PriceJumps:
        """Price jumps that may be splits which nobody recorded; none where the panel records its adjustments.

        They are questions for a person: nothing is ever changed because of them.
        """
        if self.adj_close is not None or self.split_ratio is not None:
            return PriceJumps()
        return find_jumps(self.symbols, self.sessions, self.open, self.close)

    def unexplained_jumps(self) -> PriceJumps:
        """Price jumps of the last session that remain after the panel's own splits, dividends or adjusted closes."""
        adjusted, _ = self.adjusted_each()
        return adjustment.find_last_jumps(self.symbols, self.sessions, adjusted.open, adjusted.close)
