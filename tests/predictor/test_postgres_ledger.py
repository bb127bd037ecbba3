"""A ledger in PostgreSQL: addresses, passwords, lost connections, and what else only a server has."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from free_ports import free_port
from ledger_databases import LedgerDatabase
from postgresql import PASSWORD, Server

from predictor.errors import ConfigurationError, LedgerError, MissingPackageError
from predictor.evidence import Lamp
from predictor.ledger import EvidenceRecord, Ledger, LedgerEvent, postgres_store
from predictor.ledger.schema import VERSION


@pytest.fixture
def ledger(postgresql_database: LedgerDatabase) -> Iterator[Ledger]:
    with Ledger.open(postgresql_database.address, create=True) as opened:
        yield opened


def event(key: str) -> LedgerEvent:
    return LedgerEvent(kind="test", key=key)


def keys(ledger: Ledger) -> list[str]:
    return [one.key for one in ledger.records(LedgerEvent)]


def cut_connections(database: LedgerDatabase) -> None:
    """End all connections of ledgers, as a restart of the server does."""
    database.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'Quantra%'")


def remove_tables(database: LedgerDatabase) -> None:
    tables = ", ".join(("ledger", *postgres_store.TABLES, "chain"))
    database.execute(f"drop table {tables}", "drop function refuse_change")


# --- opening


@pytest.mark.parametrize("address", ["postgresql://me:hunter2@host/db", "postgresql://me@host/db?password=hunter2"])
def test_an_address_with_a_password_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"PGPASSWORD or the file ~/.pgpass") as caught:
        Ledger.open(address)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("address", ["sqlite:///ledger.db", "mysql://me@host/db", "s3://bucket/ledger.db"])
def test_another_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"give the path of a file, or postgresql://user@host/database"):
        Ledger.open(address)


def test_an_address_that_is_not_encoded_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"postgresql://"):
        Ledger.open("postgresql://me@ho st/db")


@pytest.mark.parametrize("scheme", ["postgres", "PostgreSQL"])
def test_the_scheme_of_an_address_can_be_written_in_other_ways(
    postgresql_database: LedgerDatabase, scheme: str
) -> None:
    with Ledger.open(postgresql_database.address.replace("postgresql", scheme, 1), create=True) as ledger:
        assert ledger.address == postgresql_database.address


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "predictor.ledger.postgres_store")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingPackageError, match=r"a ledger in PostgreSQL .*'quantra\[postgres\]'"):
        Ledger.open("postgresql://me@host/db")


def test_a_server_that_does_not_run_is_named() -> None:
    with pytest.raises(LedgerError, match=r"cannot be reached: .*Connection refused.*; start it, or correct the"):
        Ledger.open(f"postgresql://me@127.0.0.1:{free_port()}/db")


@pytest.mark.parametrize("given", ["wrong", ""])
def test_a_wrong_or_missing_password_says_where_to_put_it(
    postgresql_server: Server, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("PGPASSWORD", given)
    with pytest.raises(LedgerError, match=r"PGPASSWORD or in the file ~/.pgpass") as caught:
        Ledger.open(postgresql_server.address)
    assert PASSWORD not in str(caught.value)


def test_a_missing_ledger_is_made_only_if_asked(postgresql_database: LedgerDatabase) -> None:
    with pytest.raises(LedgerError, match="the database holds no ledger"):
        Ledger.open(postgresql_database.address)
    Ledger.open(postgresql_database.address, create=True).close()
    Ledger.open(postgresql_database.address).close()


@pytest.mark.parametrize(
    ("table", "problem"),
    [("ledger (id text)", "its table `ledger` is not of a ledger"), ("event (id int)", 'relation "event" already')],
)
def test_tables_of_another_program_are_left_alone(
    postgresql_database: LedgerDatabase, table: str, problem: str
) -> None:
    postgresql_database.execute(f"create table {table}")
    with pytest.raises(LedgerError, match=f"{problem}.*; give the address of another database"):
        Ledger.open(postgresql_database.address, create=True)
    postgresql_database.execute(f"drop table {table.split(maxsplit=1)[0]}")
    Ledger.open(postgresql_database.address, create=True).close()


@pytest.mark.parametrize(("schema", "advice"), [(2, "move it away"), (VERSION + 1, "update Quantra")])
def test_another_schema_is_refused(postgresql_database: LedgerDatabase, schema: int, advice: str) -> None:
    Ledger.open(postgresql_database.address, create=True).close()
    postgresql_database.execute(f"comment on table ledger is 'Quantra ledger, schema {schema}'")
    with pytest.raises(LedgerError, match=f"is {schema}, but this version of Quantra reads {VERSION}; {advice}"):
        Ledger.open(postgresql_database.address)


def test_a_database_that_cannot_hold_all_texts_is_refused(postgresql_server: Server) -> None:
    with psycopg.connect(postgresql_server.address, autocommit=True) as connection:
        connection.execute("create database latin encoding 'LATIN1' template template0")
    with pytest.raises(LedgerError, match="encoding is LATIN1; create one with the encoding UTF8"):
        Ledger.open(postgresql_server.address.replace("/postgres", "/latin"), create=True)


def test_an_acknowledged_write_is_on_disk_although_the_server_need_not_wait_for_it(
    postgresql_database: LedgerDatabase,
) -> None:
    address = f"{postgresql_database.address}%20-csynchronous_commit%3Doff"
    with Ledger.open(address, create=True) as ledger:
        query = "select current_setting('synchronous_commit') as setting"
        assert ledger.query(query)[0]["setting"] == "off"
        with ledger._store.batch():
            assert ledger.query(query)[0]["setting"] == "on"


def test_processes_that_make_it_at_once_share_one_ledger(postgresql_database: LedgerDatabase) -> None:
    both = threading.Barrier(4)
    ids: list[str] = []

    def make() -> None:
        both.wait()
        with Ledger.open(postgresql_database.address, create=True) as ledger:
            ids.append(ledger.id)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 4
    assert len(set(ids)) == 1


# --- locks


def test_a_writer_waits_for_another_one_and_then_says_so(
    ledger: Ledger, postgresql_database: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "_PATIENCE_SECONDS", 0.01)
    with psycopg.connect(postgresql_database.address) as other:
        other.execute(f"select pg_advisory_xact_lock({postgres_store._WRITER})".encode())
        with pytest.raises(TimeoutError, match="another process has held the lock for"):
            ledger.append([event("one")])
        assert keys(ledger) == []  # readers do not wait
    assert ledger.append([event("one")]) == 1


def test_ledgers_of_two_schemas_do_not_wait_for_each_other(ledger: Ledger, postgresql_server: Server) -> None:
    postgresql_server.execute("create schema neighbour")
    address = f"{postgresql_server.address}?options=-csearch_path%3Dneighbour"
    with Ledger.open(address, create=True) as other, ledger.claim_run(), other.claim_run() as holder:
        assert holder == ""
        with ledger._store.batch():
            assert other.append([event("one")]) == 1
    assert keys(ledger) == []


def test_a_run_ends_with_its_connection(ledger: Ledger, postgresql_database: LedgerDatabase) -> None:
    with Ledger.open(postgresql_database.address) as other:
        with ledger.claim_run(), other.claim_run() as holder:
            assert holder.startswith("Quantra process ")
        with ledger.claim_run():
            cut_connections(postgresql_database)
            with pytest.raises(LedgerError, match="connection was lost"):
                other.records(LedgerEvent)
            with other.claim_run() as holder:
                assert holder == ""
            with pytest.raises(LedgerError, match="connection was lost"):
                keys(ledger)
            with pytest.raises(LedgerError, match="kept other processes from running evenings was lost"):
                ledger.append([event("one")])
    assert keys(ledger) == []


def test_a_process_claims_a_run_once(ledger: Ledger) -> None:
    with ledger.claim_run(), ledger.claim_run() as holder:
        assert holder.startswith("Quantra process ")


def test_a_run_that_has_ended_lets_the_next_one_begin(ledger: Ledger, postgresql_database: LedgerDatabase) -> None:
    with ledger.claim_run():
        pass
    with Ledger.open(postgresql_database.address) as other, other.claim_run() as holder:
        assert holder == ""


def test_tables_cannot_be_truncated(ledger: Ledger, postgresql_database: LedgerDatabase) -> None:
    ledger.append([event("one")])
    with pytest.raises(psycopg.errors.RaiseException, match="a ledger only grows"):
        postgresql_database.execute("truncate event")


# --- lost connections


def test_a_lost_connection_fails_one_write_and_the_next_one_connects_again(
    ledger: Ledger, postgresql_database: LedgerDatabase
) -> None:
    ledger.append([event("one")])
    cut_connections(postgresql_database)
    with pytest.raises(LedgerError, match=r"the connection was lost \(.*terminating connection"):
        ledger.append([event("two")])
    assert ledger.append([event("two")]) == 1
    assert (keys(ledger), ledger.verify().problem) == (["one", "two"], "")


def test_a_suspended_server_fails_a_write_instead_of_blocking_it(
    ledger: Ledger, postgresql_database: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "_SILENCE_SECONDS", 0.3)
    with psycopg.connect(postgresql_database.address) as connection:
        activity = "select pid from pg_stat_activity where application_name like 'Quantra%'"
        suspended = [pid for (pid,) in connection.execute(activity)]
    for pid in suspended:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(LedgerError, match=r"the connection was lost \(no answer for 0.3 seconds\)"):
            ledger.append([event("first")])
    finally:
        for pid in suspended:
            os.kill(pid, signal.SIGCONT)
    ledger.append([event("second")])

    assert keys(ledger) == ["second"]


def test_a_connection_lost_within_a_batch_leaves_nothing_of_it(
    ledger: Ledger, postgresql_database: LedgerDatabase
) -> None:
    def events() -> Iterator[LedgerEvent | EvidenceRecord]:
        yield event("one")
        yield EvidenceRecord(model="mine", version=1, monitor="m", horizon=1, session=1, lamp=Lamp.RED, state={})
        cut_connections(postgresql_database)
        yield event("two")

    with pytest.raises(LedgerError, match="the connection was lost"):
        ledger.append(events())
    assert (keys(ledger), ledger.verify().problem) == ([], "")


def test_a_batch_is_not_continued_on_another_connection(ledger: Ledger, postgresql_database: LedgerDatabase) -> None:
    def write() -> None:
        with ledger._store.batch() as batch:
            cut_connections(postgresql_database)
            with suppress(LedgerError):
                ledger.records(LedgerEvent)
            columns = ("kind", "model", "version", "session", "reason", "detail", "key")
            batch.add("event", columns, [("test", "", 0, 0, "", "{}", "one")])

    with pytest.raises(LedgerError, match="the connection was lost"):
        write()
    assert (keys(ledger), ledger.verify().problem) == ([], "")


def test_a_removed_ledger_is_not_made_again_by_who_had_it_open(
    ledger: Ledger, postgresql_database: LedgerDatabase
) -> None:
    remove_tables(postgresql_database)
    cut_connections(postgresql_database)
    for problem in ("the connection was lost", "the database holds no ledger"):
        with pytest.raises(LedgerError, match=problem):
            ledger.append([event("one")])


def test_a_ledger_that_was_replaced_is_refused(ledger: Ledger, postgresql_database: LedgerDatabase) -> None:
    remove_tables(postgresql_database)
    Ledger.open(postgresql_database.address, create=True).close()
    cut_connections(postgresql_database)
    with pytest.raises(LedgerError, match="the connection was lost"):
        ledger.append([event("one")])
    for _ in range(2):
        with pytest.raises(LedgerError, match="the ledger was replaced by another one while it was in use; restart"):
            ledger.append([event("one")])


def test_a_user_without_rights_is_told_which_it_needs(
    ledger: Ledger, postgresql_database: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = postgresql_database.address.rpartition("3D")[2]
    postgresql_database.execute(
        "create user reader password 'pass'",
        f"grant usage on schema {schema} to reader",
        f"grant select on all tables in schema {schema} to reader",
    )
    ledger.append([event("one")])
    monkeypatch.setenv("PGPASSWORD", "pass")
    with Ledger.open(postgresql_database.address.replace("quantra@", "reader@")) as opened:
        assert (keys(opened), opened.verify().problem) == (["one"], "")
        with pytest.raises(LedgerError, match=r"permission denied for table event; .*rights to select and insert"):
            opened.append([event("two")])
