"""The PostgreSQL database of a ledger, written under an advisory lock (extra `postgres`)."""

import errno
import logging
import os
import re
import socket
import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from typing import Any, Final, TypeVar, final

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row, tuple_row

from predictor.errors import LedgerError
from predictor.ledger.schema import APPLICATION_ID, TABLES, VERSION, list_definitions
from predictor.ledger.store import Cursor, LedgerStore

_PATIENCE_SECONDS: Final = 10
_SILENCE_SECONDS: Final = 20.0
"""Longer than a wait for the lock, and shorter than the usual timeout of a client, 30 seconds."""
_POLL_SECONDS: Final = 0.1
_MAX_NAME_LENGTH: Final = 63
"""Characters of an application's name that PostgreSQL keeps."""
_STREAMED_ROWS: Final = 100
"""Rows that are fetched together, because a row of bars can be large."""
_CONNECTION: Final = {
    "client_encoding": "utf8",
    "connect_timeout": 10,
    "tcp_user_timeout": 30_000,  # ms
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
"""Settings that the address can change; they reveal within half a minute that the server's machine is gone."""
_MARK: Final = "Quantra ledger, schema "
"""The comment on the table `ledger`, followed by the schema's version."""
_TYPES: Final = {
    "integer primary key": "bigint primary key",
    " integer": " bigint",
    " blob": " bytea",
    " real": " double precision",
}
"""Replacements in the definitions of the tables, in this order."""
_SCHEMA: Final = "hashtext(current_schema()) & 2147483647"
_WRITER: Final = f"{APPLICATION_ID}, {_SCHEMA}"
"""The key of the lock that a process holds while it writes; each schema may hold a ledger."""
_RUN: Final = f"{APPLICATION_ID + 1}, {_SCHEMA}"
"""The key of the lock that a process holds while it runs evenings."""
_HOLDER: Final = (
    "select a.application_name as name, "  # noqa: S608 - no value of a user is in the text
    "coalesce(' since ' || to_char(a.backend_start at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS UTC'), '') as since "
    "from pg_locks l join pg_stat_activity a on a.pid = l.pid where l.locktype = 'advisory' and l.granted "
    f"and l.database = a.datid and a.datname = current_database() and l.classid = {APPLICATION_ID + 1} "
    f"and l.objid = ({_SCHEMA})::oid"
)

_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)


def _list_statements() -> list[str]:
    """The statements that create an empty, append-only ledger."""
    definitions: list[str] = []
    for definition in list_definitions():
        for lite, postgres in _TYPES.items():
            definition = re.sub(rf"{lite}\b", postgres, definition)  # noqa: PLW2901 - one after another
        definitions.append(definition)
    refuse = (
        "create function refuse_change() returns trigger language plpgsql as "
        "$$ begin raise exception 'a ledger only grows'; end $$"
    )
    triggers = [
        f"create trigger {table}_grows before update or delete or truncate on {table} execute function refuse_change()"
        for table in ("ledger", "chain", *TABLES)
    ]
    return [*definitions, refuse, *triggers, f"comment on table ledger is '{_MARK}{VERSION}'"]


def _expect_progress(steps: PQGen[_Result]) -> PQGen[_Result]:
    """Run a call of the driver, which resumes it at every poll, and fail when the server is silent."""
    last = time.monotonic()
    try:
        waits_for = next(steps)
        while True:
            readiness = yield waits_for
            if readiness:
                last = time.monotonic()
            elif time.monotonic() - last > _SILENCE_SECONDS:
                raise _SilentServerError(f"no answer for {_SILENCE_SECONDS:g} seconds")
            waits_for = steps.send(readiness)
    except StopIteration as end:
        return end.value


class _SilentServerError(psycopg.OperationalError):
    """The server has the connection open, but does not answer."""


@final
class _Connection(psycopg.Connection[Any]):
    """A connection that does not wait forever for a suspended server, whose machine still acknowledges packets."""

    def wait(  # pyright: ignore[reportIncompatibleMethodOverride] - newer drivers have a `timeout`, only for notifications
        self, gen: PQGen[_Result], interval: float = _POLL_SECONDS
    ) -> _Result:
        try:
            return super().wait(_expect_progress(gen), interval)
        except _SilentServerError:
            self.close()  # otherwise a rollback would wait as long
            raise


