"""Reading of bars from a file, or from a database query that returns one row per bar (extra `data`).

A database's URI may contain a password, so messages never show it.
"""

import importlib.util
import os
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, final
from urllib.parse import parse_qsl, unquote

from predictor.bars.columns import normalise_columns
from predictor.bars.files import TableCells
from predictor.bars.folders import MAX_NAMED, is_remote, name_of, read_partitions, read_paths
from predictor.bars.panel import BarPanel
from predictor.bars.suspects import find_unexplained_splits
from predictor.bars.tables import BarTable, ReadingOptions, TableSource, build_table, emit_warnings
from predictor.errors import BarsError, ConfigurationError, MissingPackageError, format_date

if TYPE_CHECKING:
    import polars as pl


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BarReading:
    """Bars, and how their source was interpreted.

    Attributes:
        panel: The bars.
        name: The source's name, for messages.
        layout: The layout's name.
        prices: How the source records splits and dividends.
        remarks: Notes on the interpretation.
        warnings: Doubtful properties of the source.
    """

    panel: BarPanel
    name: str
    layout: str
    prices: str
    remarks: tuple[str, ...]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, table: BarTable, name: str, *, calendar: str = "", currency: str = "") -> Self:
        """Create a panel from a table; see `BarPanel.of_table`."""
        panel, warnings = BarPanel.of_table(table, calendar=calendar, currency=currency)
        return cls(
            panel=panel,
            name=name,
            layout=table.layout,
            prices=str(table.prices),
            remarks=table.remarks,
            warnings=warnings,
        )

    def __str__(self) -> str:
        """One line, such as: bars.csv read as yfinance, 4 symbols, 2010-01-04 to 2026-11-20, with adjusted closes."""
        symbols, sessions = self.panel.symbols, self.panel.sessions
        names = ", ".join(symbols) if len(symbols) <= MAX_NAMED else f"{len(symbols)} symbols"
        span = f"{format_date(int(sessions[0]))} to {format_date(int(sessions[-1]))}"
        parts = [f"{self.name} read as {self.layout}", names, span, self.prices]
        jumps = find_unexplained_splits(self.panel).count
        if jumps:
            parts.append(f"{jumps} split{'s' if jumps > 1 else ''} suspected")
        return "; ".join([", ".join(parts), *self.remarks, *self.warnings])


def read_file(
    path: str | Path, options: ReadingOptions | None = None, *, calendar: str = "", currency: str = ""
) -> BarReading:
    """Read a file of bars, with its interpretation; see `BarPanel.read`."""
    return read_files([path], options, calendar=calendar, currency=currency)


def read_files(
    paths: Sequence[str | Path], options: ReadingOptions | None = None, *, calendar: str = "", currency: str = ""
) -> BarReading:
    """Read files of bars as one panel, such as one file per symbol."""
    files = [Path(path) for path in paths]
    return BarReading.of(read_paths(files, options), name_of(files), calendar=calendar, currency=currency)


SCHEMES: Final = ("postgresql", "sqlite", "mssql")

MASK: Final = "***"


_ALIASES: Final = {"postgres": "postgresql"}

_URI_PATTERN: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/(?P<rest>/.*)?", re.DOTALL)

_SERVER_ADDRESS: Final = re.compile(
    r"/(?:[^\s:/?#@\[\]]*(?::(?P<password>[^\s:/?#@\[\]]*))?@)?"  # the user and the password
    r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]*)(?::[0-9]+)?"  # the host and the port
    r"(?:/(?P<database>[^\s/?#@]*))?"
    r"(?:\?(?P<settings>[^\s#@]*))?"
)

_BARE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

_SECRET: Final = re.compile(r"passw|pwd|secret|token", re.IGNORECASE)


