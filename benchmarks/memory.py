"""Memory of a training run on 1,000 symbols x 2,500 days, relative to its bars and features.

Bars are random walks in a Parquet file. Each training runs in a separate process, from the file to the saved artifact,
with all windows and one epoch. Growth is the peak memory of the process less its memory after all imports. Bars are
the panel's columns in float64, features the observed values in float32 with their masks. Peaks of stages need Linux.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.environments import ROOT
from benchmarks.report import Row, at_most, parse_arguments, publish, shown, unmeasured

SYMBOLS, DAYS = 1000, 2500
QUICK_SYMBOLS: Final = 50
KINDS: Final = ("lstm", "graph")
LEARNING: Final = 3
"""Number of stages until the weights are trained: reading the bars, computing features, training."""
REACH: Final = 2.0
SEED: Final = 7


def write_bars(path: Path, symbols: int) -> None:
    """Write random walks with different volatilities; some symbols start late."""
    import polars as pl

    random = np.random.default_rng(SEED)
    days = np.datetime64("2010-01-04", "D") + (np.arange(DAYS) // 5 * 7 + np.arange(DAYS) % 5).astype("timedelta64[D]")
    steps = random.standard_normal((symbols, DAYS)) * random.uniform(0.005, 0.03, (symbols, 1))
    close = 50.0 * np.exp(np.cumsum(steps, axis=1))
    opened = close * np.exp(random.standard_normal(close.shape) * 0.003)
    reach = np.exp(np.abs(random.standard_normal(close.shape)) * 0.005)
    there = np.arange(DAYS) >= random.integers(0, DAYS // 5, (symbols, 1)) * (random.random((symbols, 1)) < 0.2)
    names = np.array([f"S{k:04}" for k in range(symbols)])
    rows, columns = np.nonzero(there)
    pl.DataFrame(
        {
            "symbol": names[rows],
            "date": days[columns],
            "open": opened[there],
            "high": (np.maximum(opened, close) * reach)[there],
            "low": (np.minimum(opened, close) / reach)[there],
            "close": close[there],
            "volume": random.integers(10_000, 10_000_000, close.shape)[there].astype(np.float64),
            "adj_close": close[there],
        }
    ).write_parquet(path)


def rows_of(kind: str, bars: Path, *, judged: bool) -> list[Row]:
    """Growth of one training and of each stage."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.forecasts.memory_training", kind, str(bars)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python")])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(ran.stdout.splitlines()[-1])
    plain = found["bars"] + found["features"]
    taken = [stage["peak"] - found["imported"] for stage in found["stages"]]
    learning, whole = max(taken[:LEARNING]), max(taken)
    detail = (
        f"{learning / 1e6:.0f} MB; bars {found['bars'] / 1e6:.0f} MB, features {found['features'] / 1e6:.0f} MB, "
        f"imports {found['imported'] / 1e6:.0f} MB; {found['windows']} training windows"
    )
    return [
        at_most(
            f"{kind}: growth in training / (bars + features)", learning / plain, REACH, detail=detail, judged=judged
        ),
        at_most(
            f"{kind}: the same, including scores and baselines",
            whole / plain,
            REACH,
            detail=f"{whole / 1e6:.0f} MB",
            judged=judged,
        ),
        *(
            shown(
                f"{kind}: {stage['name']}, s",
                stage["seconds"],
                detail=f"peak {(stage['peak'] - found['imported']) / 1e6:.0f} MB",
            )
            for stage in found["stages"]
        ),
    ]


def main() -> int:
    arguments = parse_arguments(__doc__ or "")
    if sys.platform != "linux":
        return publish([unmeasured(kind, "peak memory of stages needs Linux") for kind in KINDS], arguments.json)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        bars = Path(folder) / "bars.parquet"
        write_bars(bars, QUICK_SYMBOLS if arguments.quick else SYMBOLS)
        for kind in KINDS:
            rows += rows_of(kind, bars, judged=not arguments.quick)
    return publish(rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
