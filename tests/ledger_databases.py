"""Both databases that a ledger can be in, for tests that run with each."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import pytest

if TYPE_CHECKING:
    from postgresql import Server

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
_numbers = count()


@final
@dataclass(frozen=True, slots=True)
class LedgerDatabase:
    """A place for a ledger, which tests also change behind the ledger's back."""

    kind: str
    address: str

    @property
    def refusal(self) -> type[Exception]:
        """The driver's error if a constraint is violated."""
        if self.kind == SQLITE:
            return sqlite3.IntegrityError
        import psycopg

        return psycopg.IntegrityError

    def execute(self, *statements: str) -> None:
        """Run statements as any program could."""
        if self.kind == SQLITE:
            with closing(sqlite3.connect(self.address)) as connection:
                for statement in statements:
                    connection.execute(statement)
                connection.commit()
            return
        import psycopg

        with psycopg.connect(self.address) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def tamper(self, change: str) -> None:
        """Change rows without the triggers that refuse it."""
        if self.kind == POSTGRESQL:
            self.execute("set session_replication_role = replica", change.replace("as blob", "as bytea"))
            return
        with closing(sqlite3.connect(self.address)) as connection:
            triggers = connection.execute("select name from sqlite_master where type = 'trigger'").fetchall()
        self.execute(*(f"drop trigger {name}" for (name,) in triggers), change)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator["Server"]:
    """A server, and its password in the environment."""
    import postgresql

    if reason := postgresql.missing():
        pytest.skip(reason)
    with postgresql.running() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", postgresql.PASSWORD)
        yield server


@pytest.fixture
def postgresql_database(postgresql_server: "Server") -> LedgerDatabase:
    """An empty schema of the server's database."""
    schema = f"ledger{next(_numbers)}"
    postgresql_server.execute(f"create schema {schema}")
    return LedgerDatabase(POSTGRESQL, f"{postgresql_server.address}?options=-csearch_path%3D{schema}")


@final
@dataclass(frozen=True, slots=True)
class UnreliableDatabase:
    """A database of PostgreSQL that goes away and comes back."""

    server: "Server"
    name: str

    @property
    def address(self) -> str:
        return self.server.address.replace("/postgres", f"/{self.name}")

    def go_away(self) -> None:
        self._execute(
            f"alter database {self.name} allow_connections false",
            f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{self.name}'",  # noqa: S608
        )

    def come_back(self) -> None:
        self._execute(f"alter database {self.name} allow_connections true")

    def create(self) -> None:
        self._execute(f"create database {self.name}")

    def _execute(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self.server.address, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@pytest.fixture
def unreliable_database(postgresql_server: "Server") -> UnreliableDatabase:
    """An empty database."""
    database = UnreliableDatabase(postgresql_server, f"unreliable{next(_numbers)}")
    database.create()
    return database


@pytest.fixture(params=[SQLITE, POSTGRESQL])
def ledger_database(request: pytest.FixtureRequest, tmp_path: Path) -> LedgerDatabase:
    """Each of both databases in turn."""
    if request.param == POSTGRESQL:
        found: Any = request.getfixturevalue("postgresql_database")
        return found
    return LedgerDatabase(SQLITE, str(tmp_path / "ledger.db"))
