"""The tables of a ledger, and the conversion between records and rows."""

import json
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeVar

import numpy as np

from predictor.arrays import FloatArray
from predictor.canonical import Json
from predictor.evidence import Lamp
from predictor.ledger.records import (
    ClientRequest,
    EvidenceRecord,
    ForecastRecord,
    ForecastRole,
    Label,
    LabelStatus,
    LedgerEvent,
    LedgerRecord,
    Score,
)

APPLICATION_ID: Final = 0x51424C47
"""Marks a ledger: "QBLG"."""
VERSION: Final = 4

TABLES: Final = ("universe", "bar", "forecast", "label", "score", "evidence", "event", "request")
"""The chained tables, in the order in which a batch's rows are hashed."""
STORED_AS_GIVEN: Final = ("forecast", "request")
"""Tables whose stored values equal the given ones, also in type."""

_DEFINITIONS: Final = """
create table ledger (id text not null, created_at integer not null);
create table chain (
    batch integer primary key, made_at integer not null, rows integer not null, previous blob not null,
    hash blob not null);
create table universe (
    id integer primary key, batch integer not null, calendar text not null, currency text not null,
    columns text not null);
create table bar (
    id integer primary key, batch integer not null, source text not null, symbol text not null,
    first_session integer not null, last_session integer not null, sessions blob not null, bars blob not null);
create index bar_by_session on bar (last_session, symbol);
create table forecast (
    id integer primary key, batch integer not null, forecast_id text not null, symbol text not null,
    role text not null, model text not null, version integer not null, weights_hash text not null,
    engine text not null, batch_rows integer not null, as_of integer not null, base_session integer not null,
    target_kind text not null, horizons text not null, target_sessions text not null, quantiles text not null,
    "values" blob not null, anchor real, bars_batch integer not null, made_at integer not null, regime text not null,
    is_prospective integer not null, unique (forecast_id, symbol, role));
create unique index forecast_of_day on forecast (symbol, as_of, model, version) where role <> 'client';
create index forecast_by_day on forecast (as_of, model);
create table label (
    id integer primary key, batch integer not null, forecast integer not null references forecast (id),
    horizon integer not null, session integer not null, revision integer not null, status text not null, value real,
    reason text not null, bars_batch integer not null, unique (forecast, horizon, revision));
create index label_by_session on label (session);
create table score (
    id integer primary key, batch integer not null, forecast integer not null references forecast (id),
    horizon integer not null, revision integer not null, pinball real not null, below text not null,
    is_inside integer not null, pit real not null, unique (forecast, horizon, revision));
create table evidence (
    id integer primary key, batch integer not null, model text not null, version integer not null,
    monitor text not null, horizon integer not null, session integer not null, lamp text not null, state text not null,
    unique (model, version, monitor, horizon, session));
create table event (
    id integer primary key, batch integer not null, kind text not null, model text not null, version integer not null,
    session integer not null, reason text not null, detail text not null, key text not null);
create unique index event_by_key on event (key) where key <> '';
create table request (
    id integer primary key, batch integer not null, forecast_id text not null, asked_at integer not null,
    caller text not null, calls integer not null);
"""
"""`target_sessions` has ten characters per horizon: "[20130103, 20130104]"."""


def list_definitions() -> list[str]:
    """The statements that create the tables and indexes."""
    return [statement for statement in _DEFINITIONS.split(";") if statement.strip()]


LedgerRow = sqlite3.Row | Mapping[str, Any]
"""A row whose columns have names, from either database's driver."""


TABLE_OF: Final[Mapping[type[LedgerRecord], str]] = {
    ForecastRecord: "forecast",
    Label: "label",
    Score: "score",
    EvidenceRecord: "evidence",
    LedgerEvent: "event",
    ClientRequest: "request",
}
_NOT_STORED: Final = ("number",)
"""Fields whose column has another name."""


@lru_cache
def list_columns(kind: type[LedgerRecord]) -> tuple[str, ...]:
    """The columns that a record's fields are stored in."""
    return tuple(field.name for field in fields(kind) if field.name not in _NOT_STORED)


def encode_row(record: LedgerRecord) -> list[Any]:
    """The record's values in the order of `list_columns`."""
    read, writers = _make_encoding(type(record))
    values = list(read(record))
    for column, write in writers:
        values[column] = write(values[column])
    return values


@lru_cache
def _make_encoding(
    kind: type[LedgerRecord],
) -> tuple[Callable[[Any], Any], tuple[tuple[int, Callable[[Any], object]], ...]]:
    """What reads a record's values, and what encodes the values at some places."""
    columns = list_columns(kind)
    return attrgetter(*columns), tuple((k, _WRITERS[name]) for k, name in enumerate(columns) if name in _WRITERS)


@lru_cache(maxsize=1024)
def _list_text(numbers: tuple[float, ...]) -> str:
    """The same few lists occur in most forecasts."""
    return json.dumps(numbers, allow_nan=False)


def _encode_json(value: Mapping[str, Json]) -> str:
    return json.dumps(dict(value), allow_nan=False, sort_keys=True)


def _encode_matrix(matrix: FloatArray) -> bytes:
    return matrix.astype("<f8", copy=False).tobytes()


def _replace_nan(price: float | None) -> float | None:
    """A database stores NaN as NULL."""
    return None if price is None or math.isnan(price) else float(price)


_WRITERS: Final[Mapping[str, Callable[[Any], object]]] = {
    "role": str.__str__,
    "status": str.__str__,
    "lamp": str.__str__,
    "horizons": _list_text,
    "target_sessions": _list_text,
    "quantiles": _list_text,
    "values": _encode_matrix,
    "anchor": _replace_nan,
    "state": _encode_json,
    "detail": _encode_json,
    "is_prospective": int,
    "is_inside": int,
}
"""Encoders of the columns that are stored as another type."""


def _parse_numbers(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


_READERS: Final[Mapping[str, Callable[[Any], object]]] = {
    "role": ForecastRole,
    "status": LabelStatus,
    "lamp": Lamp,
    "horizons": _parse_numbers,
    "target_sessions": _parse_numbers,
    "quantiles": _parse_numbers,
    "state": json.loads,
    "detail": json.loads,
    "is_prospective": bool,
    "is_inside": bool,
}
"""Decoders of the columns that are stored as another type."""

RecordT = TypeVar("RecordT", ForecastRecord, Label, Score, EvidenceRecord, LedgerEvent, ClientRequest)


def record_of(kind: type[RecordT], row: LedgerRow) -> RecordT:
    """Build a record from a row of its table."""
    values: dict[str, Any] = {}
    for name in list_columns(kind):
        value = row[name]
        values[name] = _READERS[name](value) if name in _READERS else value
    if kind is ForecastRecord:
        values["number"] = row["id"]
        values["values"] = decode_matrix(row["values"], len(values["quantiles"]))
    return kind(**values)


def decode_matrix(data: bytes, columns: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Decode a stored float64 matrix with this number of columns."""
    return np.frombuffer(data, "<f8").reshape(-1, columns)


def encode_rows(rows: Sequence[tuple[Any, ...]]) -> tuple[str, bytes]:
    """Rows as text for their hash, in which each blob is replaced by its size, and the blobs one after another."""
    blobs: list[bytes] = []

    def take(blob: bytes) -> int:
        blobs.append(blob)
        return len(blob)

    return json.JSONEncoder(ensure_ascii=False, default=take).encode(rows), b"".join(blobs)
