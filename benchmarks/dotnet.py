"""Overhead of the C# client.

The model is the shipped LSTM, trained for one epoch on AAPL's real bars, with one torch thread; a request has 200
bars. Subjects take turns in one run, so that a busy machine affects all of them. Needs dotnet on the PATH.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from benchmarks.calling.subject import save_model, server
from benchmarks.interop.callers import caller_rows
from benchmarks.interop.files import file_rows
from benchmarks.interop.overhead import embedded_rows, grpc_rows
from benchmarks.interop.program import build
from benchmarks.report import Row, parse_arguments, publish
from predictor.inference import use_threads
from trainers.demo.market import real_bars

BARS: Final = 200


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Size of each measurement."""

    rounds: int
    calls: int
    """Calls per turn."""
    times: int
    """Repetitions of what takes seconds."""
    rows: int
    """Rows of the large file."""
    is_judged: bool


FULL: Final = Lengths(rounds=15, calls=200, times=20, rows=1_000_000, is_judged=True)
QUICK: Final = Lengths(rounds=2, calls=20, times=1, rows=20_000, is_judged=False)


def all_rows(folder: Path, lengths: Lengths) -> Iterator[Row]:
    """All rows: over gRPC, embedded, and files."""
    models, file, judged = folder / "models", folder / "bars.csv", lengths.is_judged
    save_model(models, real_bars(["AAPL"]))
    real_bars(["AAPL"]).last(BARS).write_csv(file)
    with server(models) as target:
        yield from grpc_rows(target, file, lengths.rounds, lengths.calls, judged=judged)
        yield from caller_rows(target, models, file, judged=judged)
    yield from embedded_rows(models, file, lengths.rounds, lengths.calls, judged=judged)
    yield from file_rows(folder, lengths.rows, min(lengths.times, 5), judged=judged)


def main() -> int:
    arguments = parse_arguments(__doc__ or "")
    lengths = QUICK if arguments.quick else FULL
    use_threads(1)
    build()
    with tempfile.TemporaryDirectory() as folder:
        return publish(all_rows(Path(folder), lengths), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
