"""Bars from SQLite and PostgreSQL, and passwords that never appear in output."""

import importlib.util
import itertools
import sqlite3
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import postgresql
import pytest
from market import bokeh_panel
from postgresql import PASSWORD, Server

from predictor.bars import BarPanel, read_bars
from predictor.errors import BarsError, ConfigurationError, MissingPackageError, QuantraError

FIELDS = ("open", "high", "low", "close", "volume", "adj_close")
TABLE = """
CREATE TABLE {name} (symbol TEXT, date {date}, open {price}, high {price}, low {price}, close {price},
                   volume {volume}, adj_close {price})
"""
INSERT = "INSERT INTO {name} VALUES {rows}"
ALL = "SELECT * FROM bars"


def panel() -> BarPanel:
    return bokeh_panel("AAPL", "IBM").last(50)


def rows(bars: BarPanel) -> Iterator[tuple[str | float, ...]]:
    """One row per bar, with ISO dates."""
    for place, symbol in enumerate(bars.symbols):
        for column, session in enumerate(bars.sessions.tolist()):
            date = f"{session // 10000}-{session // 100 % 100:02d}-{session % 100:02d}"
            yield symbol, date, *(float(getattr(bars, name)[place, column]) for name in FIELDS)


def sqlite(folder: Path, *statements: str, name: str = "market.db") -> str:
    """URI of a SQLite database after these statements."""
    with closing(sqlite3.connect(folder / name)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return f"sqlite:///{folder / name}"


def sqlite_bars(folder: Path) -> str:
    uri = sqlite(folder, TABLE.format(name="bars", date="DATE", price="REAL", volume="INTEGER"))
    with closing(sqlite3.connect(folder / "market.db")) as connection:
        connection.executemany("INSERT INTO bars VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows(panel()))
        connection.commit()
    return uri


def assert_same(one: BarPanel, two: BarPanel) -> None:
    assert one.symbols == two.symbols
    assert np.array_equal(one.sessions, two.sessions)
    for name in FIELDS:
        assert np.array_equal(getattr(one, name), getattr(two, name), equal_nan=True)


def test_a_file_is_read_as_a_file(tmp_path: Path) -> None:
    panel().write_csv(tmp_path / "bars.csv")
    assert_same(read_bars(tmp_path / "bars.csv"), panel())
    assert read_bars(str(tmp_path / "bars.csv"), calendar="XNYS", currency="USD").calendar == "XNYS"


def test_a_table_of_sqlite_gives_the_same_bits_as_the_file(tmp_path: Path) -> None:
    bars = read_bars(sqlite_bars(tmp_path), query=ALL, calendar="XNYS", currency="USD")
    assert_same(bars, panel())
    assert (bars.calendar, bars.currency) == ("XNYS", "USD")


def test_rows_may_come_in_any_order(tmp_path: Path) -> None:
    uri = sqlite_bars(tmp_path)
    for order in ("date, symbol", "symbol DESC, date DESC", "close"):
        assert_same(read_bars(uri, query=f"{ALL} ORDER BY {order}"), panel())


def test_a_relative_file_is_found_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite_bars(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert_same(read_bars("sqlite:///market.db", query=ALL), panel())
    assert_same(read_bars(f"sqlite:////{tmp_path.relative_to('/')}/market.db", query=ALL), panel())


ONE_BAR = "SELECT {date} AS Date, 1 AS Open, 2.5 AS HIGH, 1 AS low, 2 AS 'close', 10 AS volume, 2 AS 'Adj Close'"


@pytest.mark.parametrize("date", ["'2024-01-03'", "'2024-01-03 00:00:00'", "'2024-01-03T16:00:00'", "20240103"])
def test_headers_and_dates_are_read_as_in_files_and_the_database_names_a_single_symbol(
    tmp_path: Path, date: str
) -> None:
    bars = read_bars(sqlite(tmp_path, name="msft.db"), query=ONE_BAR.format(date=date))
    assert bars.symbols == ("MSFT",)
    assert bars.sessions.tolist() == [20240103]
    assert bars.high.tolist() == [[2.5]]


def test_a_query_may_call_the_symbol_ticker(tmp_path: Path) -> None:
    query = "SELECT symbol AS Ticker, date, open, high, low, close, volume, adj_close FROM bars"
    assert_same(read_bars(sqlite_bars(tmp_path), query=query), panel())


def test_a_column_of_a_query_that_may_hold_the_symbol_is_named(tmp_path: Path) -> None:
    query = "SELECT symbol AS instrument, date, open, high, low, close, volume FROM bars"
    with pytest.raises(BarsError, match=r"result has no column symbol.*if column 'instrument' holds it, rename it"):
        read_bars(sqlite_bars(tmp_path), query=query)


def test_whole_numbers_and_nothing_may_stand_before_other_numbers(tmp_path: Path) -> None:
    days = ", ".join(f"({20000101 + day}, 1, NULL)" for day in itertools.chain(range(28), range(100, 128)))
    uri = sqlite(
        tmp_path,
        "CREATE TABLE bars (date, price, split_ratio)",
        INSERT.format(name="bars", rows=f"{days}, (20240103, 1.5, 2.5)"),
    )
    query = "SELECT *, price AS open, price AS high, price AS low, price AS close, 5 AS volume FROM bars"
    bars = read_bars(uri, query=query)
    assert bars.close[0, [0, -1]].tolist() == [1.0, 1.5]
    assert bars.split_ratio is not None
    assert bars.split_ratio[0, -1] == 2.5


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT * FROM nowhere", "market.db returned no bars: .*no such table: nowhere"),
        ("SELEC", "market.db returned no bars: .*syntax error"),
        ("WITH old AS (SELECT 1) DELETE FROM bars", "market.db returned no bars: .*readonly"),
        ("SELECT date, open FROM bars", "result has no column high, low, close, volume; it has date, open"),
        ("SELECT *, close AS CLOSE FROM bars", "the query's result has more than one column close"),
        ("SELECT *, close FROM bars", "market.db returned no bars: .*close"),
        ("SELECT * FROM bars WHERE symbol = 'X'", "the query's result has no rows"),
        (
            "SELECT * FROM bars UNION ALL SELECT symbol, date, open, high, low, close, volume + 1, adj_close FROM bars",
            "AAPL .* appears twice in the query's result",
        ),
        ("SELECT date, symbol, open, high, low, 'x' AS close, volume FROM bars", "column close: 'x' is not a number"),
        (
            "SELECT 'soon' AS date, symbol, open, high, low, close, volume FROM bars",
            "column date: 'soon' is not a date",
        ),
        ("SELECT date, symbol, open, high, low, -close AS close, volume FROM bars", "AAPL .*: close is -"),
    ],
)
def test_what_a_query_cannot_give_is_named(tmp_path: Path, query: str, problem: str) -> None:
    uri = sqlite_bars(tmp_path)
    with pytest.raises(BarsError, match=problem):
        read_bars(uri, query=query)
    assert_same(read_bars(uri, query=ALL), panel())


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(BarsError, match=r"no SQLite database .*nowhere\.db"):
        read_bars(f"sqlite:///{tmp_path}/nowhere.db", query=ALL)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "bars.db").write_text("date,open\n" * 200, encoding="utf-8")
    with pytest.raises(BarsError, match=r"bars\.db returned no bars: .*not a database"):
        read_bars(f"sqlite:///{tmp_path}/bars.db", query=ALL)


