"""Real daily bars of technology stocks, 2000 to 2013, from the package bokeh_sampledata."""

import csv
import gzip
from collections.abc import Sequence
from importlib import resources

import numpy as np

from predictor.bars import BarPanel
from predictor.errors import MissingPackageError

SYMBOLS = ("AAPL", "GOOG", "IBM", "MSFT")
"""The package's stocks with a long history; the fifth, FB, begins in 2012."""
CALENDAR = "XNYS"
"""NASDAQ, where most of these stocks trade, has the same sessions."""

_HEADERS = {
    "open": "Open",
    "high": "High",
    "low": "Low",
    "close": "Close",
    "volume": "Volume",
    "adj_close": "Adj Close",
}


def real_bars(symbols: Sequence[str] = SYMBOLS) -> BarPanel:
    """Bars of these stocks on one date axis: raw prices, with adj_close.

    Raises:
        MissingPackageError: bokeh_sampledata is not installed.
    """
    try:
        packed = resources.files("bokeh_sampledata").joinpath("_data/stocks.csv.gz").read_bytes()
    except ModuleNotFoundError as error:
        raise MissingPackageError.of("bokeh_sampledata", "demo", "the demo's market") from error
    rows = [row for row in csv.DictReader(gzip.decompress(packed).decode().splitlines()) if row["Ticker"] in symbols]
    sessions = sorted({_parse_session(row) for row in rows})
    column_of = {session: t for t, session in enumerate(sessions)}
    columns = {name: np.full((len(symbols), len(sessions)), np.nan) for name in _HEADERS}
    for row in rows:
        for name, header in _HEADERS.items():
            columns[name][symbols.index(row["Ticker"]), column_of[_parse_session(row)]] = float(row[header])
    return BarPanel(
        symbols=tuple(symbols),
        sessions=np.array(sessions, np.int32),
        open=columns["open"],
        high=columns["high"],
        low=columns["low"],
        close=columns["close"],
        volume=columns["volume"],
        adj_close=columns["adj_close"],
        calendar=CALENDAR,
        currency="USD",
    )


def _parse_session(row: dict[str, str]) -> int:
    return int(row["Date"].replace("-", ""))