@final
class PostgresStore(LedgerStore):
    """A ledger in the first schema of a database's search path.

    A lost connection fails the running call; the next one connects again.

    Args:
        address: the database's URI, without a password.
        create: make a new ledger if the database has none.
        can_wait: if the database cannot be reached now, log a warning, and connect at the next call.

    Raises:
        LedgerError: the database cannot be reached, or holds no ledger, or one of a newer version.
        TimeoutError: another process holds the lock for 10 seconds.
    """

    def __init__(self, address: str, *, create: bool, can_wait: bool) -> None:
        super().__init__(address)
        self._create = create
        self._id = ""
        self._opened: psycopg.Connection[Any] | None = None
        self._claim: psycopg.Connection[Any] | None = None
        """The connection that holds the claim of `claim_run`."""
        self._depth = 0
        """How many blocks use the connection; within them it is not replaced."""
        self._cursors = count()
        try:
            self._opened = self._connect()
        except LedgerError as error:
            if not can_wait:
                raise
            _log.warning("%s", error.without_address().message)
        else:
            self._check()

    @property
    def _connection(self) -> psycopg.Connection[Any]:
        assert self._opened is not None  # noqa: S101 - it is used within `_use_connection`
        return self._opened

    def _connect(self) -> psycopg.Connection[Any]:
        name = f"Quantra process {os.getpid()} on {socket.gethostname()}"[:_MAX_NAME_LENGTH]
        try:
            settings: dict[str, Any] = {**_CONNECTION, "application_name": name, **conninfo_to_dict(self.address)}
            connection = _Connection.connect(make_conninfo("", **settings), autocommit=True)
        except psycopg.Error as error:
            reason = " ".join(str(error).split())
            advice = "give the password in the environment variable PGPASSWORD or in the file ~/.pgpass"
            advice = advice if "password" in reason else "start it, or correct the address"
            raise self._make_error(f"the database cannot be reached: {reason}; {advice}", error) from error
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection

    def _check(self) -> None:
        """Check what the database holds, and close the connection if that is wrong."""
        try:
            with self._use_connection():
                self._check_format(create=self._create and not self._id)
                self._check_id()
        except BaseException:
            self._connection.close()
            raise

    def _make_error(self, problem: str, error: psycopg.Error | None = None) -> LedgerError:
        code = (error and error.sqlstate) or ""
        return LedgerError(f"{self.address}: {problem}", metadata={"file": self.address, "code": code})

    def _check_format(self, *, create: bool) -> None:
        encoding = self._connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise self._make_error(f"the database's encoding is {encoding}; create one with the encoding UTF8")
        mark = self._read_mark()
        if mark is None and create:
            with self._begin_transaction():
                mark = self._read_mark()  # another process may have made it
                if mark is None:
                    self._make()
                    return
        if mark == f"{_MARK}{VERSION}":
            return
        if mark is None:
            problem = "the database holds no ledger; correct the address, or run `quantra daily`, which makes one"
        elif mark.startswith(_MARK):
            found_version = mark.removeprefix(_MARK)
            advice = "update Quantra" if int(found_version) > VERSION else "move it away to begin a new one"
            problem = f"its schema is {found_version}, but this version of Quantra reads {VERSION}; {advice}"
        else:
            problem = "its table `ledger` is not of a ledger; give the address of another database"
        raise self._make_error(problem)

    def _check_id(self) -> None:
        if self._id and self.id != self._id:
            raise self._make_error("the ledger was replaced by another one while it was in use; restart")
        self._id = self.id

    def _read_mark(self) -> str | None:
        """The comment on the table `ledger`; None if the table is missing."""
        _, rows = self.table(
            "select coalesce(obj_description(c.oid, 'pg_class'), '') from pg_class c "
            "join pg_namespace n on n.oid = c.relnamespace where c.relname = 'ledger' and n.nspname = current_schema()"
        )
        return rows[0][0] if rows else None

    def _make(self) -> None:
        try:
            for statement in _list_statements():
                self.execute(statement)
        except errors.ProgrammingError as error:
            problem = f"a ledger cannot be made: {error.diag.message_primary}; give the address of another database"
            raise self._make_error(problem, error) from error
        self.execute("insert into ledger values (?, ?)", (uuid.uuid4().hex, time.time_ns()))

    def close(self) -> None:
        """See `LedgerStore`."""
        with self._thread_lock:
            if self._opened is not None:
                self._opened.close()

    def execute(self, statement: str, values: Sequence[object] = (), *, by_name: bool = False) -> Cursor:
        """See `LedgerStore`."""
        cursor = self._connection.cursor(binary=True, row_factory=dict_row if by_name else tuple_row)
        return cursor.execute(_encode(statement), values)

    @contextmanager
    def _use_connection(self) -> Generator[None]:
        with self._thread_lock:
            if not self._depth and (self._opened is None or self._opened.closed):
                try:
                    self._opened = self._connect()
                except LedgerError as error:  # a server's clients get this one, and must not see where the database is
                    problem = "the database cannot be reached; start it, or check the network"
                    raise self._make_error(problem) from error
                self._check()
            self._depth += 1
            try:
                yield
            except (errors.IntegrityError, errors.ProgrammingError) as error:
                if isinstance(error, errors.InsufficientPrivilege):
                    problem = f"{error.diag.message_primary}; the user needs the rights to select and insert"
                    raise self._make_error(problem, error) from error
                raise
            except psycopg.Error as error:
                raise self._make_error(self._describe(error), error) from error
            finally:
                self._depth -= 1

    def _describe(self, error: psycopg.Error) -> str:
        text = " ".join((error.diag.message_primary or str(error)).split())
        if isinstance(error, errors.DiskFull):
            return "the server's disk is full, and this write was not recorded; free some space and run it again"
        if self._connection.closed or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None):
            self._connection.close()  # the driver does not always notice that the server has closed it
            return f"the connection was lost ({text}); check the server and run it again"
        return f"the ledger cannot be used ({text}); see the log of the server"

    @contextmanager
    def _begin_transaction(self) -> Generator[None]:
        with self._use_connection(), self._connection.transaction():
            try:
                patience = f"{1000 * _PATIENCE_SECONDS}ms"
                self.execute(
                    "select set_config('lock_timeout', ?, true), "
                    "set_config('synchronous_commit', case current_setting('synchronous_commit') "
                    "when 'off' then 'on' else current_setting('synchronous_commit') end, true), "
                    f"pg_advisory_xact_lock({_WRITER})",
                    (patience,),
                )
            except errors.LockNotAvailable as error:
                problem = f"another process has held the lock for {_PATIENCE_SECONDS} seconds"
                raise TimeoutError(errno.ETIMEDOUT, problem, self.address) from error
            self._check_claim()
            yield

    @contextmanager
    def _begin_snapshot(self) -> Generator[None]:
        with self._connection.transaction():
            self.execute("set transaction isolation level repeatable read, read only")
            yield

    def _stream(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        with self._connection.cursor(f"quantra_{next(self._cursors)}", row_factory=tuple_row) as cursor:
            cursor.itersize = _STREAMED_ROWS
            yield from cursor.execute(_encode(query), values, binary=True)

    def _find_damage(self) -> str:
        return ""  # the database's checksums fail a read

    @contextmanager
    def claim_run(self) -> Generator[str]:
        """See `LedgerStore`."""
        with closing(self._connect()) as claim:  # its end releases the lock
            if not claim.execute(f"select pg_try_advisory_lock({_RUN})::int".encode()).fetchall()[0][0]:
                holders = self.rows(_HOLDER)
                yield f"{holders[0]['name']}{holders[0]['since']}" if holders else "another process"
                return
            self._claim = claim
            try:
                yield ""
            finally:
                self._claim = None

    def _check_claim(self) -> None:
        """Write nothing more once another process can claim the run."""
        if self._claim is None:
            return
        try:
            self._claim.execute("select 1")
        except psycopg.Error as error:
            problem = "the connection that kept other processes from running evenings was lost; run the evening again"
            raise self._make_error(problem, error) from error


def _encode(statement: str) -> bytes:
    """A statement in the driver's form, with `%s` for a value; a `?` within quotes stays."""
    return re.sub(r"""('[^']*'|"[^"]*")|\?""", lambda match: match[1] or "%s", statement.replace("%", "%%")).encode()
