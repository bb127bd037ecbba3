"""A large file of bars, read in C# and in Python."""

import statistics
import time
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.interop.program import results_of
from benchmarks.report import Row, at_most
from predictor.bars import BarPanel
from trainers.demo.market import real_bars

SLOWER_REACH: Final = 1.0
MEMORY_REACH: Final = 3.0


def file_rows(folder: Path, rows: int, times: int, *, judged: bool) -> list[Row]:
    """Time and memory of reading a file with `rows` bars."""
    file = folder / "many.csv"
    write(file, rows)
    found = [(results_of("csv", file)[0], python_s(file)) for _ in range(times)]
    size = file.stat().st_size
    detail = f"{rows:,} rows, {size / 2**20:.0f} MiB; each C# run in a separate process; median of {times}"
    return [
        at_most(
            "ReadCsvAsync / BarPanel.read, s",
            statistics.median(csharp["seconds"] / python for csharp, python in found),
            SLOWER_REACH,
            detail=f"{statistics.median(one['seconds'] for one, _ in found):.2f} s; {detail}",
            judged=judged,
        ),
        at_most(
            "ReadCsvAsync, peak memory / the file",
            max(one["bytes"] for one, _ in found) / size,
            MEMORY_REACH,
            detail=detail,
            judged=judged,
        ),
    ]


def write(file: Path, rows: int) -> None:
    """Write a file with `rows` rows, of as many symbols as needed."""
    bars = real_bars(["AAPL"])
    count = -(-rows // len(bars.sessions))
    columns = {name: getattr(bars, name)[0] for name in ("open", "high", "low", "close", "volume")}
    lines = [
        ",".join([str(day), *(f"{columns[name][place]:.4f}" for name in columns)])
        for place, day in enumerate(np.asarray(bars.sessions).tolist())
    ]
    with file.open("w", encoding="utf-8") as out:
        out.write("symbol,date,open,high,low,close,volume\n")
        written = (f"S{symbol},{line}\n" for symbol in range(count) for line in lines)
        out.writelines(line for _, line in zip(range(rows), written, strict=False))


def python_s(file: Path) -> float:
    """Time of reading in Python."""
    start = time.perf_counter()
    BarPanel.read(file)
    return time.perf_counter() - start
