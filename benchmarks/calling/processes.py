"""Cost of a second worker: CPU time per request of a server with two processes against one with one, in turn."""

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, final

from benchmarks.calling.load import MAX_CHANNELS, WARM_S, Load, Turn, load
from benchmarks.calling.rates import IN_FLIGHT, WINDOWS
from benchmarks.calling.subject import Subject, started
from benchmarks.faults.served import Vitals
from benchmarks.report import Row, at_most, shown, unmeasured

CPU_REACH: Final = 1.1
RATE_REACH: Final = 0.85

Cell = tuple[int, int]
"""Number of server processes, and of calls in flight."""
_TWICE: Final = ((2, 16), (1, 8))
"""Cells with equally many calls per process."""
_CELLS: Final[Sequence[Cell]] = (*((count, many) for many in IN_FLIGHT for count in (1, 2)), _TWICE[0])


@final
@dataclass(frozen=True, slots=True)
class CpuUsage:
    """CPU time of a server in one turn."""

    request_ms: float
    """CPU time per request, over all processes."""
    most: float
    """Share of the busiest process, in (0, 1]."""

    @classmethod
    def of(cls, before: Mapping[int, float], after: Mapping[int, float], requests: float) -> Self:
        """Compute from the CPU time of each process before and after, in seconds."""
        spent_s = [after[process] - before[process] for process in before]
        return cls(1e3 * sum(spent_s) / requests, max(spent_s) / sum(spent_s))


@final
@dataclass(frozen=True, slots=True)
class LoadedServer:
    """A server and its load."""

    process: int
    asking: Load

    def run(self, in_flight: int, seconds: float) -> CpuUsage:
        """Run one turn. The warm-up counts in the CPU time, and as requests at the turn's rate."""
        before = cpu_s_of(self.process)
        calls = self.asking.run(Turn(WINDOWS, in_flight, seconds))
        return CpuUsage.of(before, cpu_s_of(self.process), calls.per_second * (WARM_S + seconds))


def process_rows(subject: Subject, rounds: int, seconds: float, *, judged: bool) -> list[Row]:
    """CPU time per request of `--processes 2` against one process, windows in, under the same and under twice the load.

    Under the same load each worker has half the calls, and therefore smaller batches.
    """
    rate = unmeasured(
        "--processes N / N times one process, calls/s",
        "needs 2 N cores, for the server and for its clients",
        reach=f">= {RATE_REACH:g}",
    )
    if sys.platform != "linux":
        why = "several processes on one port need Linux"
        return [unmeasured("--processes 2 / one process, CPU per request", why, reach=f"<= {CPU_REACH:g}"), rate]
    requests = {WINDOWS: subject.asked_with_windows()}
    with (
        started(subject.models) as one,
        started(subject.models, "--processes", "2") as two,
        load(str(one["target"]), requests) as of_one,
        load(str(two["target"]), requests) as of_two,
    ):
        sides = {1: LoadedServer(int(str(one["pid"])), of_one), 2: LoadedServer(int(str(two["pid"])), of_two)}
        found = [_round(sides, count, seconds) for count in range(rounds)]
    return [*_rows(found, f"medians of {rounds} rounds of {seconds:g} s each", judged=judged), rate]


def cpu_s_of(process: int) -> Mapping[int, float]:
    """CPU time so far of a process and of its living children, by process id."""
    listed = [one.read_text(encoding="ascii") for one in Path(f"/proc/{process}/task").glob("*/children")]
    return {one: Vitals.of(one).cpu_s for one in (process, *map(int, " ".join(listed).split()))}


def _round(sides: Mapping[int, LoadedServer], count: int, seconds: float) -> dict[Cell, CpuUsage]:
    """Run every cell; odd rounds run in reverse order."""
    cells = _CELLS if count % 2 == 0 else _CELLS[::-1]
    return {(processes, many): sides[processes].run(many, seconds) for processes, many in cells}


def _rows(found: Sequence[Mapping[Cell, CpuUsage]], detail: str, *, judged: bool) -> list[Row]:
    title = "--processes 2 / one process, {} in flight, CPU per request"
    rows: list[Row] = []
    for many in IN_FLIGHT:
        cost, description = _compared(found, (2, many), (1, many))
        rows.append(at_most(title.format(many), cost, CPU_REACH, detail=description + detail, judged=judged))
    cost, description = _compared(found, *_TWICE)
    return [*rows, shown(title.format("16 and 8"), cost, detail=description + detail)]


def _compared(found: Sequence[Mapping[Cell, CpuUsage]], two: Cell, one: Cell) -> tuple[float, str]:
    """Median over rounds of the ratio of two cells' CPU time per request, and the numbers behind it."""
    cost = statistics.median(each[two].request_ms / each[one].request_ms for each in found)
    spent = [statistics.median(each[cell].request_ms for each in found) for cell in (two, one)]
    most = statistics.median(each[two].most for each in found)
    connections = min(two[1], MAX_CHANNELS)
    description = f"{spent[0]:.3g} and {spent[1]:.3g} ms; {connections} connections, one worker did {most:.0%}; "
    return cost, description
