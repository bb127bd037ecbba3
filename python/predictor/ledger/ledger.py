"""`Ledger`: the public interface of a ledger."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self, final

import numpy as np

from predictor.arrays import BoolArray, FloatArray, IntArray
from predictor.bars import BarPanel
from predictor.bars.source import DatabaseAddress, is_address
from predictor.dates import LATEST, DateLike, parse_date_number
from predictor.errors import BarsError, ConfigurationError, LedgerError, MissingPackageError, format_date, format_names
from predictor.ledger import schema
from predictor.ledger.records import ForecastRecord, LedgerRecord, are_scorable
from predictor.ledger.schema import LedgerRow, RecordT, decode_matrix, record_of
from predictor.ledger.sqlite_store import SqliteStore
from predictor.ledger.store import LedgerStore, OpenBatch, Receipt, Verification

if TYPE_CHECKING:
    import pandas as pd

SESSION_COLUMNS: Final = frozenset({"as_of", "session"})
TIME_COLUMNS: Final = frozenset({"made_at", "asked_at"})
_MIN_COMMON_SHARE: Final = 0.5
"""Share of the symbols of the last session that further bars must have."""


_SAME_FACTOR: Final = 1e-4
"""Larger relative changes of adj_close / close are not rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarsAdded:
    """What new bars changed in a ledger."""

    batch: int
    """The ledger's last batch, at which the bars can be read."""
    new: int
    """Bars that the ledger did not have."""
    revised: int
    """Bars with other values than the recorded ones."""


@dataclass(slots=True)
class KnownBars:
    """The bars that a caller of `Ledger.extended_panel` has read so far."""

    row: int = 0
    """The last row."""
    bars: dict[str, tuple[IntArray, FloatArray]] = field(default_factory=dict[str, tuple[IntArray, FloatArray]])
    """Sessions [T] and bars [T, C] of each symbol."""


class LedgerTable(StrEnum):
    """The tables that other programs may read."""

    FORECASTS = "forecasts"
    SCORES = "scores"
    EVIDENCE = "evidence"
    EVENTS = "events"
    REQUESTS = "requests"


class _Universe(NamedTuple):
    calendar: str
    currency: str
    columns: tuple[str, ...]


