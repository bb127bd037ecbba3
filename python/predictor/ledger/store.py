"""The SQLite file of a ledger, written in chained batches under a file lock."""

import hashlib
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NoReturn, Self, final

from predictor.errors import ConfigurationError, LedgerError
from predictor.file_lock import locked
from predictor.ledger.schema import APPLICATION_ID, TABLES, VERSION, json_rows, list_statements
from predictor.replacement import check_file

_BUSY_SECONDS: Final = 10
_MOST_VALUES: Final = 999
"""Values of one statement; every version of SQLite takes as many."""
_LARGEST_LOG: Final = 64 << 20
"""Bytes of the write-ahead log above which a write also makes a checkpoint."""
_PRAGMAS: Final = (
    "pragma synchronous = full",
    "pragma wal_autocheckpoint = 0",  # a checkpoint outside of the lock may corrupt the file before SQLite 3.51.3
    f"pragma journal_size_limit = {_LARGEST_LOG}",
    "pragma cache_size = -65536",  # KiB; scores are looked up one by one
    "pragma mmap_size = 0",
    "pragma foreign_keys = on",
    "pragma trusted_schema = off",
)


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
_SQLITE: Final = b"SQLite format 3\0"
_NOT_A_LEDGER: Final = "it is not a ledger, or it is damaged; give the path of one, or restore it from a backup"


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


