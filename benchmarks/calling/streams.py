"""Streams against unary calls: one stream with many requests in flight, and many with one each."""

from typing import Final

from benchmarks.calling.load import Load, Turn
from benchmarks.calling.rates import IN_FLIGHT, WINDOWS, pair_rows, ratio, run_rounds
from benchmarks.report import Row, at_least

ONE_STREAM_REACH: Final = 1.3
MANY_STREAMS_REACH: Final = 1.0


def stream_rows(load: Load, rounds: int, seconds: float, *, judged: bool) -> list[Row]:
    """Requests per second over streams against as many unary calls."""
    most = IN_FLIGHT[-1]
    found = run_rounds(lambda streams: load.run(Turn(WINDOWS, most, seconds, streams)), (0, 1), rounds)
    name = f"one stream / unary calls, {most} in flight, requests/s"
    detail = f"windows in; medians of {rounds} rounds of {seconds:g} s each"
    return [
        at_least(name, ratio(found, 1, 0), ONE_STREAM_REACH, detail=detail, judged=judged),
        *pair_rows(
            "streams / unary calls, as many",
            lambda many: load.run(Turn(WINDOWS, many, seconds, many)),
            lambda many: load.run(Turn(WINDOWS, many, seconds)),
            MANY_STREAMS_REACH,
            rounds,
            judged=judged,
        ),
    ]
