"""Writes Qlib's values of its Alpha158 set on the bundled bars, the reference for our tests.

It runs in a separate environment without this project:

    python3 -m venv .venv-peers/pyqlib-0.9.7
    .venv-peers/pyqlib-0.9.7/bin/python -m pip install pyqlib==0.9.7 bokeh_sampledata
    .venv-peers/pyqlib-0.9.7/bin/python benchmarks/peers/alpha158_with_qlib.py tests/fixtures/alpha158.npz

Names and texts come from Qlib's loader and every value from Qlib's operators (`qlib.data.ops`). The columns are the
float64 series of `AdjustedBars`, computed here by the same formulas from the same package, because Qlib's files hold
float32. The file contains their digest, so that a test can compare them.

The file holds every twelfth session up to the last, so that it is small but spans the whole history:
`names` and `texts` [F], `symbols` [S], `sessions` [T] yyyymmdd, `values` float64 [F, S, T] (NaN where Qlib has none),
`digest` (SHA-256 of open, high, low, close and volume, each [S, all sessions]) and `made_with`.
"""

import argparse
import csv
import gzip
import hashlib
from importlib import metadata, resources
from pathlib import Path

import numpy as np
import pandas as pd
from qlib.contrib.data.loader import Alpha158DL
from qlib.data import base
from qlib.data.ops import Operators, OpsList
from qlib.utils import parse_field

SYMBOLS = ("AAPL", "GOOG", "IBM", "MSFT")
HEADERS = {"open": "Open", "high": "High", "low": "Low", "close": "Close", "volume": "Volume", "adj_close": "Adj Close"}
PACKAGES = ("pyqlib", "numpy", "pandas", "bokeh_sampledata")


def bundled() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Sessions and columns [S, T] of the bundled file; NaN if a symbol has no bar."""
    packed = resources.files("bokeh_sampledata").joinpath("_data/stocks.csv.gz").read_bytes()
    rows = [row for row in csv.DictReader(gzip.decompress(packed).decode().splitlines()) if row["Ticker"] in SYMBOLS]
    sessions = sorted({row["Date"] for row in rows})
    place = {session: column for column, session in enumerate(sessions)}
    columns = {name: np.full((len(SYMBOLS), len(sessions)), np.nan) for name in HEADERS}
    for row in rows:
        for name, header in HEADERS.items():
            columns[name][SYMBOLS.index(row["Ticker"]), place[row["Date"]]] = float(row[header])
    return np.array([int(session.replace("-", "")) for session in sessions], np.int32), columns


def adjusted(raw: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Multiply prices by (adj_close / close) over its last value, and divide the volume by it."""
    ratio = raw["adj_close"] / raw["close"]
    factor = ratio / ratio[:, -1:]
    prices = {name: raw[name] * factor for name in ("open", "high", "low", "close")}
    return {**prices, "volume": raw["volume"] / factor}


def frames(columns: dict[str, np.ndarray]) -> dict[str, pd.DataFrame]:
    """The bars of each symbol, one row per bar, with a proxy of the volume-weighted price."""
    extended = {**columns, "vwap": (columns["open"] + columns["high"] + columns["low"] + columns["close"]) / 4}
    present = ~np.isnan(columns["close"])
    return {
        symbol: pd.DataFrame({name: column[row, present[row]] for name, column in extended.items()})
        for row, symbol in enumerate(SYMBOLS)
    }


def register(bars: dict[str, pd.DataFrame]) -> None:
    """Register Qlib's operators, which read these columns instead of Qlib's files."""

    class Feature(base.Feature):
        def _load_internal(self, instrument: str, _start: int, _end: int, _frequency: str) -> pd.Series:
            return bars[instrument][self._name]

    Operators.register([*OpsList, Feature])


def evaluate(text: str, symbol: str, bars: int) -> np.ndarray:
    """Values [bars] of an expression for one symbol; Qlib itself evaluates texts with `eval`."""
    return eval(parse_field(text), {"Operators": Operators}).load(symbol, 0, bars, "day").to_numpy()  # noqa: S307


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--every", type=int, default=12, help="Keep every Nth session.")
    arguments = parser.parse_args()
    sessions, raw = bundled()
    columns = adjusted(raw)
    bars = frames(columns)
    register(bars)
    texts, names = Alpha158DL.get_feature_config()
    present = ~np.isnan(columns["close"])
    values = np.full((len(names), len(SYMBOLS), sessions.size), np.nan)
    for feature, text in enumerate(texts):
        for row, symbol in enumerate(SYMBOLS):
            values[feature, row, present[row]] = evaluate(text, symbol, len(bars[symbol]))
    kept = slice((sessions.size - 1) % arguments.every, None, arguments.every)
    arguments.file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        arguments.file,
        names=np.array(names),
        texts=np.array(texts),
        symbols=np.array(SYMBOLS),
        sessions=sessions[kept],
        values=values[:, :, kept],
        digest=np.array(hashlib.sha256(b"".join(column.tobytes() for column in columns.values())).hexdigest()),
        made_with=np.array([f"{package} {metadata.version(package)}" for package in PACKAGES]),
    )


if __name__ == "__main__":
    main()
