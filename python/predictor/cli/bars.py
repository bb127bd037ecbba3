"""The three flags that say where bars come from."""

from typing import Annotated

import typer

from predictor.bars import BarPanel, read_bars

Bars = Annotated[
    str,
    typer.Option(
        metavar="FILE|URI",
        help="Daily bars: a .csv or .parquet file, oldest first, or with --query a database, such as sqlite:///bars.db.",
    ),
]
BarsQuery = Annotated[str, typer.Option(metavar="SQL", help="Query of a database whose every row is a bar.")]
BarsEnv = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Environment variable with the database's address, in place of --bars; it may hold a password.",
    ),
]


def chosen_bars(bars: str, query: str, bars_env: str) -> BarPanel:
    """The bars that the flags name.

    Raises:
        BadParameter: there is none or more than one place that they could come from.
        QuantraError: see `read_bars`.
    """
    if bool(bars) == bool(bars_env):
        raise typer.BadParameter("give either --bars or --bars-env")
    return read_bars(bars, query=query, variable=bars_env)
