"""Waiting times of new users: reading their own file, and the steps from it to a chart of tomorrow's forecast.

The baseline of reading is a strict reader: commas, UTF-8, ISO dates and known column names, without any detection.
Processor time of the whole process, medians of interleaved rounds.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.report import Row, at_most, interleaved_medians, parse_arguments, publish
from predictor.bars import BarPanel, read_file
from predictor.bars.tables import BarTable
from predictor.errors import format_date
from trainers.demo.market import real_bars

ROWS, QUICK_ROWS = 1_000_000, 50_000
SYMBOLS = 400
READING_REACH = 1.1
COMMANDS_REACH = 2
MINUTES_REACH = 3.0
COLUMNS = ("open", "high", "low", "close", "volume")


def write_bars(path: Path, rows: int) -> None:
    """Write a plain CSV with random walks of 400 symbols, sorted by symbol and day."""
    random = np.random.default_rng(0)
    days = rows // SYMBOLS
    dates = [str(day) for day in np.arange("1990-01-01", "2030-01-01", dtype="datetime64[D]")[:days]]
    close = np.round(50 * np.exp(np.cumsum(0.01 * random.standard_normal((SYMBOLS, days)), axis=1)), 2)
    frame = pl.DataFrame(
        {
            "symbol": np.repeat([f"S{at}" for at in range(SYMBOLS)], days),
            "date": dates * SYMBOLS,
            "open": close.ravel(),
            "high": np.round(close * 1.01, 2).ravel(),
            "low": np.round(close * 0.99, 2).ravel(),
            "close": close.ravel(),
            "volume": random.integers(1_000, 9_000_000, rows),
        }
    )
    frame.write_csv(path)


def read_strictly(path: Path) -> BarPanel:
    """Read the bars of a plain file; fails on any error in it."""
    frame = pl.read_csv(path, infer_schema=False)
    text = frame["date"].str.strip_chars()
    readable = text.str.contains(r"^(?:[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ].*)?)$").fill_null(value=False)
    compact = text.str.slice(0, 10).str.replace_all("-", "", literal=True)
    dates = compact.set(~readable, None).str.to_date("%Y%m%d", strict=False)
    days = (dates.dt.year() * 10_000 + dates.dt.month().cast(pl.Int32) * 100 + dates.dt.day()).to_numpy()
    names = frame["symbol"].str.strip_chars()
    symbols = tuple(names.unique(maintain_order=True).to_list())
    owner = names.cast(pl.Enum(symbols)).to_physical().to_numpy().astype(np.intp)
    order = np.argsort(owner, kind="stable")
    assert ((days[order][1:] > days[order][:-1]) | (owner[order][1:] != owner[order][:-1])).all()
    sessions, places = np.unique(days, return_inverse=True)
    columns = {name: spread(frame[name], owner, places, (len(symbols), sessions.size)) for name in COLUMNS}
    return BarPanel.of_table(BarTable(symbols=symbols, sessions=sessions, columns=columns))[0]


def spread(column: pl.Series, owner: "np.ndarray", places: "np.ndarray", shape: tuple[int, int]) -> "np.ndarray":
    """Place a column of rows on the panel's [S, T]."""
    text = column.str.strip_chars()
    text = text.set(text == "", None)
    numbers = text.cast(pl.Float64, strict=False)
    assert numbers.null_count() == text.null_count()
    panel = np.full(shape, np.nan)
    panel[owner, places] = numbers.fill_null(float("nan")).to_numpy()
    return panel


def reading_rows(*, quick: bool, folder: Path) -> Iterator[Row]:
    path = folder / "bars.csv"
    rows = QUICK_ROWS if quick else ROWS
    write_bars(path, rows)
    one, other = read_file(path).panel, read_strictly(path)
    assert np.array_equal(one.close, other.close)
    subjects = {"ours": lambda: read_file(path), "strict": lambda: read_strictly(path)}
    times = interleaved_medians(subjects, rounds=3 if quick else 9, calls=1, clock=time.process_time)
    yield at_most(
        f"reading a plain CSV of {rows:,} rows / strictly",
        times["ours"] / times["strict"],
        READING_REACH,
        detail=f"{1e3 * times['ours']:.0f} against {1e3 * times['strict']:.0f} ms of processor time",
        judged=not quick,
    )


def way_rows(*, quick: bool, folder: Path) -> Iterator[Row]:
    """From a yfinance file to a chart of tomorrow's forecast."""
    bars = folder / "AAPL.csv"
    write_yfinance(bars)
    commands = (
        ("train", "stock", "--bars", str(bars), "--calendar", "XNYS", "--out", str(folder / "models" / "mine" / "1")),
        (
            "predict",
            "--artifact",
            str(folder / "models" / "mine" / "1"),
            "--bars",
            str(bars),
            "--plot",
            str(folder / "f.html"),
        ),
    )
    begin = time.perf_counter()
    for command in commands:
        short = ("--epochs", "1") if quick and command[0] == "train" else ()
        subprocess.run([sys.executable, "-m", "trainers.cli", *command, *short], check=True, capture_output=True)
    minutes = (time.perf_counter() - begin) / 60
    assert (folder / "f.html").stat().st_size
    yield at_most(
        "commands from a user's file to a chart", len(commands), COMMANDS_REACH, detail="train stock, predict --plot"
    )
    yield at_most("the same, minutes", minutes, MINUTES_REACH, detail="3,270 bars, default settings", judged=not quick)


def write_yfinance(path: Path) -> None:
    """Write the demo's bars of AAPL in the format of `yfinance.download("AAPL").to_csv()`."""
    bars = real_bars(["AAPL"])
    fields = ("close", "high", "low", "open", "volume")
    columns = [getattr(bars, field)[0].tolist() for field in fields]
    lines = [
        f"Price,{','.join(field.capitalize() for field in fields)}",
        f"Ticker{',AAPL' * len(fields)}",
        f"Date{',' * len(fields)}",
        *(",".join(map(str, row)) for row in zip(map(format_date, bars.sessions.tolist()), *columns, strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def rows(*, quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield from reading_rows(quick=quick, folder=Path(folder))
        yield from way_rows(quick=quick, folder=Path(folder))


def main() -> None:
    arguments = parse_arguments(__doc__ or "")
    sys.exit(publish(rows(quick=arguments.quick), arguments.json))


if __name__ == "__main__":
    main()