@pytest.mark.parametrize(
    ("bars", "query", "variable", "problem"),
    [
        ("", "", "", "either as --bars or"),
        ("bars.csv", "", "MARKET", "either as --bars or"),
        ("bars.csv", ALL, "", "--query needs a database, but bars.csv is a file"),
        ("sqlite:///bars.db", " ", "", "need --query"),
        ("", ALL, "NOWHERE", "environment variable NOWHERE, which is not set"),
        ("", "", "MARKET", "need --query"),
        ("oracle://host/db", ALL, "", "--bars must hold a database's URI, beginning with one of postgresql://, sqlite"),
        ("postgresql:/host/db", ALL, "", "--bars must hold a database's URI"),
    ],
)
def test_flags_that_contradict_themselves_are_refused(bars: str, query: str, variable: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read_bars(bars, query=query, variable=variable, environment={"MARKET": "sqlite:///bars.db"})


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://me:hunter2@host/db",
        "postgres://me:hunter2@host:5432/db?sslmode=require",
        "mssql://me:hunter2@host/db",
        "postgresql://host/db?user=me&password=hunter2",
        "mssql://host/db?Pwd=hunter2",
        "postgresql://:hunter2@[::1]:5432/db",
    ],
)
def test_a_password_on_the_command_line_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--bars holds a password.* as --bars-env") as caught:
        read_bars(uri, query=ALL)
    assert "hunter2" not in everything_of(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://me:hunter2/x@host/db",
        "postgresql://me:hunter2@x@host/db",
        "postgresql://me:hunter2 x@host/db",
        "postgresql://me:hunter2%zz@host/db",
        "postgresql://me:hunter2?x@host/db",
        "postgresql://me:hunter2#x@host/db",
        "postgresql://me:hunter2[x@host/db",
        "postgresql://me:hunter2",
        "postgresql://me:hunter2\nx@host/db",
        "postgresql://me:hunter2\0x@host/db",
        "postgresql://me:hunter2\udcff@host/db",
        "postgresql:/me:hunter2@host/db",
        "mysql://me:hunter2@host/db",
        "host=here password=hunter2",
    ],
)
def test_a_uri_that_a_driver_would_misread_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="the environment variable MARKET") as caught:
        read_bars(variable="MARKET", query=ALL, environment={"MARKET": uri})
    assert "hunter2" not in everything_of(caught.value)