@final
class Ledger:
    """An append-only record of bars, forecasts, outcomes, evidence and events.

    Threads may share a ledger, and several processes may open the same one. Recorded rows are skipped, so you can
    repeat any write. Use it in a `with` block, or call `close`.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store

    @classmethod
    def open(cls, address: str | Path, *, create: bool = False, can_wait: bool = False) -> Self:
        """Open a ledger.

        Args:
            address: a file, or a PostgreSQL database as `postgresql://user@host/database` (extra `postgres`). While a
                file is in use, its folder also has NAME-wal, NAME-shm and NAME.lock.
            create: make a new ledger if the file is missing, or the database has none.
            can_wait: if a database cannot be reached now, log a warning, and connect at the next call.

        Raises:
            LedgerError: the ledger is missing, damaged, from a newer version, or cannot be reached.
            ConfigurationError: the address is malformed, or holds a password.
            MissingPackageError: the extra is not installed.
            OSError: the folder is not writable.
        """
        if not is_address(str(address)):
            return cls(SqliteStore(Path(address), create=create))
        uri = _read_address(str(address))
        try:
            from predictor.ledger.postgres_store import PostgresStore
        except ImportError as error:
            raise MissingPackageError.of("psycopg", "postgres", "a ledger in PostgreSQL") from error
        return cls(PostgresStore(uri, create=create, can_wait=can_wait))

    def close(self) -> None:
        """Close the file or the connection."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The path of the file, or the URI of the database."""
        return self._store.address

    @property
    def id(self) -> str:
        """The ledger's random id."""
        return self._store.id

    @property
    def receipt(self) -> Receipt:
        """The last batch and its hash."""
        return self._store.receipt

    def claim_run(self) -> AbstractContextManager[str]:
        """Let only one process run evenings in the block; yields an empty string, or the process that already does."""
        return self._store.claim_run()

    def verify(self, receipt: Receipt | None = None) -> Verification:
        """Check every row against the chain, and with a receipt that no later batch was cut off."""
        return self._store.verify(receipt)

    def append(self, records: Iterable[LedgerRecord]) -> int:
        """Record forecasts, labels, scores, evidence and events in one batch: all of them or none.

        Returns:
            The number of new rows; recorded ones are skipped.

        Raises:
            LedgerError: the disk is full, the ledger is damaged, or a forecast could never be scored.
        """
        with self._store.batch() as batch:
            for kind, group in groupby(records, type):
                if kind is ForecastRecord:
                    forecasts = [record for record in group if isinstance(record, ForecastRecord)]
                    wrong = (
                        None
                        if are_scorable(forecasts)
                        else next((forecast for forecast in forecasts if forecast.problem), None)
                    )
                    if wrong is not None:
                        raise LedgerError(
                            f"{self.address}: the forecast of {wrong.symbol} by {wrong.model}@{wrong.version} on "
                            f"{format_date(wrong.as_of)} is not recorded: {wrong.problem}",
                            metadata={"file": self.address},
                        )
                    newest = self._store.read_number("select max(last_session) from bar")
                    columns = schema.list_columns(ForecastRecord)
                    column = columns.index("is_prospective")
                    rows = [schema.encode_row(forecast) for forecast in forecasts]
                    for row, forecast in zip(rows, forecasts, strict=True):  # were its later bars known already?
                        row[column] = int(forecast.as_of >= newest)
                    batch.add(schema.TABLE_OF[ForecastRecord], columns, rows)
                else:
                    batch.add(schema.TABLE_OF[kind], schema.list_columns(kind), map(schema.encode_row, group))
        return batch.rows

    def records(self, kind: type[RecordT], condition: str = "true", values: Sequence[object] = ()) -> list[RecordT]:
        """Read the records of a kind in the order in which they were written.

        Args:
            kind: such as `ForecastRecord`.
            condition: a SQL condition on the table's columns, such as `model = ? and role = any(?)`.
            values: the values for its placeholders; a list for `any`.
        """
        table = schema.TABLE_OF[kind]
        rows = self._store.rows(f"select * from {table} where {condition} order by id", values)  # noqa: S608
        return [record_of(kind, row) for row in rows]

    def query(self, statement: str, values: Sequence[object] = ()) -> Sequence[LedgerRow]:
        """The rows of a SELECT on the tables of the ledger, such as `bar`, `forecast` and `event`."""
        return self._store.rows(statement, values)

    def numbers(self, statement: str, values: Sequence[object] = ()) -> FloatArray:
        """[N, C] the rows of a SELECT of C numbers, whose columns need no names."""
        names, rows = self._store.table(statement, values)
        return np.array(rows, np.float64).reshape(-1, len(names))

    # --- bars

    def add_bars(self, panel: BarPanel, *, source: str = "") -> BarsAdded:
        """Record the bars that are new or differ from the recorded ones; a revised bar keeps its older versions.

        Recorded bars that the panel lacks stay.

        Args:
            panel: with its whole history if it has a column adj_close, because a dividend changes all of it.
            source: where the bars come from, for information.

        Raises:
            LedgerError: the panel has other columns, another calendar or currency, or lacks more than half of the
                ledger's symbols; or it has only later sessions, and its adj_close does not continue the recorded one.
        """
        with self._store.batch() as batch:
            self._check_universe(batch, panel)
            known = self._read_bars(panel.symbols, int(panel.sessions[0]), int(panel.sessions[-1]), batch.number)
            new_values = np.stack([getattr(panel, name) for name in panel.columns], axis=-1)
            stored_values = _align_bars(known, panel)
            self._check_adjustment(panel, new_values, stored_values)
            same = (new_values == stored_values) | (np.isnan(new_values) & np.isnan(stored_values))
            changed = panel.present & ~same.all(axis=-1)
            revised = int((changed & ~np.isnan(stored_values[..., panel.columns.index("close")])).sum())
            columns = ("source", "symbol", "first_session", "last_session", "sessions", "bars")
            rows = (
                (source, *_make_bar_row(panel, new_values, changed, row))
                for row in np.flatnonzero(changed.any(axis=1)).tolist()
            )
            batch.add("bar", columns, rows)
        return BarsAdded(batch=self.receipt.batch, new=int(changed.sum()) - revised, revised=revised)

    def panel(
        self,
        symbols: Sequence[str] | None = None,
        *,
        first: DateLike = 0,
        last: DateLike = LATEST,
        batch: int | None = None,
    ) -> BarPanel:
        """Read the bars that were known at a batch.

        Args:
            symbols: by default all, sorted.
            first: the first session, a date, an ISO string or yyyymmdd.
            last: the last session.
            batch: the batch, such as a forecast's `bars_batch`; by default the last one.

        Raises:
            BarsError: the ledger has no bars of a symbol, or of this span.
        """
        universe = self._read_universe()
        low, high = (parse_date_number(day) if day else 0 for day in (first, last))
        known = self._read_bars(symbols, low, high, self.receipt.batch if batch is None else batch)
        names = tuple(sorted(known)) if symbols is None else tuple(symbols)
        missing = [name for name in names if name not in known]
        if universe is None or missing or not known:
            span = f"from {format_date(low)} to {format_date(high)}"
            raise BarsError(f"{self.address}: the ledger has no bars of {format_names(missing) or 'any symbol'} {span}")
        return _build_panel(universe, known, names)

    def extended_panel(self, known: "KnownBars", *, last: int) -> BarPanel:
        """The same as `panel(last=last)`, but reads only the rows that were added since the last call.

        Args:
            known: what earlier calls have read; this call adds to it.
            last: the last session, yyyymmdd.
        """
        universe = self._read_universe()
        rows = self._store.rows("select id, symbol, sessions, bars from bar where id > ? order by id", (known.row,))
        for symbol, parts in _read_blocks(rows, universe).items():
            known.bars[symbol] = _select_newest_bars([known.bars[symbol], *parts] if symbol in known.bars else parts)
        known.row = rows[-1]["id"] if rows else known.row
        ends = {symbol: int(np.searchsorted(days, last, "right")) for symbol, (days, _) in known.bars.items()}
        past = {symbol: (days[: ends[symbol]], bars[: ends[symbol]]) for symbol, (days, bars) in known.bars.items()}
        names = tuple(sorted(symbol for symbol, end in ends.items() if end))
        if universe is None or not names:
            raise BarsError(f"{self.address}: the ledger has no bars until {format_date(last)}")
        return _build_panel(universe, past, names)

    @property
    def last_session(self) -> int:
        """The newest session with a bar, yyyymmdd; 0 without bars."""
        rows = self._store.rows("select max(last_session) as newest from bar")
        return int(rows[0]["newest"] or 0)

    def _read_universe(self) -> _Universe | None:
        rows = self._store.rows("select calendar, currency, columns from universe order by id desc limit 1")
        return (
            _Universe(rows[0]["calendar"], rows[0]["currency"], tuple(json.loads(rows[0]["columns"]))) if rows else None
        )

    def _check_universe(self, batch: OpenBatch, panel: BarPanel) -> None:
        """Refuse bars of another universe; the first bars of a ledger define its universe."""
        base = self._read_universe()
        universe = _Universe(panel.calendar, panel.currency, panel.columns)
        if base is not None:
            for name, ours, theirs in zip(("calendar", "currency"), base, universe, strict=False):
                if ours and theirs and ours != theirs:
                    self._refuse(f"the {name} is {theirs}, but that of the ledger is {ours}")
            if base.columns != universe.columns:
                self._refuse(
                    f"the columns are {', '.join(universe.columns)}, but the ledger has {', '.join(base.columns)}"
                )
            newest = self._store.rows(
                "select distinct symbol from bar where last_session = (select max(last_session) from bar)"
            )
            expected = {str(row["symbol"]) for row in newest}
            lost = sorted(expected.difference(panel.symbols))
            if len(lost) > _MIN_COMMON_SHARE * len(expected):
                self._refuse(f"{len(lost)} of the ledger's {len(expected)} symbols are missing: {format_names(lost)}")
            universe = _Universe(base.calendar or universe.calendar, base.currency or universe.currency, base.columns)
        if base != universe:
            row = (universe.calendar, universe.currency, json.dumps(universe.columns))
            batch.add("universe", ("calendar", "currency", "columns"), [row])

    def _check_adjustment(self, panel: BarPanel, new_values: FloatArray, stored_values: FloatArray) -> None:
        """Refuse a part of the history whose adjusted closes [S, T, C] do not continue the earlier, recorded ones."""
        first = int(panel.sessions[0])
        if "adj_close" not in panel.columns:
            return
        earlier = self._store.rows("select distinct symbol from bar where first_session < ?", (first,))
        has_earlier = np.isin(panel.symbols, [str(row["symbol"]) for row in earlier])
        adjusted, close = (panel.columns.index(name) for name in ("adj_close", "close"))
        factors = new_values[..., adjusted] / new_values[..., close]
        stored_factors = stored_values[..., adjusted] / stored_values[..., close]
        changes = np.abs(factors / stored_factors - 1)
        is_changed = has_earlier & (np.isfinite(changes) & (changes > _SAME_FACTOR)).any(axis=1)
        is_unknown = has_earlier & panel.present.any(axis=1) & ~np.isfinite(changes).any(axis=1)
        is_wrong = is_changed if is_changed.any() else is_unknown
        if not is_wrong.any():
            return
        names = format_names([panel.symbols[row] for row in np.flatnonzero(is_wrong)])
        problem = f"those of {names} have changed"
        if not is_changed.any():
            problem = f"the ledger does not have these bars of {names}"
        raise LedgerError(
            f"{self.address}: the bars begin on {format_date(first)}, after those of the ledger, so their adjusted "
            f"closes must continue it, but {problem}; give the whole history, because a dividend or split changes all "
            "of it",
            metadata={"file": self.address},
        )

    def _refuse(self, problem: str) -> None:
        raise LedgerError(
            f"{self.address}: the bars are of another universe: {problem}; give bars of the ledger's universe, or use "
            "another ledger",
            metadata={"file": self.address},
        )

    def _read_bars(
        self, symbols: Sequence[str] | None, first: int, last: int, batch: int
    ) -> Mapping[str, tuple[IntArray, FloatArray]]:
        """Sessions [T] and bars [T, C] of each symbol at a batch, from the versions of its bars, the newest last."""
        universe = self._read_universe()
        symbol_condition = "" if symbols is None else "and symbol = any(?)"
        query = (
            "select symbol, sessions, bars from bar "  # noqa: S608 - no value is in the text
            f"where last_session >= ? and first_session <= ? and batch <= ? {symbol_condition} order by id"
        )
        values = (first, last, batch) if symbols is None else (first, last, batch, list(symbols))
        blocks = _read_blocks(self._store.rows(query, values), universe)
        newest_bars = {symbol: _select_newest_bars(parts, first, last) for symbol, parts in blocks.items()}
        return {symbol: bars for symbol, bars in newest_bars.items() if bars[0].size}

    # --- tables

    def forecasts(self, *, model: str = "", symbol: str = "", since: DateLike = 0) -> "pd.DataFrame":
        """One row per forecast and horizon, with a column per quantile, such as `q0.1`; needs pandas.

        Args:
            model: only of this model.
            symbol: only of this symbol.
            since: only with bars up to this day or later.
        """
        return make_frame(self.columns(LedgerTable.FORECASTS, model=model, symbol=symbol, since=since))

    def scores(self, *, model: str = "", symbol: str = "", since: DateLike = 0) -> "pd.DataFrame":
        """One row per label, with its forecast's facts and its score; arguments as in `forecasts`."""
        return make_frame(self.columns(LedgerTable.SCORES, model=model, symbol=symbol, since=since))

    def evidence(self, *, model: str = "") -> "pd.DataFrame":
        """One row per monitor, horizon and session; `state` is JSON."""
        return make_frame(self.columns(LedgerTable.EVIDENCE, model=model))

    def events(self, *, model: str = "") -> "pd.DataFrame":
        """One row per event, with the time of its batch; `detail` is JSON."""
        return make_frame(self.columns(LedgerTable.EVENTS, model=model))

    def requests(self, *, model: str = "", symbol: str = "", since: DateLike = 0) -> "pd.DataFrame":
        """What clients asked for: one row per caller, symbol and write; arguments as in `forecasts`.

        `calls` counts the calls, and `asked_at` is when the last of them was answered.
        """
        return make_frame(self.columns(LedgerTable.REQUESTS, model=model, symbol=symbol, since=since))

    def columns(
        self, table: LedgerTable, *, model: str = "", symbol: str = "", since: DateLike = 0
    ) -> dict[str, list[object]]:
        """The columns of a table as lists; `as_of` and `session` are yyyymmdd, times nanoseconds since 1970.

        Raises:
            ConfigurationError: the table has no symbols and no `as_of`, but is filtered by them.
        """
        if table in (LedgerTable.EVIDENCE, LedgerTable.EVENTS) and (symbol or since):
            raise ConfigurationError(f"the table {table} has no symbol and no as_of; filter it by model only")
        conditions = {"model = ?": model, "symbol = ?": symbol, "as_of >= ?": parse_date_number(since) if since else 0}
        filters = {condition: value for condition, value in conditions.items() if value}
        condition = " and ".join(filters) or "true"
        if table is LedgerTable.FORECASTS:
            return list_forecast_columns(self.records(ForecastRecord, condition, list(filters.values())))
        names, rows = self._store.table(_QUERIES[table].format(condition), list(filters.values()))
        return {name: [row[k] for row in rows] for k, name in enumerate(names)}