SOURCE_NAME: Final = "the query's result"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAddress:
    """A parsed database URI.

    Attributes:
        uri: The complete URI, only for drivers.
        scheme: postgresql, sqlite or mssql.
        database: The database's name; for SQLite the file's name without its suffix. May be empty.
        passwords: Secrets that messages must not contain, both percent-encoded and decoded.
    """

    uri: str = field(repr=False)
    scheme: str
    database: str
    passwords: frozenset[str] = field(repr=False)

    @classmethod
    def parse(cls, uri: str, origin: str) -> Self:
        """Parse a URI. Rejects URIs that a driver could misread, since its error could then quote the password.

        Args:
            uri: Such as postgresql://user:password@host:5432/database or sqlite:///folder/file.db.
            origin: The source of the URI, for messages, which never quote it.

        Raises:
            ConfigurationError: The scheme is unknown, or characters are not percent-encoded.
        """
        match = _URI_PATTERN.fullmatch(uri)
        scheme = match["scheme"].lower() if match else ""
        scheme = _ALIASES.get(scheme, scheme)
        if match is None or match["rest"] is None or scheme not in SCHEMES:
            schemes = ", ".join(f"{name}://" for name in SCHEMES)
            raise ConfigurationError(f"{origin} must hold a database's URI, beginning with one of {schemes}")
        uri = f"{scheme}:/{match['rest']}"
        if scheme == "sqlite":
            return cls(uri=uri, scheme=scheme, database=Path(match["rest"]).stem, passwords=frozenset())
        parts = _SERVER_ADDRESS.fullmatch(match["rest"])
        if parts is None or _BARE_PERCENT.search(uri) or not uri.isprintable():
            raise ConfigurationError(
                f"the URI of {origin} cannot be read: write {scheme}://user:password@host:port/database, and in user "
                "and password percent-encode all but letters, digits and -._~ (@ is %40, / is %2F, % is %25)"
            )
        password = parts["password"] or ""
        settings = parts["settings"] or ""
        settings_pairs = [part.partition("=") for part in settings.split("&")]
        encoded = [value for name, _, value in settings_pairs if _SECRET.search(name)]
        decoded = [value for name, value in parse_qsl(settings) if _SECRET.search(name)]
        passwords = frozenset(text for text in (password, unquote(password), *encoded, *decoded) if text)
        return cls(uri=uri, scheme=scheme, database=unquote(parts["database"] or ""), passwords=passwords)

    def redact(self, message: str) -> str:
        """Remove the URI, its passwords and line breaks from a driver's message."""
        for secret in sorted({self.uri, *self.passwords}, key=len, reverse=True):
            message = message.replace(secret, MASK)
        return " ".join(message.split())

    @property
    def file(self) -> Path:
        """SQLite's file: the path after `sqlite://`, or if it does not exist, the path without its first slash.

        Some programs treat the third slash as part of the path and some do not.

        Raises:
            BarsError: Neither file exists; SQLite itself would create an empty database.
        """
        text = self.uri.partition("://")[2]
        candidates = (Path(text), Path(text.removeprefix("/")))
        for candidate in candidates:
            if candidate.is_file():
                return candidate
        raise BarsError(f"there is no SQLite database {candidates[0]}, nor {candidates[1]} in the current folder")


def is_address(source: str) -> bool:
    """Whether a source looks like a URI, valid or not, rather than a path; `C:/bars.csv` is a path."""
    return _URI_PATTERN.match(source) is not None


def query_table(address: DatabaseAddress, query: str, options: ReadingOptions | None = None) -> BarTable:
    """Read the bars that a query returns, in any order of rows; for the columns see `BarPanel.read`.

    Raises:
        BarsError: The database returns an error, which is shown without its URI, or a column or cell is invalid.
        MissingPackageError: The database's extra is not installed.
    """
    _require(("polars",), "data", "reading bars from a database")
    import polars as pl

    frame = _query_file(address, query) if address.scheme == "sqlite" else _query_server(address, query)
    symbol = address.database.upper()
    source = TableSource(name=SOURCE_NAME, symbol=symbol, is_ordered=False, options=options or ReadingOptions())
    # PostgreSQL's NUMERIC arrives as an extension type over strings
    unwrapped = (column.ext.storage() if isinstance(column.dtype, pl.BaseExtension) else column for column in frame)
    frame = normalise_columns(frame.select(unwrapped), source.name)
    kind = frame["date"].dtype if "date" in frame.columns else None
    if isinstance(kind, pl.Datetime) and kind.time_zone is not None:
        raise BarsError(
            f"{SOURCE_NAME}: column date holds timestamps with a time zone, not dates; select the exchange's local "
            "date, such as (date AT TIME ZONE 'America/New_York')::date AS date"
        )
    return build_table(TableCells(frame=frame), source)


def _query_file(address: DatabaseAddress, query: str) -> "pl.DataFrame":
    """Query a SQLite file in read-only mode, inferring each column's type from all of its values."""
    import polars as pl

    file = address.file.resolve()
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
            return pl.read_database(query, connection, infer_schema_length=None)
    except (sqlite3.Error, sqlite3.Warning, pl.exceptions.PolarsError) as error:
        raise BarsError(f"the database {file.name} returned no bars: {error}") from error


def _query_server(address: DatabaseAddress, query: str) -> "pl.DataFrame":
    """Query a server. SQL Server requires connectorx; ADBC does not support it, but is smaller and fails fast."""
    if address.scheme == "mssql":
        _require(("connectorx", "pyarrow"), "sqlserver", "reading bars from SQL Server")
        return _run_query(address, query, _query_sql_server, RuntimeError)
    _require(("adbc_driver_manager", "adbc_driver_postgresql"), "data", "reading bars from PostgreSQL")
    from adbc_driver_manager import Error

    return _run_query(address, query, _query_postgresql, Error)


