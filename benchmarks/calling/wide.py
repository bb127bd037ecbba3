"""Requests with many symbols against the bare network."""

import statistics
import time
from typing import Final

from benchmarks.calling.load import Load, Turn
from benchmarks.calling.subject import Subject
from benchmarks.report import Row, at_least
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import Instance
from predictor.model import Model, PreparedInstance

ROWS, IN_FLIGHT = 32, 8
ROWS_REACH: Final = 0.80


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
        model.engine.compute_units(prepared.inputs)
        calls += 1
    return calls * len(prepared.inputs.observed) / passed
