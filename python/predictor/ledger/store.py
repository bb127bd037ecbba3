"""A ledger's database, which is written in chained batches by one process at a time."""

import hashlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, final

from predictor.errors import ConfigurationError, LedgerError
from predictor.ledger.schema import STORED_AS_GIVEN, TABLES, LedgerRow, encode_rows

if TYPE_CHECKING:
    import sqlite3

    import psycopg

Cursor: TypeAlias = "sqlite3.Cursor | psycopg.Cursor[Any]"
"""The result of a statement, from either database's driver."""

_MAX_VALUES: Final = 999
"""Values of one statement; every version of SQLite takes as many."""


@final
@dataclass(frozen=True, slots=True)
class Receipt:
    """The number and hash of a ledger's last batch; a kept receipt reveals whether batches were removed later."""

    batch: int
    hash: str

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse `BATCH:HASH`.

        Raises:
            ConfigurationError: the text has another form.
        """
        batch, _, digest = text.partition(":")
        is_hash = len(digest) == _HASH_DIGITS and not set(digest.lower()) - set("0123456789abcdef")
        if not (batch.isdecimal() and is_hash):
            raise ConfigurationError(f"receipt {text!r} is not BATCH:HASH; copy what `quantra ledger verify` printed")
        return cls(int(batch), digest.lower())

    def __str__(self) -> str:
        return f"{self.batch}:{self.hash}"


_HASH_DIGITS: Final = 64
_PART: Final = 100
"""Rows that are hashed together."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of checking every row of a ledger."""

    receipt: Receipt
    """The last batch whose hash is right."""
    rows: int
    """Rows up to there."""
    problem: str
    """What is wrong, with the batch; empty if all is right."""


