"""The fault of memory that runs out while a server works, and that of a model made in a mode that forgets gradients."""

import asyncio
import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import grpc
import numpy as np

from benchmarks.faults.calls import EXPLAIN, NO_ANSWER, PREDICT, Ended, ask_once, codes, predict_request
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.models import NAME
from benchmarks.faults.mutants import delimited
from benchmarks.faults.served import MIB, MOST_DATA_KIB, Server, serving
from benchmarks.report import at_least, at_most
from predictor._pb import prediction_pb2 as pb

ROOM: Final = 64 * MIB
"""What the server may take beyond what it holds: far less than a forward of all rows needs, and enough for gRPC, which
ends the process where it finds no memory for a request's bytes or for another thread."""
GIVING_BACK: Final = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
"""Else glibc keeps what is freed, which counts, until gRPC gets nothing and ends the process."""
MANY_FIELDS: Final = 300
"""So many are counted on a thread of their own."""
UNKNOWN: Final = 1000
ROUNDS, QUICK_ROUNDS = 4, 1
ROWS, QUICK_ROWS = 400, 150
FORWARD_ROWS: Final = 2048
PATIENCE_S: Final = 120.0
TOLERANCE: Final = 1e-5
"""Of returns, between rows that share a forward and rows that do not."""
_TAKEN: Final = frozenset({grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED})


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of the server, over and over."""

    large: bytes
    """A prediction whose forward does not fit into the room."""
    explanation: bytes
    small: bytes


def run(place: Place) -> Iterator[Finding]:
    """Room for a part of the work, then for all of it; afterwards the mode."""
    rows = place.count(ROWS, QUICK_ROWS)
    asked = Asked(
        large=predict_request(*[place.material.window()] * rows),
        explanation=pb.ExplainRequest(model=NAME, instance=place.material.one_stock()).SerializeToString(),
        small=predict_request(place.material.one_stock()),
    )
    options = ("--log-level", "info", "--max-batch-rows", str(FORWARD_ROWS))
    with serving(place.material.heavy, place.log, *options, environment=GIVING_BACK) as server:
        _begin_threads(place, server)
        leave(server, ROOM)
        short = [_all(server, asked) for _ in range(place.count(ROUNDS, QUICK_ROUNDS))]
        leave(server, MOST_DATA_KIB * 1024)
        after = _all(server, asked)
        died = not server.is_alive
    yield _finding(place, short, after, rows, died=died)
    yield inference_mode(place)


def _begin_threads(place: Place, server: Server) -> None:
    """Let every thread begin that the calls need, with as little as may be: what it takes once is not given back."""
    fields = delimited(UNKNOWN, b"") * MANY_FIELDS
    ask_for = ((PREDICT, fields + predict_request(place.material.one_stock())), (EXPLAIN, b""), (PREDICT, b""))
    for path, body in ask_for:
        asyncio.run(ask_once(server.target, path, body, PATIENCE_S))


def _finding(
    place: Place, rounds: Sequence[Sequence[Ended]], after: Sequence[Ended], rows: int, *, died: bool
) -> Finding:
    """A call is answered as with all the memory there is, or refused and told when to come again; a small one never."""
    calls = [end for some in rounds for end in some]
    refused = [end for end in calls if end.code is grpc.StatusCode.RESOURCE_EXHAUSTED]
    silent = sum(end.retry_s is None for end in refused)
    strange = sum(end.code not in _TAKEN | NO_ANSWER for end in calls)
    different = sum(_differs(some[k], after[k]) for some in rounds for k in (0, 2) if _is_ok(some[k]))
    small = sum(not _is_ok(some[2]) for some in rounds)
    later = sum(not _is_ok(end) for end in after)
    log = place.log.read_text(encoding="utf-8")
    tries, traces = log.count("the next try is smaller"), log.count("Traceback")
    return Finding(
        fault="memory runs out",
        done=f"{ROOM / MIB:g} MiB of room: {len(rounds)} times {rows} windows, an explanation, one stock",
        calls=len(calls) + len(after),
        wrong=strange + silent + different + small + later + died,
        lost=sum(end.code in NO_ANSWER for end in [*calls, *after]),
        rows=[
            at_least("steps that did not fit", tries, 1, detail="and were tried in halves", judged=not place.quick),
            at_most("calls of one stock not answered", small, 0, detail=f"of {len(rounds)}"),
            at_most("predictions that differ", different, 0, detail=f"by over {TOLERANCE:g} from those with all room"),
            at_most("refused without RetryInfo", silent, 0, detail=f"of {len(refused)}"),
            at_most("calls afterwards that are not OK", later, 0, detail=codes(after)),
            at_most("stack traces in the log", traces, 0, detail="one line tells it"),
        ],
        detail=codes(calls),
        naive="naive: the CPU's allocator raises a plain RuntimeError, which ends such a call as UNKNOWN",
    )


def leave(server: Server, room: int) -> None:
    """Let the server take as many bytes more than it has now; the limit counts what it may write to, used or not."""
    if not server.is_alive:  # which the calls tell
        return
    status = Path(f"/proc/{server.popen.pid}/status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"^VmData:\s+(\d+)", status, re.MULTILINE)
    assert found is not None
    most = MOST_DATA_KIB * 1024
    resource.prlimit(server.popen.pid, resource.RLIMIT_DATA, (min(most, int(found[1]) * 1024 + room), most))


def _all(server: Server, asked: Asked) -> list[Ended]:
    """The large prediction, the explanation, the small prediction."""
    calls = ((PREDICT, asked.large), (EXPLAIN, asked.explanation), (PREDICT, asked.small))
    return [asyncio.run(ask_once(server.target, path, body, PATIENCE_S)) for path, body in calls]


def _is_ok(end: Ended) -> bool:
    return end.code is grpc.StatusCode.OK


def _differs(now: Ended, then: Ended) -> bool:
    """Whether two calls were not both answered, or with other numbers."""
    if not (_is_ok(now) and _is_ok(then)):
        return True
    mine, other = numbers(now.body), numbers(then.body)
    return mine.shape != other.shape or not np.allclose(mine, other, rtol=0, atol=TOLERANCE)


def numbers(answer: bytes) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """The values of every forecast in an answer to Predict; none of an instance that was refused."""
    results = pb.PredictResponse.FromString(answer).results
    return np.frombuffer(b"".join(result.forecast.values for result in results), "<f8")


def inference_mode(place: Place) -> Finding:
    """A model that is loaded where nothing may have a gradient, and explained there and elsewhere."""
    command = [sys.executable, "-m", "benchmarks.faults.shortage", str(place.material.small / NAME / "1")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    told = done.stdout.split()
    explained = sum(word == "explained" for word in told)
    return Finding(
        fault="a model loaded in inference mode",
        done="loaded under torch.inference_mode(), explained under it and after it",
        calls=2,
        wrong=sum(word != "explained" for word in told),
        lost=2 - len(told),
        detail=f"{explained} of 2 explained, gaps within the tolerance{done.stderr[-300:]}",
        naive='naive: "Inference tensors cannot be saved for backward"',
    )


def explain_twice(model: Path) -> None:
    """Load a model in inference mode and explain it there and outside; prints a word for each."""
    import torch

    from predictor.forecast import TargetPoint
    from predictor.forecaster import Forecaster
    from predictor.instance import Instance, Query
    from trainers.demo.market import real_bars

    def word(forecaster: Forecaster) -> str:
        query = Query(instance=Instance(input=real_bars(("AAPL",)).last(200)), targets=(TargetPoint(5, 0.5),))
        (attribution,) = forecaster.explain(query).attributions
        return "explained" if attribution.converged.all() else "unsettled"

    with torch.inference_mode():
        forecaster = Forecaster.load(model)
        print(word(forecaster))
    print(word(forecaster))
    forecaster.close()


if __name__ == "__main__":
    explain_twice(Path(sys.argv[1]))