_QUERIES: Final[Mapping[LedgerTable, str]] = {
    LedgerTable.SCORES: (
        "select f.id as forecast, f.forecast_id, f.model, f.version, f.role, f.symbol, f.as_of, l.horizon, l.session, "
        "l.revision, l.status, l.reason, l.value, s.pinball, s.below, s.is_inside, s.pit, f.is_prospective "
        "from label l join forecast f on f.id = l.forecast left join score s "
        "on s.forecast = l.forecast and s.horizon = l.horizon and s.revision = l.revision where {} order by l.id"
    ),
    LedgerTable.EVIDENCE: (
        "select model, version, monitor, horizon, session, lamp, state from evidence where {} order by id"
    ),
    LedgerTable.EVENTS: (
        "select e.batch, c.made_at, e.kind, e.model, e.version, e.session, e.reason, e.detail, e.key "
        "from event e join chain c on c.batch = e.batch where {} order by e.id"
    ),
    LedgerTable.REQUESTS: (
        "select r.forecast_id, r.asked_at, r.caller, r.calls, f.model, f.version, f.symbol, f.as_of from request r "
        "left join forecast f on f.forecast_id = r.forecast_id and f.role = 'client' where {} order by r.id"
    ),
}


def list_forecast_columns(forecasts: Sequence[ForecastRecord]) -> dict[str, list[object]]:
    """One row per forecast and horizon, with a column per quantile."""
    rows = [(forecast, h) for forecast in forecasts for h in range(len(forecast.horizons))]
    columns: dict[str, list[object]] = {
        "forecast": [forecast.number for forecast, _ in rows],
        "forecast_id": [forecast.forecast_id for forecast, _ in rows],
        "model": [forecast.model for forecast, _ in rows],
        "version": [forecast.version for forecast, _ in rows],
        "role": [forecast.role.value for forecast, _ in rows],
        "symbol": [forecast.symbol for forecast, _ in rows],
        "as_of": [forecast.as_of for forecast, _ in rows],
        "horizon": [forecast.horizons[h] for forecast, h in rows],
        "session": [forecast.target_sessions[h] for forecast, h in rows],
        "anchor": [forecast.anchor for forecast, _ in rows],
        "target_kind": [forecast.target_kind for forecast, _ in rows],
        "is_prospective": [forecast.is_prospective for forecast, _ in rows],
    }
    for level in sorted({level for forecast in forecasts for level in forecast.quantiles}):
        columns[f"q{level:g}"] = [
            float(forecast.values[h, forecast.quantiles.index(level)]) if level in forecast.quantiles else None  # noqa: PD011
            for forecast, h in rows
        ]
    return columns


