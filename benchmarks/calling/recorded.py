"""Cost of a ledger: a server that records its forecasts and one that does not, called in turn."""

import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.calling.load import WARM_S, Turn, load
from benchmarks.calling.processes import CpuUsage, cpu_s_of
from benchmarks.calling.rates import WINDOWS
from benchmarks.calling.subject import Subject, started
from benchmarks.report import Row, at_most

IN_FLIGHT: Final = 8
P99_REACH, COST_REACH = 1.03, 15.0


def recorded_rows(subject: Subject, rounds: int, seconds: float, *, judged: bool) -> list[Row]:
    """The p99 with a ledger against that without, and the CPU time of recording a call.

    All calls are the same, so that their forecast is written once and each request.
    """
    requests = {WINDOWS: subject.asked_with_windows()}
    p99: dict[str, list[float]] = {"plain": [], "recorded": []}
    cpu_us: dict[str, list[float]] = {"plain": [], "recorded": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        started(subject.models) as plain,
        started(subject.models, "--ledger", str(Path(folder) / "ledger.db")) as recorded,
        load(str(plain["target"]), requests) as off,
        load(str(recorded["target"]), requests) as on,
    ):
        sides = {"plain": (int(str(plain["pid"])), off), "recorded": (int(str(recorded["pid"])), on)}
        for turn in range(rounds):
            for name in sorted(sides, reverse=bool(turn % 2)):
                process, asking = sides[name]
                before = cpu_s_of(process)
                calls = asking.run(Turn(WINDOWS, IN_FLIGHT, seconds))
                usage = CpuUsage.of(before, cpu_s_of(process), calls.per_second * (seconds + WARM_S))
                p99[name].append(calls.percentile_ms(99))
                cpu_us[name].append(1e3 * usage.request_ms)
    ratio = median(b / a for a, b in zip(p99["plain"], p99["recorded"], strict=True))
    cost = median(b - a for a, b in zip(cpu_us["plain"], cpu_us["recorded"], strict=True))
    detail = f"{IN_FLIGHT} in flight; medians of {rounds} rounds"
    return [
        at_most("windows in, p99 with a ledger / without", ratio, P99_REACH, detail=detail, judged=judged),
        at_most("CPU time of recording a call, us", cost, COST_REACH, detail=detail, judged=judged),
    ]
