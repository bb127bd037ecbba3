"""The SQLite file of a ledger, written under a file lock."""

import json
import logging
import os
import sqlite3
import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, final

from predictor.errors import LedgerError
from predictor.file_lock import claim_file, lock_file
from predictor.ledger.schema import APPLICATION_ID, TABLES, VERSION, list_definitions
from predictor.ledger.store import Cursor, LedgerStore
from predictor.replacement import check_file

_BUSY_SECONDS: Final = 10
_MAX_LOG: Final = 64 << 20
"""Bytes of the write-ahead log above which a write also makes a checkpoint."""
_PRAGMAS: Final = (
    "pragma synchronous = full",
    "pragma wal_autocheckpoint = 0",  # a checkpoint outside of the lock may corrupt the file before SQLite 3.51.3
    f"pragma journal_size_limit = {_MAX_LOG}",
    "pragma cache_size = -65536",  # KiB; scores are looked up one by one
    "pragma mmap_size = 0",
    "pragma foreign_keys = on",
    "pragma trusted_schema = off",
)

_SQLITE: Final = b"SQLite format 3\0"
_NOT_A_LEDGER: Final = "it is not a ledger, or it is damaged; give the path of one, or restore it from a backup"

_log = logging.getLogger(__name__)


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


def _list_statements() -> list[str]:
    """The statements that create an empty, append-only ledger."""
    triggers = [
        f"create trigger {table}_{change} before {change} on {table} "
        "begin select raise(abort, 'a ledger only grows'); end"
        for table in ("ledger", "chain", *TABLES)
        for change in ("update", "delete")
    ]
    marks = [f"pragma application_id = {APPLICATION_ID}", f"pragma user_version = {VERSION}"]
    return [*list_definitions(), *triggers, *marks]


@final
class SqliteStore(LedgerStore):
    """An open ledger file.

    Args:
        path: the file.
        create: make a new ledger if the file is missing.

    Raises:
        LedgerError: the file is missing, damaged, not a ledger, or from a newer version.
        OSError: the folder is not writable.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        super().__init__(str(path))
        if path.is_file():
            _check_header(path)
        elif create:
            check_file(path)
        else:
            problem = "it is a folder" if path.is_dir() else "the file does not exist"
            raise LedgerError(f"{path}: {problem}; give the path of a ledger", metadata={"file": str(path)})
        self._path = path
        self._is_closed = False
        self._lock_file = path.with_name(path.name + ".lock")
        with lock_file(self._lock_file), translate_errors(path):
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
        self._check_format(create=create)
        self._connection.execute("pragma journal_mode = wal")
        for pragma in _PRAGMAS:
            self._connection.execute(pragma)

    def _check_format(self, *, create: bool) -> None:
        application, version = (self.read_number(f"pragma {name}") for name in ("application_id", "user_version"))
        if application == APPLICATION_ID and version == VERSION:
            return
        is_empty = not self.read_number("select count(*) from sqlite_master")
        if application == APPLICATION_ID and not is_empty:
            advice = "update Quantra" if version > VERSION else "move it away to begin a new one"
            problem = f"its schema is {version}, but this version of Quantra reads {VERSION}; {advice}"
        elif not is_empty or not create:
            problem = "it is not a ledger; give the path of one, or of a file that does not exist"
        else:
            self._connection.execute("begin immediate")
            for statement in _list_statements():
                self._connection.execute(statement)
            self._connection.execute("insert into ledger values (?, ?)", (uuid.uuid4().hex, time.time_ns()))
            self._connection.execute("commit")
            return
        raise LedgerError(f"{self._path}: {problem}", metadata={"file": self.address})

    def close(self) -> None:
        """Make a checkpoint, under the lock like every checkpoint, and close the file; log that it cannot be made."""
        with self._thread_lock:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                with lock_file(self._lock_file), translate_errors(self._path):
                    self._connection.execute("pragma wal_checkpoint(truncate)")
            except (LedgerError, OSError) as error:
                reason = error.strerror if isinstance(error, OSError) else error.without_address().message
                _log.warning("the ledger was closed without a checkpoint, which a later one makes: %s", reason)
            finally:
                self._connection.close()

    def execute(self, statement: str, values: Sequence[object] = (), *, by_name: bool = False) -> Cursor:
        """See `LedgerStore`."""
        return self._execute(statement, values, by_name=by_name)

    def _execute(self, statement: str, values: Sequence[object], *, by_name: bool = False) -> sqlite3.Cursor:
        if "= any(?)" in statement:
            statement = statement.replace("= any(?)", "in (select value from json_each(?))")
            values = [json.dumps(value) if isinstance(value, list | tuple) else value for value in values]
        cursor = self._connection.cursor()
        cursor.row_factory = sqlite3.Row if by_name else None
        return cursor.execute(statement, values)

    @contextmanager
    def _use_connection(self) -> Generator[None]:
        with self._thread_lock, translate_errors(self._path):
            yield

    @contextmanager
    def _begin_transaction(self) -> Generator[None]:
        with self._thread_lock, lock_file(self._lock_file), translate_errors(self._path):
            # Check that the open file is still at the path; what is written to a removed one is lost.
            if not self._path.is_file() or not os.path.samestat(self._path.stat(), self._opened):
                raise LedgerError(
                    f"{self._path}: the file was removed or replaced while it was open; move it back, or restart",
                    metadata={"file": self.address},
                )
            self._connection.execute("begin immediate")
            try:
                yield
                self._connection.execute("commit")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("rollback")
                raise
            log = Path(f"{self._path}-wal")
            if log.exists() and os.stat(log).st_size > _MAX_LOG:  # noqa: PTH116 - as cheap as it gets
                self._connection.execute("pragma wal_checkpoint(passive)")

    @contextmanager
    def _begin_snapshot(self) -> Generator[None]:
        self._connection.execute("begin")
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute("rollback")

    def _stream(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        return iter(self._execute(query, values))

    def _find_damage(self) -> str:
        damage = self._connection.execute("pragma integrity_check(1)").fetchone()[0]
        return "" if damage == "ok" else f"the file is damaged: {damage}"

    def claim_run(self) -> AbstractContextManager[str]:
        """See `LedgerStore`."""
        return claim_file(Path(f"{self._path}.daily.lock"))