class LedgerStore(ABC):
    """An open ledger. Threads may share it; each process opens its own.

    Statements are written once for both databases: with `?` for a value, and `= any(?)` for a list of values.

    Args:
        address: the path of the file, or the database's address.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._thread_lock = threading.RLock()

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def execute(self, statement: str, values: Sequence[object] = (), *, by_name: bool = False) -> Cursor:
        """Run a statement within `_use_connection` or `_begin_transaction`; its rows are tuples, or have names."""

    @abstractmethod
    def _use_connection(self) -> AbstractContextManager[None]:
        """Let no other thread use the connection, and turn the driver's errors into LedgerError."""

    @abstractmethod
    def _begin_transaction(self) -> AbstractContextManager[None]:
        """Write what the block writes, or nothing after an error, while no other process writes.

        Raises:
            LedgerError: the ledger cannot be written.
            OSError: another process holds the lock for 10 seconds.
        """

    @abstractmethod
    def _begin_snapshot(self) -> AbstractContextManager[None]:
        """Let `_stream` read the ledger as it is when the block begins."""

    @abstractmethod
    def _stream(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, of which only a few are in memory."""

    @abstractmethod
    def _find_damage(self) -> str:
        """What the database itself finds to be damaged; empty if all is right."""

    @abstractmethod
    def claim_run(self) -> AbstractContextManager[str]:
        """Let only one process run evenings; yields an empty string, or the process that already does.

        Raises:
            OSError: the folder is not writable, or its file system has no locks.
        """

    def read_number(self, query: str, values: Sequence[object] = ()) -> int:
        """The first value of a query's first row, as an integer; 0 for NULL."""
        _, rows = self.table(query, values)
        return int(rows[0][0] or 0)

    def rows(self, query: str, values: Sequence[object] = ()) -> Sequence[LedgerRow]:
        """All rows of a query, whose columns have names.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        with self._use_connection():
            return self.execute(query, values, by_name=True).fetchall()

    def table(self, query: str, values: Sequence[object] = ()) -> tuple[list[str], Sequence[tuple[Any, ...]]]:
        """The names of a query's columns, and its rows."""
        with self._use_connection():
            cursor = self.execute(query, values)
            return [column[0] for column in cursor.description or ()], cursor.fetchall()

    @property
    def id(self) -> str:
        """The ledger's random id, with which its chain begins."""
        return str(self.rows("select id from ledger")[0]["id"])

    @property
    def receipt(self) -> Receipt:
        """The last batch; batch 0 if nothing is recorded."""
        last = self.rows("select batch, hash from chain order by batch desc limit 1")
        return Receipt(last[0]["batch"], last[0]["hash"].hex()) if last else Receipt(0, self._origin.hex())

    @property
    def _origin(self) -> bytes:
        return hashlib.sha256(self.id.encode()).digest()

    @contextmanager
    def batch(self) -> Generator["OpenBatch"]:
        """Write rows as one batch when the block ends. After an error, or without new rows, nothing is written.

        Raises:
            LedgerError: the disk is full, the ledger is damaged, or its file was removed or replaced.
            OSError: another process holds the lock for 10 seconds.
        """
        with self._begin_transaction():
            last = self.receipt
            opened = OpenBatch(last.batch + 1, self)
            yield opened
            if opened.rows:
                self._seal(opened, bytes.fromhex(last.hash))

    def _seal(self, opened: "OpenBatch", previous: bytes) -> None:
        digest = _BatchDigest(previous, opened.number, made_at := time.time_ns())
        for table in TABLES:
            if table in opened.first_ids:
                digest.add(table, opened.stored_rows(table) or self._read_table(table, opened.first_ids[table]))
        values = (opened.number, made_at, digest.rows, previous, digest.value())
        self.execute("insert into chain values (?, ?, ?, ?, ?)", values)

    def _read_table(self, table: str, first: int = 0) -> Iterator[tuple[Any, ...]]:
        """The rows of a table from an id on; the first columns are its id and batch."""
        return self._stream(f"select * from {table} where id >= ? order by id", (first,))  # noqa: S608

    def verify(self, receipt: Receipt | None = None) -> Verification:
        """Check every row against the chain, and the chain against a receipt."""
        try:
            with self._use_connection(), self._begin_snapshot():
                return self._verify(receipt)
        except LedgerError as error:
            return Verification(receipt=Receipt(0, self._read_origin()), rows=0, problem=error.message)

    def _read_origin(self) -> str:
        try:
            return self._origin.hex()
        except LedgerError:
            return ""

    def _verify(self, receipt: Receipt | None) -> Verification:
        last_receipt, rows, problem = Receipt(0, self._origin.hex()), 0, ""
        readers = [(table, _RowReader(self._read_table(table))) for table in TABLES]
        has_receipt = receipt is None
        links = self._stream("select batch, made_at, rows, previous, hash from chain order by batch")
        for batch, made_at, recorded_rows, previous, recorded in links:
            digest = _BatchDigest(bytes.fromhex(last_receipt.hash), batch, made_at)
            for table, reader in readers:
                digest.add(table, reader.of_batch(batch))
            is_next = batch == last_receipt.batch + 1 and previous == bytes.fromhex(last_receipt.hash)
            if not is_next or (digest.value(), digest.rows) != (recorded, recorded_rows):
                problem = f"batch {batch} was changed after it was recorded"
                break
            last_receipt, rows = Receipt(batch, recorded.hex()), rows + digest.rows
            has_receipt = has_receipt or receipt == last_receipt
        if not problem and any(reader.has_more() for _, reader in readers):
            problem = f"there are rows after batch {last_receipt.batch}, which no batch recorded"
        if not problem and not has_receipt:
            problem = (
                f"the receipt {receipt} is not in the chain, which ends at {last_receipt}: batches were cut or replaced"
            )
        return Verification(receipt=last_receipt, rows=rows, problem=problem or self._find_damage())


@final
class OpenBatch:
    """A batch that is being written."""

    def __init__(self, number: int, store: LedgerStore) -> None:
        self.number = number
        self.rows = 0
        self.first_ids: dict[str, int] = {}
        """The id that the first row of each written table has."""
        self._next_ids: dict[str, int] = {}
        self._given_rows: dict[str, list[Sequence[Any]]] = {}
        self._store = store

    def stored_rows(self, table: str) -> Iterator[tuple[Any, ...]] | None:
        """The stored rows of a table, if they are known without reading them: all were given, and none was skipped."""
        rows = self._given_rows.get(table)
        if rows is None:
            return None
        return ((number, self.number, *row) for number, row in enumerate(rows, self.first_ids[table]))

    def add(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        """Insert rows, each with its id and the batch's number, but those that are recorded; returns how many are new.

        One statement inserts many rows, and rows that are stored as they are given are not read again for their hash:
        SQLite lets other threads run at each row that it reads, and a busy server would wait at each for its turn.
        """
        if table not in self.first_ids:
            self.first_ids[table] = self._next_ids[table] = self._store.read_number(f"select max(id) from {table}") + 1  # noqa: S608
            if table in STORED_AS_GIVEN:
                self._given_rows[table] = []
        names = ", ".join(f'"{name}"' for name in ("id", "batch", *columns))
        places = f"({', '.join('?' * (len(columns) + 2))})"
        remaining, before = iter(rows), self.rows
        while part := list(islice(remaining, _MAX_VALUES // (len(columns) + 2))):
            statement = f"insert into {table} ({names}) values {', '.join([places] * len(part))} on conflict do nothing"  # noqa: S608
            ids = range(self._next_ids[table], self._next_ids[table] + len(part))
            self._next_ids[table] = ids.stop
            values = [value for number, row in zip(ids, part, strict=True) for value in (number, self.number, *row)]
            new = self._store.execute(statement, values).rowcount
            self.rows += new
            if new < len(part):
                self._given_rows.pop(table, None)
            elif table in self._given_rows:
                self._given_rows[table] += part
        return self.rows - before


@final
class _BatchDigest:
    """The hash of a batch: over the previous hash, its number and time, and its stored rows.

    The rows of a table are hashed in parts of _PART rows: as JSON, with the sizes of blobs, and then the blobs.
    """

    def __init__(self, previous: bytes, batch: int, made_at: int) -> None:
        self.rows = 0
        self._hash = hashlib.sha256(previous)
        self._hash.update(f"{batch} {made_at}\n".encode())

    def add(self, table: str, rows: Iterator[tuple[Any, ...]]) -> None:
        while part := list(islice(rows, _PART)):
            text, blobs = encode_rows(part)
            self._hash.update(f"{table} {text}\n".encode())
            self._hash.update(blobs)
            self.rows += len(part)

    def value(self) -> bytes:
        return self._hash.digest()


@final
class _RowReader:
    """Reads a table once, batch after batch."""

    def __init__(self, rows: Iterator[tuple[Any, ...]]) -> None:
        self._rows = rows
        self._next_row = next(self._rows, None)

    def of_batch(self, batch: int) -> Iterator[tuple[Any, ...]]:
        while self._next_row is not None and self._next_row[1] == batch:
            yield self._next_row
            self._next_row = next(self._rows, None)

    def has_more(self) -> bool:
        return self._next_row is not None
