"""Streams against unary calls: one stream with many requests in flight, and many with one each."""

import statistics
from collections.abc import Sequence
from typing import Final

from benchmarks.calling.load import Calls, Load, Turn
from benchmarks.calling.rates import IN_FLIGHT, WINDOWS
from benchmarks.report import Row, at_least, shown

Cell = tuple[int, int]
"""Number of requests in flight, and of streams; 0 streams for unary calls."""
Round = dict[Cell, Calls]

ONE_STREAM_REACH: Final = 1.3
MANY_STREAMS_REACH: Final = 1.0


def stream_rows(load: Load, rounds: int, seconds: float, *, judged: bool) -> list[Row]:
    """Requests per second over streams against as many unary calls."""
    most = IN_FLIGHT[-1]
    cells = [*((many, 0) for many in IN_FLIGHT), (most, 1), *((many, many) for many in IN_FLIGHT)]
    found = stream_rounds(load, cells, rounds, seconds)
    detail = f"windows in, 1 symbol; medians of {rounds} rounds of {seconds:g} s each"
    return [
        at_least(
            f"one stream / unary calls, {most} in flight, requests/s",
            ratio(found, (most, 1), (most, 0)),
            ONE_STREAM_REACH,
            detail=detail,
            judged=judged,
        ),
        *(
            at_least(
                f"{many} streams / unary calls, {many} in flight, requests/s",
                ratio(found, (many, many), (many, 0)),
                MANY_STREAMS_REACH,
                detail=detail,
                judged=judged,
            )
            for many in IN_FLIGHT
        ),
        *(_cell_row(found, cell, detail) for cell in found[0]),
    ]


def stream_rounds(load: Load, cells: Sequence[Cell], rounds: int, seconds: float) -> list[Round]:
    """Run every cell in every round; odd rounds run in reverse order."""
    found: list[Round] = []
    for count in range(rounds):
        order = cells if count % 2 == 0 else cells[::-1]
        found.append({(many, streams): load.run(Turn(WINDOWS, many, seconds, streams)) for many, streams in order})
    return found


def ratio(found: Sequence[Round], over: Cell, under: Cell) -> float:
    """Ratio of two cells' requests per second, median over rounds."""
    return statistics.median(one[over].per_second / one[under].per_second for one in found)


def _cell_row(found: Sequence[Round], cell: Cell, detail: str) -> Row:
    many, streams = cell
    rate = statistics.median(one[cell].per_second for one in found)
    p50, p99 = (statistics.median(one[cell].percentile_ms(percent) for one in found) for percent in (50, 99))
    how = "as unary calls" if not streams else "on one stream" if streams == 1 else f"on {streams} streams"
    return shown(f"{many} in flight {how}, requests/s", rate, detail=f"p50 {p50:.3g}, p99 {p99:.3g} ms; {detail}")
