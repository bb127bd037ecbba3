"""Throughput and latency of forecasts from windows and from bars, with 1, 8 and 32 calls in flight."""

import statistics
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.calling.load import Calls, Load, Turn
from benchmarks.report import Row, at_least, at_most, shown

IN_FLIGHT: Final = (1, 8, 32)
BARS, WINDOWS = "bars", "windows"
BARS_P50_REACH: Final = 1.4
BARS_RATE_REACH: Final = 0.60
MANY_RATE_REACH: Final = 3.0

Cell = tuple[str, int]
"""Name of the request, and number of calls in flight."""
Round = dict[Cell, Calls]


def rounds_of(load: Load, cells: Sequence[Cell], rounds: int, seconds: float) -> list[Round]:
    """Run every cell in every round; odd rounds run in reverse order."""
    found: list[Round] = []
    for count in range(rounds):
        order = cells if count % 2 == 0 else cells[::-1]
        found.append({(name, many): load.run(Turn(name, many, seconds)) for name, many in order})
    return found


def rate_rows(load: Load, rounds: int, seconds: float, *, judged: bool) -> list[Row]:
    """Bars against windows, many calls in flight against one, and the numbers of each cell."""
    cells = [(name, many) for many in IN_FLIGHT for name in (WINDOWS, BARS)]
    found = rounds_of(load, cells, rounds, seconds)
    most = IN_FLIGHT[-1]
    detail = f"1 symbol; medians of {rounds} rounds of {seconds:g} s each"
    slower = ratio(found, (BARS, 1), (WINDOWS, 1), lambda one: one.percentile_ms(50))
    kept = ratio(found, (BARS, most), (WINDOWS, most), lambda one: one.per_second)
    gained = ratio(found, (WINDOWS, most), (WINDOWS, 1), lambda one: one.per_second)
    return [
        at_most("bars in / windows in, one at a time, p50", slower, BARS_P50_REACH, detail=detail, judged=judged),
        at_least(
            f"bars in / windows in, {most} in flight, calls/s", kept, BARS_RATE_REACH, detail=detail, judged=judged
        ),
        at_least(
            f"windows in, {most} in flight / one at a time, calls/s",
            gained,
            MANY_RATE_REACH,
            detail=detail,
            judged=judged,
        ),
        *(row for cell in cells for row in _cell_rows(found, cell, detail)),
    ]


def ratio(found: Sequence[Round], over: Cell, under: Cell, number: Callable[[Calls], float]) -> float:
    """Ratio of two cells' numbers, median over rounds."""
    return statistics.median(number(one[over]) / number(one[under]) for one in found)


def middle(found: Sequence[Round], cell: Cell, number: Callable[[Calls], float]) -> float:
    """A cell's number, median over rounds."""
    return statistics.median(number(one[cell]) for one in found)


def _cell_rows(found: Sequence[Round], cell: Cell, detail: str) -> list[Row]:
    name, many = cell
    p50, p99 = (middle(found, cell, lambda one, p=p: one.percentile_ms(p)) for p in (50, 99))
    calls = middle(found, cell, lambda one: one.per_second)
    return [
        shown(f"{name} in, {many} in flight, calls/s", calls, detail=detail),
        shown(f"{name} in, {many} in flight, p99, ms", p99, detail=f"p50 {p50:.3g} ms; {detail}"),
    ]
