"""Processes that die: a server of the program's own, the program itself, and the end of one with Python inside."""

import os
import signal
import statistics
import time
from pathlib import Path
from typing import Final

from benchmarks.faults.workers import is_alive
from benchmarks.interop.program import found_of, running, told
from benchmarks.report import Row, at_most

RESTART_REACH: Final = 1.2
ENDING_REACH_S: Final = 1.0
LEFT_S: Final = 2.0


def process_rows(models: Path, file: Path, times: int, *, judged: bool) -> list[Row]:
    """All three."""
    starts = found_of("restarted", models)
    left = sum(is_left(models) for _ in range(times))
    return [
        at_most(
            "server killed until ready / a plain start",
            statistics.median(one["restart"] / one["plain"] for one in starts),
            RESTART_REACH,
            detail=f"{statistics.median(one['plain'] for one in starts):.2f} s a plain start; {len(starts)} times",
            judged=judged,
        ),
        at_most(
            f"servers left {LEFT_S:g} s after their program was killed", left, 0, detail=f"of {times}", judged=judged
        ),
        at_most(
            "embedded, from DisposeAsync to the process's end, s",
            statistics.median(ending_s(models, file) for _ in range(min(times, 5))),
            ENDING_REACH_S,
            detail="median",
            judged=judged,
        ),
    ]


def is_left(models: Path) -> bool:
    """Whether the server outlives its program."""
    with running("parent", models) as program:
        server = int(told(program)["pid"])
        program.kill()
        program.wait()
        end = time.monotonic() + LEFT_S
        while time.monotonic() < end and is_alive(server):
            time.sleep(0.02)
        alive = is_alive(server)
        if alive:
            os.kill(server, signal.SIGKILL)
    return alive


def ending_s(models: Path, file: Path) -> float:
    """From the word that it ends to the end of the process."""
    with running("ending", models, file) as program:
        told(program)
        start = time.monotonic()
        program.wait()
        return time.monotonic() - start
