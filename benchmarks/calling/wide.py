"""Requests with many symbols against the bare network, and the start time of a server."""

import statistics
import time
from contextlib import closing
from typing import Final

from benchmarks.calling.load import Load, Turn
from benchmarks.calling.subject import Subject, server
from benchmarks.report import Row, at_least, at_most, interleaved_medians
from predictor.calls import Calls
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import NEVER, Deadline, Instance
from predictor.model import Model, PreparedInstance
from predictor.service import PredictionService

ROWS, IN_FLIGHT = 32, 8
WIDE: Final = 500
ROWS_REACH: Final = 0.80
WIDE_REACH_MS: Final = 60.0
START_REACH_S: Final = 5.0


def rows_rows(load: Load, request: str, model: Model, subject: Subject, rounds: int, *, judged: bool) -> list[Row]:
    """Rows per second of requests with 32 rows against the bare network in this process."""
    prepared = model.prepare(Instance(input=subject.panel(ROWS)), AFTER_ALL_SESSIONS)
    ratios, served, bare = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        bare.append(forward_rows(model, prepared, seconds=0.5))
        served.append(ROWS * load.run(Turn(request, IN_FLIGHT, 1.0)).per_second)
        bare.append(forward_rows(model, prepared, seconds=0.5))
        ratios.append(served[-1] / statistics.mean(bare[-2:]))
    detail = (
        f"windows, {IN_FLIGHT} in flight: {statistics.median(served):.0f} rows/s, the bare network "
        f"{statistics.median(bare):.0f}; medians of {rounds} rounds"
    )
    name = f"requests of {ROWS} rows / a forward of {ROWS}, rows/s"
    return [at_least(name, statistics.median(ratios), ROWS_REACH, detail=detail, judged=judged)]


def forward_rows(model: Model, prepared: PreparedInstance, seconds: float) -> float:
    """Rows per second of the bare network."""
    begin, calls = time.perf_counter(), 0
    while (passed := time.perf_counter() - begin) < seconds:
        model.engine.units(prepared.inputs)
        calls += 1
    return calls * len(prepared.inputs.observed) / passed


def wide_rows(model: Model, subject: Subject, rounds: int, *, judged: bool) -> list[Row]:
    """CPU time from request bytes to response bytes, without a connection and less the network."""
    body = subject.asked_with_bars(WIDE)
    prepared = model.prepare(Instance(input=subject.panel(WIDE)), AFTER_ALL_SESSIONS)
    with PredictionService.open(subject.models, device="cpu") as service, closing(Calls(service)) as calls:
        medians = interleaved_medians(
            {
                "whole": lambda: calls.call("Predict", body, Deadline()).result(),
                "forward": lambda: model.engine.units(prepared.inputs, NEVER),
            },
            rounds=rounds,
            calls=1,
            clock=time.process_time,
        )
    beyond_ms = 1e3 * (medians["whole"] - medians["forward"])
    detail = (
        f"bars, bytes to bytes in this process, CPU time; total {1e3 * medians['whole']:.3g} ms, "
        f"the network {1e3 * medians['forward']:.3g} ms"
    )
    name = f"{WIDE} symbols in one request, beyond the network, ms"
    return [at_most(name, beyond_ms, WIDE_REACH_MS, detail=detail, judged=judged)]


def start_rows(subject: Subject, starts: int, *, judged: bool) -> list[Row]:
    """Time from the start of the process to its first line, which it prints when it serves."""
    taken = [_start_s(subject) for _ in range(starts)]
    detail = f"one model, golden instance included; median of {starts}"
    return [at_most("start to SERVING, s", statistics.median(taken), START_REACH_S, detail=detail, judged=judged)]


def _start_s(subject: Subject) -> float:
    begin = time.perf_counter()
    with server(subject.models):
        return time.perf_counter() - begin