@pytest.mark.parametrize(
    ("uri", "package", "extra"),
    [("postgresql://host/db", "adbc-driver-manager", "data"), ("mssql://host/db", "connectorx", "sqlserver")],
)
def test_a_driver_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, uri: str, package: str, extra: str
) -> None:
    def found(name: str) -> bool | None:
        return True if name == "polars" else None

    monkeypatch.setattr(importlib.util, "find_spec", found)
    with pytest.raises(MissingPackageError) as caught:
        read_bars(uri, query=ALL)
    assert caught.value.metadata == {"package": package, "extra": extra}


def everything_of(error: QuantraError) -> str:
    """Everything that a log could show of an error: message, details, traceback and causes."""
    return "".join((error.message, str(error.metadata), *traceback.format_exception(error)))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with the panel as doubles, and as decimals with timestamps."""
    reason = postgresql.missing()
    if reason:
        pytest.skip(reason)
    values = ", ".join(map(str, rows(panel())))
    with postgresql.running() as started:
        started.execute(
            "CREATE SEQUENCE counter",
            TABLE.format(name="bars", date="date", price="double precision", volume="double precision"),
            INSERT.format(name="bars", rows=values),
            TABLE.format(name="decimals", date="timestamp", price="numeric(24, 16)", volume="bigint"),
            INSERT.format(name="decimals", rows=values),
        )
        yield started


def ask(server: Server, query: str, *, password: str = PASSWORD, database: str = "postgres") -> BarPanel:
    environment = {"MARKET": server.uri(password=password, database=database)}
    return read_bars(variable="MARKET", query=query, environment=environment)


@pytest.mark.parametrize("query", ["SELECT * FROM bars ORDER BY close", "SELECT * FROM decimals"])
def test_a_table_of_postgresql_gives_the_same_bits_as_the_file(server: Server, query: str) -> None:
    assert_same(ask(server, query), panel())


@pytest.mark.parametrize("date", ["date::text", "date::timestamp", "to_char(date, 'YYYYMMDD')::int"])
def test_dates_of_postgresql_are_read_in_every_usual_form(server: Server, date: str) -> None:
    query = "SELECT symbol, {date} AS date, open, high, low, close, volume, adj_close FROM bars"
    assert_same(ask(server, query.format(date=date)), panel())


def test_moments_with_a_time_zone_are_refused_because_their_day_is_not_sure(server: Server) -> None:
    with pytest.raises(BarsError, match=r"timestamps with a time zone.*AT TIME ZONE"):
        ask(server, "SELECT symbol, date::timestamptz AS date, open, high, low, close, volume FROM bars")


def test_the_short_scheme_of_postgresql_is_the_same(server: Server) -> None:
    environment = {"MARKET": server.uri().replace("postgresql://", "postgres://")}
    assert_same(read_bars(variable="MARKET", query=ALL, environment=environment), panel())


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT * FROM nowhere", 'returned no bars: .*relation "nowhere" does not exist'),
        ("SELEC", "returned no bars: .*syntax error"),
        ("SELECT interval '1 day' AS date", "returned no bars: .*interval"),
        ("DELETE FROM bars", "returned no bars: .*cannot execute DELETE in a read-only transaction"),
        ("SELECT nextval('counter') AS close", "returned no bars: .*nextval.* in a read-only transaction"),
        (f"SELECT '{PASSWORD}'::int", r"returned no bars: .*invalid input syntax for type integer: \"\*\*\*\""),
    ],
)
def test_what_postgresql_refuses_is_told_without_the_password(
    server: Server, query: str, problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BarsError, match=problem) as caught:
        ask(server, query)
    shown = everything_of(caught.value) + "".join(capfd.readouterr())
    assert PASSWORD not in shown
    assert server.uri() not in shown


WRONG = "wr0ng/p@ss"


@pytest.mark.parametrize(
    ("password", "database", "problem"),
    [
        (WRONG, "postgres", "password authentication failed for user"),
        (PASSWORD, "nowhere", 'database "nowhere" does not exist'),
        (PASSWORD, "postgres?sslmode=require", "server does not support SSL"),
        (PASSWORD, "postgres?nonsense=1", "invalid URI query parameter"),
    ],
)
def test_a_connection_that_fails_is_explained_without_the_password(
    server: Server, password: str, database: str, problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BarsError, match=problem) as caught:
        ask(server, ALL, password=password, database=database)
    shown = everything_of(caught.value) + "".join(capfd.readouterr())
    for secret in (PASSWORD, WRONG, server.uri(password=password), server.uri(password=password).split("@")[0]):
        assert secret not in shown


def test_an_unreachable_server_is_reported(server: Server) -> None:
    nobody = Server(port=1)
    with pytest.raises(BarsError, match=r"Connection refused|connection to server at .* failed") as caught:
        ask(nobody, ALL)
    assert PASSWORD not in everything_of(caught.value)
    assert ask(server, ALL).symbols == ("AAPL", "IBM")
