"""Streams against unary calls: one stream with many requests in flight, and many with one each."""

from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.calling.load import Calls, Load, Turn
from benchmarks.calling.rates import IN_FLIGHT, WINDOWS, middle, ratio, run_rounds
from benchmarks.report import Row, at_least, shown

Cell = tuple[int, int]
"""Number of requests in flight, and of streams; 0 streams for unary calls."""

ONE_STREAM_REACH: Final = 1.3
MANY_STREAMS_REACH: Final = 1.0


def stream_rows(load: Load, rounds: int, seconds: float, *, judged: bool) -> list[Row]:
    """Requests per second over streams against as many unary calls."""
    most = IN_FLIGHT[-1]
    cells = [*((many, 0) for many in IN_FLIGHT), (most, 1), *((many, many) for many in IN_FLIGHT)]
    found = run_rounds(lambda cell: load.run(Turn(WINDOWS, cell[0], seconds, cell[1])), cells, rounds)
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


def _cell_row(found: Sequence[Mapping[Cell, Calls]], cell: Cell, detail: str) -> Row:
    many, streams = cell
    p50, p99 = (middle(found, cell, lambda one, p=p: one.percentile_ms(p)) for p in (50, 99))
    how = "as unary calls" if not streams else "on one stream" if streams == 1 else f"on {streams} streams"
    detail = f"p50 {p50:.3g}, p99 {p99:.3g} ms; {detail}"
    return shown(f"{many} in flight {how}, requests/s", middle(found, cell), detail=detail)
