"""Overhead of the server, over a real connection to a separate server process.

The shipped code trains the shipped LSTM for one epoch on AAPL's real bars, and `python -m predictor.server` serves it
with one torch thread. Another process calls in a closed loop: requests are encoded beforehand, responses stay bytes,
and 1, 8 or 32 calls are in flight on up to four connections. Subjects alternate in rounds, so that a busy machine
affects all of them, and every ratio is of one run.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from benchmarks.calling.explanations import explanation_load, explanation_rows
from benchmarks.calling.kserve import KSERVE, infer_bytes, kserve_rows
from benchmarks.calling.load import load
from benchmarks.calling.processes import process_rows
from benchmarks.calling.rates import BARS, WINDOWS, client_rows, rate_rows
from benchmarks.calling.recorded import recorded_rows
from benchmarks.calling.secured import secured_rows
from benchmarks.calling.sessions import session_rows
from benchmarks.calling.stages import stage_rows
from benchmarks.calling.streams import stream_rows
from benchmarks.calling.subject import INFER, Subject, server, subject_in
from benchmarks.calling.triton import triton_rows
from benchmarks.calling.watched import watched_rows
from benchmarks.calling.wide import ROWS, rows_rows
from benchmarks.preparing import BenchmarkedModel, opened
from benchmarks.report import Row, common_options, publish
from predictor.client import QuantraClient
from predictor.inference import use_threads

_WIDE_WINDOWS: Final = "wide windows"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Size of each measurement."""

    rounds: int
    """Number of rounds."""
    seconds: float
    """Length of one turn."""
    calls: int
    """Calls of a single client, or in this process."""
    is_judged: bool


FULL: Final = Lengths(rounds=9, seconds=2.0, calls=300, is_judged=True)
QUICK: Final = Lengths(rounds=3, seconds=0.4, calls=20, is_judged=False)


def served_rows(subject: Subject, work: BenchmarkedModel, lengths: Lengths) -> Iterator[Row]:
    """Rows that one server process suffices for."""
    rounds, seconds, judged = lengths.rounds, lengths.seconds, lengths.is_judged
    requests = {
        WINDOWS: subject.asked_with_windows(),
        BARS: subject.asked_with_bars(),
        _WIDE_WINDOWS: subject.asked_with_windows(ROWS),
        KSERVE: infer_bytes(subject),
    }
    with server(subject.models) as target, load(target, requests, methods={KSERVE: INFER}) as asking:
        yield from rate_rows(asking, rounds, seconds, judged=judged)
        yield from kserve_rows(asking, rounds, seconds, judged=judged)
        yield from stream_rows(asking, rounds, seconds, judged=judged)
        yield from rows_rows(asking, _WIDE_WINDOWS, work.model, subject, rounds, judged=judged)
        with explanation_load(target) as explanations:
            yield from explanation_rows(asking, explanations, rounds, seconds, judged=judged)
        yield from client_rows(target, requests[BARS], subject.bars, lengths.calls)
        with QuantraClient(target) as client:
            yield from session_rows(client, rounds, judged=judged)


def all_rows(folder: Path, lengths: Lengths) -> Iterator[Row]:
    """All rows, one server after another."""
    subject, judged = subject_in(folder / "models"), lengths.is_judged
    rounds, seconds = lengths.rounds, lengths.seconds
    with opened(subject) as work:
        yield from served_rows(subject, work, lengths)
    yield from secured_rows(subject, folder / "certs", rounds, seconds, judged=judged)
    yield from watched_rows(subject, rounds, seconds, judged=judged)
    yield from recorded_rows(subject, rounds, seconds, judged=judged)
    yield from process_rows(subject, rounds, seconds, judged=judged)
    yield from stage_rows(subject, folder / "log", seconds)


def main() -> int:
    parser = common_options(__doc__ or "")
    parser.add_argument("--peers", action="store_true", help="compare only with Triton, in a separate environment")
    arguments = parser.parse_args()
    lengths = QUICK if arguments.quick else FULL
    use_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.peers:
            subject = subject_in(Path(folder) / "models")
            rows = triton_rows(subject, lengths.rounds, lengths.seconds, judged=lengths.is_judged)
        else:
            rows = all_rows(Path(folder), lengths)
        return publish(rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
