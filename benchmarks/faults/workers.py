"""The fault of workers that are killed while callers ask: calls in flight alone may fail, and another takes over."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import grpc

from benchmarks.faults.calls import PREDICT, Ended, ask, codes, predict_request
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.served import Server, serving, wait_for
from benchmarks.faults.target import Target
from benchmarks.report import at_least, at_most, shown

KILLS, QUICK_KILLS = 20, 1
WARM_UPS, QUICK_WARM_UPS = 3, 1
CALLERS: Final = 8
PATIENCE_S: Final = 30.0
BACK_S: Final = 3.0
"""Within which a worker must be back, beside its warm-up."""
LOST_PER_KILL: Final = CALLERS
"""Each caller has one call in flight."""


@final
@dataclass(frozen=True, slots=True)
class Kill:
    """One worker that was killed."""

    back_s: float | None
    """Until as many listen as before; None if they did not in time."""


def run(place: Place) -> Iterator[Finding]:
    """Kill one worker of two after the other."""
    with serving(place.material.small, place.log, "--log-level", "error", "--processes", "2") as server:
        yield _finding(place, server)


def _finding(place: Place, server: Server) -> Finding:
    request = predict_request(place.material.one_stock())
    count = place.count(KILLS, QUICK_KILLS)
    warm_ups_s: list[float] = []
    kills: list[Kill] = []

    def kill_all() -> None:
        warm_ups_s.extend(warm_up(place) for _ in range(place.count(WARM_UPS, QUICK_WARM_UPS)))
        kills.extend(kill(server, number) for number in range(count))

    ends = asyncio.run(_load(server.target, request, kill_all))
    failed = [one for one in ends if one.code is not grpc.StatusCode.OK]
    otherwise = sum(one.code is not grpc.StatusCode.UNAVAILABLE for one in failed)
    missing = sum(one.back_s is None for one in kills)
    warm_up_s = max(warm_ups_s)
    slowest_s = max(PATIENCE_S if one.back_s is None else one.back_s for one in kills)
    return Finding(
        fault="workers killed under load",
        done=f"{count} times one of two workers is killed with SIGKILL, while {CALLERS} callers ask",
        calls=len(ends),
        wrong=otherwise + missing + int(not server.is_alive),
        lost=max(0, len(failed) - LOST_PER_KILL * count),
        rows=[
            at_most("calls that fail, a kill", len(failed) / count, LOST_PER_KILL, detail="those in flight, as many"),
            at_most("calls that fail otherwise than UNAVAILABLE", otherwise, 0, detail=codes(failed)),
            at_most(
                "until another serves in its place, s, without the warm-up",
                max(0.0, slowest_s - warm_up_s),
                BACK_S,
                detail=f"slowest {slowest_s:.1f} s; a server under the same load starts in {warm_up_s:.1f} s",
                judged=not place.quick,
            ),
            at_least("calls answered, a kill", (len(ends) - len(failed)) / count, 1, detail=""),
            shown("slowest answer, s", max(one.took_s for one in ends), detail=""),
        ],
        detail=codes(ends),
        naive="naive: one process: every call fails until somebody starts another",
    )


def warm_up(place: Place) -> float:
    """How long a server of one process takes to be ready beside the two, which are asked meanwhile, seconds."""
    start = time.monotonic()
    with serving(place.material.small, place.log, "--log-level", "error"):
        return time.monotonic() - start


def kill(server: Server, number: int) -> Kill:
    """Kill one of the workers, each in its turn, and wait until another serves in its place."""
    workers = listening(server)
    killed = workers[number % len(workers)]
    os.kill(killed, signal.SIGKILL)
    start = time.monotonic()

    def is_back() -> bool:
        now = listening(server)
        return killed not in now and len(now) >= len(workers)

    return Kill(time.monotonic() - start if wait_for(is_back, PATIENCE_S) else None)


def listening(server: Server) -> Sequence[int]:
    """The workers that take connections, oldest first."""
    return [one for one in children_of(server.popen.pid) if listens(one, server.port)]


def children_of(process: int) -> Sequence[int]:
    """Processes whose parent this is, and which have not ended (Linux)."""
    return sorted(int(one.name) for one in Path("/proc").glob("[0-9]*") if _parent_of(one) == process)


def is_alive(process: int) -> bool:
    """Whether it has not ended (Linux)."""
    return _parent_of(Path("/proc") / str(process)) is not None


def _parent_of(place: Path) -> int | None:
    """Of a process by its folder in /proc; None if it has ended."""
    try:
        state, parent = (
            place.joinpath("stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[:2]
        )
    except OSError:
        return None
    return None if state == "Z" else int(parent)


def listens(process: int, port: int) -> bool:
    """Whether one of its sockets takes connections of this port (Linux)."""
    held = set[str]()
    try:
        for one in Path(f"/proc/{process}/fd").iterdir():
            held.add(str(one.readlink()))
    except OSError:
        return False
    pattern = re.compile(rf":{port:04X} [0-9A-F:]+ 0A (?:\S+ +){{5}}(\d+)")
    tables = (Path(f"/proc/net/{name}").read_text(encoding="ascii") for name in ("tcp", "tcp6"))
    return any(f"socket:[{inode}]" in held for table in tables for inode in pattern.findall(table))


async def _load(target: Target, request: bytes, work: Callable[[], None]) -> list[Ended]:
    """Ask from several connections while the work is done in a thread of its own."""
    working = asyncio.create_task(asyncio.to_thread(work))
    ends: list[Ended] = []

    async def caller() -> None:
        while not working.done():
            async with target.channel() as channel:  # another one where the last has lost its worker
                while not working.done():
                    ends.append(await ask(channel, PREDICT, request, PATIENCE_S))
                    if ends[-1].code is not grpc.StatusCode.OK:
                        break

    await asyncio.gather(working, *(caller() for _ in range(CALLERS)))
    return ends