def make_frame(columns: Mapping[str, Sequence[object]]) -> "pd.DataFrame":
    """A DataFrame of pandas, in which sessions are days and times are in UTC."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingPackageError.of("pandas", "pandas", "a table of a ledger as a DataFrame") from error
    frame = pd.DataFrame(columns)
    for name in SESSION_COLUMNS & columns.keys():
        frame[name] = pd.to_datetime(frame[name].astype(str), format="%Y%m%d", errors="coerce")
    for name in TIME_COLUMNS & columns.keys():
        frame[name] = pd.to_datetime(frame[name], unit="ns", utc=True)
    return frame


def _read_address(address: str) -> str:
    """The URI with the usual scheme; one that is malformed, of another database, or with a password is refused."""
    scheme = address.partition(":")[0]
    if scheme.lower() not in {"postgresql", "postgres"}:
        raise ConfigurationError(
            f"the ledger's address begins with {scheme}://, but a ledger is a file or in PostgreSQL; give the "
            "path of a file, or postgresql://user@host/database"
        )
    parsed = DatabaseAddress.parse(address, "the ledger's address")
    if parsed.passwords:
        raise ConfigurationError(
            "the ledger's address holds a password, and other users can see a command line; leave it out, and put it "
            "into the environment variable PGPASSWORD or the file ~/.pgpass"
        )
    return parsed.uri


def _read_blocks(rows: Sequence[LedgerRow], universe: _Universe | None) -> dict[str, list[tuple[IntArray, FloatArray]]]:
    """The written bars of each symbol, in their order."""
    blocks: dict[str, list[tuple[IntArray, FloatArray]]] = {}
    if universe is None:
        return blocks
    for row in rows:
        block = np.frombuffer(row["sessions"], "<i4"), decode_matrix(row["bars"], len(universe.columns))
        blocks.setdefault(row["symbol"], []).append(block)
    return blocks


def _build_panel(
    universe: _Universe, known: Mapping[str, tuple[IntArray, FloatArray]], names: tuple[str, ...]
) -> BarPanel:
    """A panel of the named symbols from their known bars."""
    sessions = np.unique(np.concatenate([known[name][0] for name in names]))
    cube = np.full((len(names), sessions.size, len(universe.columns)), np.nan)
    for row, name in enumerate(names):
        days, bars = known[name]
        cube[row, np.searchsorted(sessions, days)] = bars
    columns = {name: cube[..., k] for k, name in enumerate(universe.columns)}
    return BarPanel(symbols=names, sessions=sessions, calendar=universe.calendar, currency=universe.currency, **columns)


def _select_newest_bars(
    parts: Sequence[tuple[IntArray, FloatArray]], first: int = 0, last: int = LATEST
) -> tuple[IntArray, FloatArray]:
    """The newest version of each bar of one symbol, by session."""
    sessions = np.concatenate([days for days, _ in parts])
    days, places = np.unique(sessions[::-1], return_index=True)
    bars = np.concatenate([values for _, values in parts])[sessions.size - 1 - places]
    inside = (days >= first) & (days <= last)
    return days[inside], bars[inside]


def _align_bars(known: Mapping[str, tuple[IntArray, FloatArray]], panel: BarPanel) -> FloatArray:
    """The known bars [S, T, C] on the axes of a panel; NaN without a bar."""
    before = np.full((len(panel.symbols), panel.sessions.size, len(panel.columns)), np.nan)
    for row, symbol in enumerate(panel.symbols):
        if symbol in known:
            days, bars = known[symbol]
            shared = np.isin(days, panel.sessions)
            before[row, np.searchsorted(panel.sessions, days[shared])] = bars[shared]
    return before


def _make_bar_row(panel: BarPanel, new_values: FloatArray, changed: BoolArray, row: int) -> tuple[object, ...]:
    """The changed bars of one symbol as a row of the table `bar`."""
    sessions, bars = panel.sessions[changed[row]], new_values[row, changed[row]]
    days = sessions.astype("<i4").tobytes()
    return panel.symbols[row], int(sessions[0]), int(sessions[-1]), days, bars.astype("<f8").tobytes()
