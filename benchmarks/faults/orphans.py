"""The fault of a parent that is killed: servers and workers must not be left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.served import NotServedError, server_command, wait_for
from benchmarks.faults.workers import children_of, is_alive
from benchmarks.report import at_most, shown

TIMES, QUICK_TIMES = 20, 1
LEFT_S: Final = 2.0
"""After which nothing may be left."""
PATIENCE_S: Final = 30.0
_PARENT: Final = """
import subprocess, sys
with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE) as server:
    server.wait()
"""
"""A program that starts a server and waits for it, such as a desktop application."""


@final
@dataclass(frozen=True, slots=True)
class Orphaned:
    """What became of the processes below one that was killed."""

    left: int
    """That were alive after two seconds."""
    took_s: float
    """Until the last had ended, or as long as was waited."""


def run(place: Place) -> Iterator[Finding]:
    """A program that started a server, then a supervisor."""
    options = ("--models", str(place.material.small), "--listen", "127.0.0.1:0", "--log-level", "error")
    watched = server_command(*options, "--parent-watch")
    yield _finding(
        place,
        "servers whose parent is killed",
        "the program that started the server with --parent-watch",
        [sys.executable, "-c", _PARENT, *watched],
    )
    yield _finding(
        place,
        "servers of two processes whose parent is killed",
        "the program that started it with --parent-watch and --processes 2",
        [sys.executable, "-c", _PARENT, *watched, "--processes", "2"],
    )
    yield _finding(
        place,
        "workers whose supervisor is killed",
        "the supervisor of two workers",
        server_command(*options, "--processes", "2"),
    )


def _finding(place: Place, fault: str, what: str, command: Sequence[str]) -> Finding:
    count = place.count(TIMES, QUICK_TIMES)
    found = [orphaned(command, place) for _ in range(count)]
    left = sum(one.left > 0 for one in found)
    return Finding(
        fault=fault,
        done=f"{count} times: {what} is killed with SIGKILL; no calls are in flight",
        calls=count,
        wrong=left,
        lost=0,
        rows=[
            at_most(f"times that something is left after {LEFT_S:g} s", left, 0, detail=f"of {count}"),
            shown("longest time until all had ended, s", max(one.took_s for one in found), detail=""),
        ],
        naive="naive: a server that is started as any other process goes on for ever, and keeps its port",
    )


def orphaned(command: Sequence[str], place: Place) -> Orphaned:
    """Start it, wait until the server answers, kill it, and watch what was below it."""
    with place.log.open("a", encoding="utf-8") as log:
        parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True)
    assert parent.stdout is not None
    line = parent.stdout.readline()
    if not line:
        raise NotServedError(f"no server: {place.log.read_text(encoding='utf-8')[-500:]}")
    server = int(json.loads(line)["pid"])
    below = {*children_of(parent.pid), *children_of(server)} - {parent.pid}
    parent.kill()
    start = time.monotonic()
    parent.wait()
    is_over = wait_for(lambda: not any(map(is_alive, below)), LEFT_S)
    left = sum(map(is_alive, below))
    if not is_over:
        wait_for(lambda: not any(map(is_alive, below)), PATIENCE_S)
    took_s = time.monotonic() - start
    for one in filter(is_alive, below):
        os.kill(one, signal.SIGKILL)
    parent.stdout.close()
    return Orphaned(left, took_s)