@contextmanager
def translate_errors(path: Path) -> Generator[None]:
    """Turn SQLite's errors into LedgerError, except those that only a bug can cause."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise
    except sqlite3.DatabaseError as error:
        _refuse(path, error)


def _refuse(path: Path, error: sqlite3.DatabaseError) -> NoReturn:
    code = str(getattr(error, "sqlite_errorname", ""))
    if code == "SQLITE_FULL":
        problem = "the disk is full, and this write was not recorded; free some space and run it again"
    elif code == "SQLITE_NOTADB":
        problem = _NOT_A_LEDGER
    elif code.startswith("SQLITE_CORRUPT"):
        problem = f"the ledger is damaged ({error}); restore it from a backup, or move it away to begin a new one"
    else:
        problem = f"the ledger cannot be used ({error}); check its permissions and its disk"
    raise LedgerError(f"{path}: {problem}", metadata={"file": str(path), "code": code}) from error


def _check_header(path: Path) -> None:
    """Refuse a file of another format before a lock file is created."""
    with path.open("rb") as file:
        start = file.read(len(_SQLITE))
    if start not in {_SQLITE, b""}:
        raise LedgerError(f"{path}: {_NOT_A_LEDGER}", metadata={"file": str(path), "code": "SQLITE_NOTADB"})


@final
class LedgerStore:
    """An open ledger file. Threads may share it; each process opens its own.

    Args:
        path: the file.
        create: make a new ledger if the file is missing.

    Raises:
        LedgerError: the file is missing, damaged, not a ledger, or from a newer version.
        OSError: the folder is not writable.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        if path.is_file():
            _check_header(path)
        elif create:
            check_file(path)
        else:
            problem = "it is a folder" if path.is_dir() else "the file does not exist"
            raise LedgerError(f"{path}: {problem}; give the path of a ledger", metadata={"file": str(path)})
        self.path = path
        self._lock_file = path.with_name(path.name + ".lock")
        self._thread_lock = threading.RLock()
        with locked(self._lock_file), translate_errors(path):
            self._connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS
            )
            try:
                self._begin(create=create)
                self._opened = path.stat()
            except BaseException:
                self._connection.close()
                raise

    def _begin(self, *, create: bool) -> None:
        self._connection.row_factory = sqlite3.Row
        self._check_format(create=create)
        self._connection.execute("pragma journal_mode = wal")
        for pragma in _PRAGMAS:
            self._connection.execute(pragma)

    def _check_format(self, *, create: bool) -> None:
        application, version = (self.number(f"pragma {name}") for name in ("application_id", "user_version"))
        if application == APPLICATION_ID and version == VERSION:
            return
        is_empty = not self.number("select count(*) from sqlite_master")
        if application == APPLICATION_ID and not is_empty:
            advice = "update Quantra" if version > VERSION else "move it away to begin a new one"
            problem = f"its schema is {version}, but this version of Quantra reads {VERSION}; {advice}"
        elif not is_empty or not create:
            problem = "it is not a ledger; give the path of one, or of a file that does not exist"
        else:
            self._connection.execute("begin immediate")
            for statement in list_statements():
                self._connection.execute(statement)
            self._connection.execute("insert into ledger values (?, ?)", (uuid.uuid4().hex, time.time_ns()))
            self._connection.execute("commit")
            return
        raise LedgerError(f"{self.path}: {problem}", metadata={"file": str(self.path)})

    def close(self) -> None:
        """Make a checkpoint, under the lock like every checkpoint, and close the file."""
        with self._thread_lock, locked(self._lock_file), translate_errors(self.path):
            self._connection.execute("pragma wal_checkpoint(truncate)")
            self._connection.close()

    def number(self, query: str, values: Sequence[object] = ()) -> int:
        """The first value of a query's first row, as an integer; 0 for NULL."""
        return int(self._connection.execute(query, values).fetchone()[0] or 0)

    def rows(self, query: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        """All rows of a query.

        Raises:
            LedgerError: the ledger is damaged.
        """
        with self._thread_lock, translate_errors(self.path):
            return self._connection.execute(query, values).fetchall()

    def table(self, query: str, values: Sequence[object] = ()) -> tuple[list[str], list[sqlite3.Row]]:
        """The names of a query's columns, and its rows."""
        with self._thread_lock, translate_errors(self.path):
            cursor = self._connection.execute(query, values)
            return [column[0] for column in cursor.description], cursor.fetchall()

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
        with self._thread_lock, locked(self._lock_file), translate_errors(self.path):
            self._check_file()
            self._connection.execute("begin immediate")
            try:
                last = self.receipt
                opened = OpenBatch(last.batch + 1, self._connection)
                yield opened
                if opened.rows:
                    self._seal(opened, bytes.fromhex(last.hash))
                self._connection.execute("commit" if opened.rows else "rollback")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("rollback")
                raise
            self._shorten_log()

    def _check_file(self) -> None:
        """Check that the open file is still at the path; what is written to a removed one is lost."""
        if not self.path.is_file() or not os.path.samestat(self.path.stat(), self._opened):
            raise LedgerError(
                f"{self.path}: the file was removed or replaced while it was open; move it back, or restart",
                metadata={"file": str(self.path)},
            )

    def _seal(self, opened: "OpenBatch", previous: bytes) -> None:
        digest = _BatchDigest(previous, opened.number, made_at := time.time_ns())
        for table in TABLES:
            if table in opened.first_ids:
                digest.add(table, _read_tuples(self._connection, table, opened.first_ids[table]))
        values = (opened.number, made_at, digest.rows, previous, digest.value())
        self._connection.execute("insert into chain values (?, ?, ?, ?, ?)", values)

    def _shorten_log(self) -> None:
        log = Path(f"{self.path}-wal")
        if log.exists() and os.stat(log).st_size > _LARGEST_LOG:  # noqa: PTH116 - as cheap as it gets
            self._connection.execute("pragma wal_checkpoint(passive)")

    def verify(self, receipt: Receipt | None = None) -> Verification:
        """Check every row against the chain, and the chain against a receipt."""
        with self._thread_lock:
            try:
                with translate_errors(self.path):
                    return self._verify(receipt)
            except LedgerError as error:
                return Verification(receipt=Receipt(0, self._origin_or_empty()), rows=0, problem=error.message)

    def _origin_or_empty(self) -> str:
        try:
            return self._origin.hex()
        except LedgerError:
            return ""

    def _verify(self, receipt: Receipt | None) -> Verification:
        good, rows, problem = Receipt(0, self._origin.hex()), 0, ""
        readers = [(table, _RowReader(self._connection, table)) for table in TABLES]
        kept = receipt is None
        chain = self._connection.cursor().execute("select * from chain order by batch")
        for link in chain:
            digest = _BatchDigest(bytes.fromhex(good.hash), link["batch"], link["made_at"])
            for table, reader in readers:
                digest.add(table, reader.of_batch(link["batch"]))
            is_next = link["batch"] == good.batch + 1 and link["previous"].hex() == good.hash
            if not is_next or (digest.value(), digest.rows) != (link["hash"], link["rows"]):
                problem = f"batch {link['batch']} was changed after it was recorded"
                break
            good, rows = Receipt(link["batch"], link["hash"].hex()), rows + digest.rows
            kept = kept or receipt == good
        if not problem and any(reader.has_more() for _, reader in readers):
            problem = f"there are rows after batch {good.batch}, which no batch recorded"
        if not problem and not kept:
            problem = f"the receipt {receipt} is not in the chain, which ends at {good}: batches were cut or replaced"
        if not problem:
            found = self._connection.execute("pragma integrity_check(1)").fetchone()[0]
            problem = "" if found == "ok" else f"the file is damaged: {found}"
        return Verification(receipt=good, rows=rows, problem=problem)


@final
class OpenBatch:
    """A batch that is being written."""

    def __init__(self, number: int, connection: sqlite3.Connection) -> None:
        self.number = number
        self.rows = 0
        self.first_ids: dict[str, int] = {}
        """The id that the first row of each written table has."""
        self._connection = connection

    def add(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        """Insert rows, each with the batch's number first, without those that are recorded; returns how many are new.

        One statement inserts many rows: SQLite lets other threads run at each step of a statement, and a busy server
        would wait at each for its turn.
        """
        if table not in self.first_ids:
            (newest,) = self._connection.execute(f"select max(id) from {table}").fetchone()  # noqa: S608
            self.first_ids[table] = (newest or 0) + 1
        names = ", ".join(f'"{name}"' for name in ("batch", *columns))
        places = f"({', '.join('?' * (len(columns) + 1))})"
        remaining, before = iter(rows), self.rows
        while part := list(islice(remaining, _MOST_VALUES // (len(columns) + 1))):
            statement = f"insert into {table} ({names}) values {', '.join([places] * len(part))} on conflict do nothing"  # noqa: S608
            values = [value for row in part for value in (self.number, *row)]
            self.rows += self._connection.execute(statement, values).rowcount
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
            text, blobs = json_rows(part)
            self._hash.update(f"{table} {text}\n".encode())
            self._hash.update(blobs)
            self.rows += len(part)

    def value(self) -> bytes:
        return self._hash.digest()


def _read_tuples(connection: sqlite3.Connection, table: str, first: int) -> Iterator[tuple[Any, ...]]:
    """The rows of a table from an id on; the first columns are its id and batch."""
    cursor = connection.cursor()
    cursor.row_factory = None
    yield from cursor.execute(f"select * from {table} where id >= ? order by id", (first,))  # noqa: S608


@final
class _RowReader:
    """Reads a table once, batch after batch."""

    def __init__(self, connection: sqlite3.Connection, table: str) -> None:
        self._rows = _read_tuples(connection, table, 0)
        self._next = next(self._rows, None)

    def of_batch(self, batch: int) -> Iterator[tuple[Any, ...]]:
        while self._next is not None and self._next[1] == batch:
            yield self._next
            self._next = next(self._rows, None)

    def has_more(self) -> bool:
        return self._next is not None