def _query_sql_server(uri: str, query: str) -> "pl.DataFrame":
    import polars as pl

    return pl.read_database_uri(query, uri, engine="connectorx")


def _query_postgresql(uri: str, query: str) -> "pl.DataFrame":
    """As polars' `read_database_uri`, but in a read-only transaction that is rolled back."""
    import polars as pl
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute(query)
        return pl.DataFrame(cursor.fetch_arrow())  # pyright: ignore[reportArgumentType] - a stream of Arrow, as polars asks


def _run_query(
    address: DatabaseAddress, query: str, ask: Callable[[str, str], "pl.DataFrame"], refusal: type[Exception]
) -> "pl.DataFrame":
    """Query a server. Errors of the driver may contain the password, so they are redacted and not chained."""
    import polars as pl

    try:
        return ask(address.uri, query)
    except (refusal, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        problem = address.redact(str(error))
    raise BarsError(f"the database returned no bars: {problem}")


def _require(packages: tuple[str, ...], extra: str, purpose: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError.of(package.replace("_", "-"), extra, purpose)


def read_bars(
    bars: str | Path | Sequence[str | Path] = "",
    *,
    query: str = "",
    variable: str = "",
    environment: Mapping[str, str] = os.environ,
    calendar: str = "",
    currency: str = "",
    options: ReadingOptions | None = None,
) -> BarPanel:
    """Read bars from files or a database, and emit warnings as BarsWarning; see `read_source`."""
    reading = read_source(
        bars,
        query=query,
        variable=variable,
        environment=environment,
        calendar=calendar,
        currency=currency,
        options=options,
    )
    emit_warnings(reading.warnings, reading.name)
    return reading.panel


def read_source(
    bars: str | Path | Sequence[str | Path] = "",
    *,
    query: str = "",
    variable: str = "",
    environment: Mapping[str, str] = os.environ,
    calendar: str = "",
    currency: str = "",
    options: ReadingOptions | None = None,
) -> BarReading:
    """Read bars from files or a database, with their interpretation.

    Args:
        bars: A file or several, see `BarPanel.read`; an address of Parquet files without a query, such as
            s3://bucket/bars/ or https://host/bars.parquet; or a database's URI without a password: postgresql://, sqlite://
            or mssql://.
        query: SQL that returns one row per bar; only for a database. Rows may come in any order. Columns are those of
            `BarPanel.read`; without a column symbol, the only symbol is the database's name in capitals.
        variable: Name of an environment variable with the URI, instead of `bars`; the URI may contain a password.
        environment: The environment variables.
        calendar: The exchange's code, such as "XNYS".
        currency: The code of the quote currency.
        options: Options that resolve ambiguous cells.

    Returns:
        The bars; the symbols of a query are sorted alphabetically.

    Raises:
        ConfigurationError: The arguments contradict each other, or `bars` contains a password.
        BarsError: The bars are invalid, or the database returns an error; the message contains no password.
        MissingPackageError: A required extra is not installed.
    """
    sources = [source for source in ([bars] if isinstance(bars, str | Path) else bars) if source]
    if bool(sources) == bool(variable):
        raise ConfigurationError("pass the bars either as --bars or, in an environment variable, as --bars-env")
    if len(sources) == 1 and is_remote(str(sources[0])):
        if query:
            raise ConfigurationError("--query needs a database, but --bars holds the address of Parquet files")
        table = read_partitions(str(sources[0]), options)
        return BarReading.of(table, Path(sources[0]).name, calendar=calendar, currency=currency)
    if sources and not any(is_address(str(source)) for source in sources):
        if query:
            raise ConfigurationError(
                f"--query needs a database, but {sources[0]} is a file; pass a URI such as sqlite:///{sources[0]}"
            )
        return read_files(sources, options, calendar=calendar, currency=currency)
    if len(sources) > 1:
        raise ConfigurationError("--bars holds a database's URI and another source; pass the URI only")
    if variable:
        uri = environment.get(variable, "")
        if not uri:
            raise ConfigurationError(f"--bars-env names the environment variable {variable}, which is not set")
        address = DatabaseAddress.parse(uri, f"the environment variable {variable}")
    else:
        address = DatabaseAddress.parse(str(sources[0]), "--bars")
        if address.passwords:
            raise ConfigurationError(
                "--bars holds a password, and other users can see a command line; put the URI into an environment "
                "variable, and pass that variable's name as --bars-env"
            )
    if not query.strip():
        raise ConfigurationError("bars from a database need --query, such as --query 'SELECT * FROM bars'")
    reading = BarReading.of(query_table(address, query, options), SOURCE_NAME, calendar=calendar, currency=currency)
    return replace(reading, panel=reading.panel.select(sorted(reading.panel.symbols)))
