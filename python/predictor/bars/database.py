"""Bars from a database: one query whose every row is a bar, read through polars (extra `data`)."""

import importlib.util
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

from predictor.bars.address import Address
from predictor.bars.columns import plainly_named
from predictor.bars.files import Source, Table, table_of
from predictor.errors import BarsError, MissingPackageError

if TYPE_CHECKING:
    import polars as pl

SOURCE_NAME: Final = "the query's answer"


def query_table(address: Address, query: str) -> Table:
    """The bars that a query gives, in any order of rows; columns as in a file, see `BarPanel.read`.

    Raises:
        BarsError: With what the database says, without its address, or naming the column or cell that cannot be read.
        MissingPackageError: Without the database's extra.
    """
    _require(("polars",), "data", "reading bars from a database")
    frame = _from_file(address, query) if address.scheme == "sqlite" else _from_server(address, query)
    source = Source(name=SOURCE_NAME, symbol=address.database.upper(), ordered=False)
    frame = plainly_named(frame.select(_plain(column) for column in frame), source)
    if "date" in frame.columns:
        _check_own_day(frame["date"])
    return table_of(frame, source)


def _from_file(address: Address, query: str) -> "pl.DataFrame":
    """The answer of an SQLite file, opened for reading alone; a column's type is judged by all of its values."""
    import polars as pl

    file = address.file.resolve()
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
            return pl.read_database(query, connection, infer_schema_length=None)
    except (sqlite3.Error, sqlite3.Warning, pl.exceptions.PolarsError) as error:
        raise BarsError(f"the database {file.name} gave no bars: {error}") from error


def _from_server(address: Address, query: str) -> "pl.DataFrame":
    """The answer of a server. Only connectorx knows SQL Server; ADBC, which does not, is smaller and fails at once."""
    if address.scheme == "mssql":
        _require(("connectorx", "pyarrow"), "sqlserver", "reading bars from SQL Server")
        return _answer(address, query, _from_sql_server, RuntimeError)
    _require(("adbc_driver_manager", "adbc_driver_postgresql"), "data", "reading bars from PostgreSQL")
    from adbc_driver_manager import Error

    return _answer(address, query, _from_postgresql, Error)


def _from_sql_server(uri: str, query: str) -> "pl.DataFrame":
    import polars as pl

    return pl.read_database_uri(query, uri, engine="connectorx")


def _from_postgresql(uri: str, query: str) -> "pl.DataFrame":
    """What `read_database_uri` does, in a transaction that may not write, and that is rolled back."""
    import polars as pl
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute(query)
        return pl.DataFrame(cursor.fetch_arrow())  # pyright: ignore[reportArgumentType] - a stream of Arrow, as polars asks


def _answer(
    address: Address, query: str, ask: Callable[[str, str], "pl.DataFrame"], refusal: type[Exception]
) -> "pl.DataFrame":
    """Ask a server. The driver's own error may hold the password, so it is neither chained nor shown as it is."""
    import polars as pl

    try:
        return ask(address.uri, query)
    except (refusal, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        problem = address.scrubbed(str(error))
    raise BarsError(f"the database gave no bars: {problem}")


def _require(packages: tuple[str, ...], extra: str, purpose: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError.of(package.replace("_", "-"), extra, purpose)


def _plain(column: "pl.Series") -> "pl.Series":
    """PostgreSQL's NUMERIC arrives as text under a type of its own; the text is what is read."""
    import polars as pl

    return column.ext.storage() if isinstance(column.dtype, pl.BaseExtension) else column


def _check_own_day(column: "pl.Series") -> None:
    """Refuse moments: which day they are depends on where one stands."""
    import polars as pl

    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None:
        raise BarsError(
            f"{SOURCE_NAME}: column date holds moments with a time zone, not days; give the exchange's own day, such "
            "as (date AT TIME ZONE 'America/New_York')::date AS date"
        )
