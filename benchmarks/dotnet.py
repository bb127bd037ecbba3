"""What C# adds to a forecast, and what becomes of its callers where networks and processes fail.

The model is the shipped LSTM, trained for one epoch on AAPL's real bars, with one torch thread; questions are 200 bars
of it. What is compared takes turns in one run, so that a busy machine hits all of it. Needs dotnet on the PATH.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from benchmarks.calling.subject import save_model, server
from benchmarks.interop.callers import caller_rows
from benchmarks.interop.doors import embedded_rows, grpc_rows
from benchmarks.interop.feed import feed_rows
from benchmarks.interop.files import file_rows
from benchmarks.interop.network import network_rows
from benchmarks.interop.processes import process_rows
from benchmarks.interop.program import build
from benchmarks.report import parse_arguments, publish
from predictor.inference import use_threads
from trainers.demo.market import real_bars

BARS: Final = 200


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long everything is measured."""

    rounds: int
    calls: int
    """Of a turn."""
    times: int
    """Of what takes seconds each."""
    rows: int
    """Of the large file."""
    feed_s: int
    """Of the live view."""
    is_judged: bool


FULL: Final = Lengths(rounds=15, calls=200, times=20, rows=1_000_000, feed_s=60, is_judged=True)
QUICK: Final = Lengths(rounds=2, calls=20, times=1, rows=20_000, feed_s=30, is_judged=False)


def main() -> int:
    """Measure and report."""
    arguments = parse_arguments(__doc__ or "")
    lengths = QUICK if arguments.quick else FULL
    judged = lengths.is_judged
    use_threads(1)
    build()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models, file = folder / "models", folder / "bars.csv"
        save_model(models, real_bars(["AAPL"]))
        real_bars(["AAPL"]).last(BARS).write_csv(file)
        with server(models) as target:
            rows = [
                *grpc_rows(target, file, lengths.rounds, lengths.calls, judged=judged),
                *caller_rows(target, models, file, judged=judged),
                *network_rows(target, file, min(lengths.times, 5), judged=judged),
            ]
        rows += embedded_rows(models, file, lengths.rounds, lengths.calls, judged=judged)
        rows += process_rows(models, file, lengths.times, judged=judged)
        rows += feed_rows(models, folder, lengths.feed_s, judged=judged)
        rows += file_rows(folder, lengths.rows, min(lengths.times, 5), judged=judged)
    return publish(rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
