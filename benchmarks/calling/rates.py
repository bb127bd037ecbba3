"""Throughput and latency of forecasts from windows and from bars, with 1, 8 and 32 calls in flight."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar, cast

import grpc

from benchmarks.calling.load import Calls, Load, Turn
from benchmarks.calling.subject import PREDICT
from benchmarks.report import Row, at_least, at_most, interleaved_medians, shown
from predictor.bars import BarPanel
from predictor.client import QuantraClient

IN_FLIGHT: Final = (1, 8, 32)
BARS, WINDOWS = "bars", "windows"
BARS_P50_REACH: Final = 1.4
BARS_RATE_REACH: Final = 0.60
MANY_RATE_REACH: Final = 3.0

Cell = TypeVar("Cell")
"""What a turn varies, such as the name of the request and the number of calls in flight."""


def rate_of(calls: Calls) -> float:
    """Calls per second."""
    return calls.per_second


def run_rounds(run: Callable[[Cell], Calls], cells: Sequence[Cell], rounds: int) -> list[dict[Cell, Calls]]:
    """Run every cell in every round; odd rounds run in reverse order."""
    orders = (cells if count % 2 == 0 else cells[::-1] for count in range(rounds))
    return [{cell: run(cell) for cell in order} for order in orders]


def rate_rows(load: Load, rounds: int, seconds: float, *, judged: bool) -> list[Row]:
    """Bars against windows, many calls in flight against one, and the numbers of each cell."""
    cells = [(name, many) for many in IN_FLIGHT for name in (WINDOWS, BARS)]
    found = run_rounds(lambda cell: load.run(Turn(*cell, seconds)), cells, rounds)
    most = IN_FLIGHT[-1]
    detail = f"1 symbol; medians of {rounds} rounds of {seconds:g} s each"
    slower = ratio(found, (BARS, 1), (WINDOWS, 1), lambda one: one.percentile_ms(50))
    kept = ratio(found, (BARS, most), (WINDOWS, most))
    gained = ratio(found, (WINDOWS, most), (WINDOWS, 1))
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


def client_rows(target: str, request: bytes, bars: BarPanel, calls: int) -> list[Row]:
    """Compare the Python client with a bare call of the same request."""
    with QuantraClient(target) as client, grpc.insecure_channel(target) as channel:
        bare = cast("Callable[[bytes], bytes]", channel.unary_unary(PREDICT))
        medians = interleaved_medians(
            {"client": lambda: client.predict(bars), "bare": lambda: bare(request)}, rounds=calls, calls=1
        )
    detail = f"p50 {1e3 * medians['client']:.3g} and {1e3 * medians['bare']:.3g} ms; medians of {calls} calls each"
    return [shown("Python client / a bare call of the same bars", medians["client"] / medians["bare"], detail=detail)]


def pair_rows(
    name: str, over: Callable[[int], Calls], under: Callable[[int], Calls], reach: float, rounds: int, *, judged: bool
) -> list[Row]:
    """Compare two kinds of calls, each called with the number in flight, in calls per second."""
    kinds = {"over": over, "under": under}
    cells = [(kind, many) for many in IN_FLIGHT for kind in kinds]
    found = run_rounds(lambda cell: kinds[cell[0]](cell[1]), cells, rounds)
    rows: list[Row] = []
    for many in IN_FLIGHT:
        rates = [middle(found, (kind, many)) for kind in kinds]
        detail = f"{rates[0]:.0f} and {rates[1]:.0f} calls/s; medians of {rounds} rounds"
        share = ratio(found, ("over", many), ("under", many))
        rows.append(at_least(f"{name}, {many} in flight, calls/s", share, reach, detail=detail, judged=judged))
    return rows


def ratio(
    found: Sequence[Mapping[Cell, Calls]], over: Cell, under: Cell, number: Callable[[Calls], float] = rate_of
) -> float:
    """Ratio of two cells' numbers, median over rounds."""
    return statistics.median(number(one[over]) / number(one[under]) for one in found)


def middle(found: Sequence[Mapping[Cell, Calls]], cell: Cell, number: Callable[[Calls], float] = rate_of) -> float:
    """A cell's number, median over rounds."""
    return statistics.median(number(one[cell]) for one in found)


def _cell_rows(found: Sequence[Mapping[tuple[str, int], Calls]], cell: tuple[str, int], detail: str) -> list[Row]:
    name, many = cell
    p50, p99 = (middle(found, cell, lambda one, p=p: one.percentile_ms(p)) for p in (50, 99))
    calls = middle(found, cell)
    return [
        shown(f"{name} in, {many} in flight, calls/s", calls, detail=detail),
        shown(f"{name} in, {many} in flight, p99, ms", p99, detail=f"p50 {p50:.3g} ms; {detail}"),
    ]
