"""Real daily bars for tests: AAPL, GOOG, IBM and MSFT, 2000 to 2013, from the package bokeh_sampledata."""

import csv
import gzip
import importlib.resources
from functools import cache

import numpy as np

from predictor.bars import BarPanel

COLUMNS = {
    "open": "Open",
    "high": "High",
    "low": "Low",
    "close": "Close",
    "volume": "Volume",
    "adj_close": "Adj Close",
}


@cache
def _rows() -> dict[str, dict[int, list[float]]]:
    """Symbol to session (yyyymmdd) to the values of COLUMNS."""
    file = importlib.resources.files("bokeh_sampledata").joinpath("_data/stocks.csv.gz")
    rows: dict[str, dict[int, list[float]]] = {}
    with file.open("rb") as packed, gzip.open(packed, "rt", encoding="utf-8") as text:
        for row in csv.DictReader(text):
            session = int(row["Date"].replace("-", ""))
            rows.setdefault(row["Ticker"], {})[session] = [float(row[name]) for name in COLUMNS.values()]
    return rows


@cache
def bokeh_panel(*symbols: str) -> BarPanel:
    """The panel of these symbols, or of all four; raw prices with adj_close."""
    rows = _rows()
    chosen = symbols or tuple(rows)
    sessions = np.array(sorted({session for symbol in chosen for session in rows[symbol]}), dtype=np.int32)
    nothing = [np.nan] * len(COLUMNS)
    values = np.array([[rows[symbol].get(int(session), nothing) for session in sessions] for symbol in chosen])
    columns = {name: values[:, :, place] for place, name in enumerate(COLUMNS)}
    return BarPanel(
        symbols=chosen,
        sessions=sessions,
        open=columns["open"],
        high=columns["high"],
        low=columns["low"],
        close=columns["close"],
        volume=columns["volume"],
        adj_close=columns["adj_close"],
        calendar="XNYS",
        currency="USD",
    )
