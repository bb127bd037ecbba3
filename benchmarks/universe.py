"""Large panels with long histories through the Python and the C# client, against the same panel cut by hand.

The model is the shipped LSTM, trained for one epoch on AAPL's real bars, in a server process with one torch thread.
Subjects take turns in one run. The C# rows need `dotnet` on the PATH.
"""

import shutil
import statistics
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.calling.subject import Subject, panel_of, server, subject_in
from benchmarks.interop.program import build, turns
from benchmarks.report import Row, at_most, interleaved_medians, parse_arguments, publish, unmeasured
from predictor.bars import BarPanel
from predictor.client import QuantraClient
from predictor.inference import use_threads
from trainers.demo.market import real_bars

SYMBOLS: Final = 500
TIME_REACH: Final = 1.1
MEMORY_REACH: Final = 0.25
_MIB: Final = 2**20


def all_rows(subject: Subject, folder: Path, rounds: int, *, judged: bool) -> Iterator[Row]:
    """Rows of both clients."""
    whole = panel_of(real_bars(["AAPL"]), SYMBOLS)
    cut = whole.last(subject.pipeline.bars_needed)
    with server(subject.models) as target:
        yield from python_rows(target, whole, cut, rounds, judged=judged)
        yield from csharp_rows(target, whole, cut, folder, rounds, judged=judged)


def python_rows(target: str, whole: BarPanel, cut: BarPanel, rounds: int, *, judged: bool) -> Iterator[Row]:
    """Time and memory of the whole panel against the cut one."""
    with QuantraClient(target) as client:
        assert client.predict(whole).forecast_id == client.predict(cut).forecast_id, "the same numbers"
        medians = interleaved_medians(
            {"whole": lambda: client.predict(whole), "cut": lambda: client.predict(cut)}, rounds=rounds, calls=1
        )
        most = max_bytes(client, whole)
    detail = (
        f"{1e3 * medians['whole']:.0f} ms and {1e3 * medians['cut']:.0f} ms; {len(whole.sessions):,} bars, of which "
        f"{len(cut.sessions)} are read; medians of {rounds} rounds"
    )
    name = f"Python, {SYMBOLS} symbols: all bars / the bars read, s"
    yield at_most(name, medians["whole"] / medians["cut"], TIME_REACH, detail=detail, judged=judged)
    size = sum(getattr(whole, column).nbytes for column in whole.columns)
    detail = f"{most / _MIB:.1f} MiB against bars of {size / _MIB:.0f} MiB"
    yield at_most("Python, peak memory of a call / the bars", most / size, MEMORY_REACH, detail=detail, judged=judged)


def max_bytes(client: QuantraClient, panel: BarPanel) -> int:
    """Peak memory that a call allocates."""
    tracemalloc.start()
    client.predict(panel)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def csharp_rows(
    target: str, whole: BarPanel, cut: BarPanel, folder: Path, rounds: int, *, judged: bool
) -> Iterator[Row]:
    """Time of the whole panel against the cut one."""
    name = f"C#, {SYMBOLS} symbols: all bars / the bars read, s"
    if shutil.which("dotnet") is None:
        yield unmeasured(name, "dotnet is not in PATH")
        return
    build()
    files = {"whole": folder / "whole.csv", "cut": folder / "cut.csv"}
    whole.write_csv(files["whole"])
    cut.write_csv(files["cut"])
    with ExitStack() as stack:
        take = {key: stack.enter_context(turns("grpc", f"http://{target}", file)) for key, file in files.items()}
        for turn in take.values():
            turn("predict", 2)
        found = [{key: turn("predict", 1) for key, turn in take.items()} for _ in range(rounds)]
    whole_ms, cut_ms = (statistics.median(one[key] for one in found) for key in files)
    detail = f"{whole_ms:.0f} ms and {cut_ms:.0f} ms; medians of {rounds} rounds"
    yield at_most(name, whole_ms / cut_ms, TIME_REACH, detail=detail, judged=judged)


def main() -> int:
    arguments = parse_arguments(__doc__ or "")
    use_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        subject = subject_in(Path(folder) / "models")
        rows = all_rows(subject, Path(folder), 3 if arguments.quick else 15, judged=not arguments.quick)
        return publish(rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
