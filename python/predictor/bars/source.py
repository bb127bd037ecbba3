"""What a command is told of its bars, and the panel that follows."""

import os
from collections.abc import Mapping
from pathlib import Path

from predictor.bars.address import Address, is_address
from predictor.bars.database import query_table
from predictor.bars.panel import BarPanel
from predictor.errors import ConfigurationError


def read_bars(
    bars: str | Path = "",
    *,
    query: str = "",
    variable: str = "",
    environment: Mapping[str, str] = os.environ,
    calendar: str = "",
    currency: str = "",
) -> BarPanel:
    """Read bars from a file or from a database.

    Args:
        bars: A CSV or Parquet file, or a database's URI without a password: postgresql://, sqlite:// or mssql://.
        query: SQL whose every row is a bar; for a database alone. Rows may come in any order. Columns are those of
            `BarPanel.read`; without a column symbol, all bars are of one that is called like the database, in capitals.
        variable: Name of an environment variable that holds the URI, instead of `bars`; it may hold a password.
        environment: Where that variable stands.
        calendar: The exchange's code, such as "XNYS".
        currency: The code of the quote currency.

    Returns:
        The panel; that of a query has its symbols in alphabetical order.

    Raises:
        ConfigurationError: For what contradicts itself, and for a password in `bars`.
        BarsError: For bars that cannot be read, or a database that refuses; the message holds no password.
        MissingPackageError: Without the extra that is needed.
    """
    if bool(bars) == bool(variable):
        raise ConfigurationError("give the bars either as --bars or, in an environment variable, as --bars-env")
    if not variable and not is_address(str(bars)):
        if query:
            raise ConfigurationError(
                f"--query asks a database, but {bars} is a file; give a URI such as sqlite:///{bars}"
            )
        return BarPanel.read(bars, calendar=calendar, currency=currency)
    address = _from_environment(variable, environment) if variable else _from_command_line(str(bars))
    if not query.strip():
        raise ConfigurationError("bars from a database need --query, such as --query 'SELECT * FROM bars'")
    panel = BarPanel.of_table(query_table(address, query), calendar=calendar, currency=currency)
    return panel.select(sorted(panel.symbols))


def _from_command_line(uri: str) -> Address:
    address = Address.parse(uri, "--bars")
    if address.passwords:
        raise ConfigurationError(
            "--bars holds a password, and a command line can be seen by others; put the URI into an environment "
            "variable, and give that variable's name as --bars-env"
        )
    return address


def _from_environment(variable: str, environment: Mapping[str, str]) -> Address:
    uri = environment.get(variable, "")
    if not uri:
        raise ConfigurationError(f"--bars-env names the environment variable {variable}, which is not set")
    return Address.parse(uri, f"the environment variable {variable}")
