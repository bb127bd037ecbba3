"""The fault of time: does a server grow, slow down or fail that is asked for everything, for long?"""

import asyncio
import shutil
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, final

from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.mix import Done, Load, parts_of
from benchmarks.faults.models import NAME
from benchmarks.faults.reloads import Admin, Exchange
from benchmarks.faults.served import MIB, Server, Vitals, free_port, serving
from benchmarks.faults.speech import Native
from benchmarks.faults.target import Target
from benchmarks.report import Row, at_least, at_most, shown

FULL_S, QUICK_S = 600.0, 6.0
WARM_S, QUICK_WARM_S = 3.0, 1.0
WARM_RELOADS, QUICK_WARM_RELOADS = 10, 2
CALLERS: Final = 4
SETTLE_S, QUICK_SETTLE_S = 60.0, 2.0
"""As `benchmarks.faults.gone` waits for gRPC's own threads."""
LOOK_S: Final = 0.5
RELOADED_EVERY_S: Final = 2.0
TIMED: Final = "windows"
"""The part whose times are compared: it is the same work each time."""
BEGUN: Final = 0.05
"""The share of the time in which caches fill, that is not looked at."""
MOST_SLOPE, MOST_DRIFT = 0.1, 20.0


@final
@dataclass(frozen=True, slots=True)
class Look:
    """The server at one moment."""

    calls: int
    """How many had ended."""
    vitals: Vitals


def run(place: Place) -> Iterator[Finding]:
    """One server for the whole time."""
    models = place.work / "models"
    exchange = Exchange(models / NAME / "1", place.work / "aside")
    shutil.copytree(place.material.version(1), exchange.served)
    shutil.copytree(place.material.version(2), exchange.aside)
    port = free_port()
    options = ("--log-level", "error", "--admin-listen", f"127.0.0.1:{port}")
    with serving(models, place.log, *options) as server:
        yield soaked(place, server, exchange, Admin(Target(port), Native()))


def soaked(place: Place, server: Server, exchange: Exchange, admin: Admin) -> Finding:
    """Load it for the time of this run, and look at it meanwhile."""
    load = Load(server.target.channel, parts_of(place.material))
    lasting_s = QUICK_S if place.quick else FULL_S
    _warm(server, place, exchange, admin)
    before, looks, reloads = server.vitals(), list[Look](), Counter[str]()
    end = time.monotonic() + lasting_s
    with (
        repeated(lambda: _look(server, load, looks), LOOK_S),
        repeated(lambda: _reload(exchange, admin, reloads), RELOADED_EVERY_S),
    ):
        asyncio.run(load.run(CALLERS, lambda: time.monotonic() > end))
    after, _ = server.settled(before, QUICK_SETTLE_S if place.quick else SETTLE_S)
    unexpected = Counter(f"{one.part}: {one.unexpected.name}" for one in load.calls if one.unexpected)
    refused = reloads.total() - reloads["OK"]
    return Finding(
        fault="a mixed load for long",
        done=f"{lasting_s:g} s of {', '.join(part.name for part in load.parts)} by {CALLERS} callers over "
        f"{load.connections} connections, while two artifacts take turns {reloads.total()} times",
        calls=len(load.calls) + reloads.total(),
        wrong=sum(one.unexpected is not None and not one.is_lost for one in load.calls) + refused,
        lost=sum(one.is_lost for one in load.calls),
        rows=[
            at_most("calls that end otherwise than they must", unexpected.total(), 0, detail=told(unexpected)),
            at_most("reloads that fail", refused, 0, detail=told(reloads)),
            at_least("reloads", reloads["OK"], 2, detail="beside the calls"),
            *time_rows(load.calls, lasting_s, judged=not place.quick),
            *memory_rows(looks, judged=not place.quick),
            *_left(before, after, judged=not place.quick),
        ],
        detail=told(Counter(one.part for one in load.calls)),
    )


def _warm(server: Server, place: Place, exchange: Exchange, admin: Admin) -> None:
    """The same load for a moment, and some reloads: all threads and buffers that there will be have begun then."""
    load, lasting_s = Load(server.target.channel, parts_of(place.material)), QUICK_WARM_S if place.quick else WARM_S
    for _ in range(place.count(WARM_RELOADS, QUICK_WARM_RELOADS)):
        _reload(exchange, admin, Counter())
    asyncio.run(load.once_each())
    end = time.monotonic() + lasting_s
    asyncio.run(load.run(2 * CALLERS, lambda: time.monotonic() > end))


@contextmanager
def repeated(do: Callable[[], None], every_s: float) -> Generator[None]:
    """Do it again and again beside the block, on a thread of its own; what it raises is raised at the block's end."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(every_s):
            do()

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            yield
        finally:
            over.set()
        working.result()


def told(counts: Counter[str]) -> str:
    """How often each came, in words."""
    return ", ".join(f"{count} {what}" for what, count in counts.most_common()) or "none"


def time_rows(calls: Sequence[Done], lasting_s: float, *, judged: bool) -> list[Row]:
    """The 99th percentile of the timed part: in the last third of the time against the first."""
    begun, third = BEGUN * lasting_s, (1 - BEGUN) * lasting_s / 3
    first = [one.took_s for one in calls if one.part == TIMED and begun <= one.at_s < begun + third]
    last = [one.took_s for one in calls if one.part == TIMED and lasting_s - third <= one.at_s]
    if min(len(first), len(last)) < 2:
        return [at_most("p99 drift, %", float("inf"), MOST_DRIFT, detail="too few calls", judged=judged)]
    early, late = (1000 * statistics.quantiles(times, n=100)[-1] for times in (first, last))
    detail = f"{TIMED}: {late:.1f} ms of {len(last)} calls against {early:.1f} ms of {len(first)}"
    return [
        at_most("p99 drift, %", 100 * (late / early - 1), MOST_DRIFT, detail=detail, judged=judged),
        shown("calls a second", len(calls) / lasting_s, detail="all parts"),
    ]


def memory_rows(looks: Sequence[Look], *, judged: bool) -> list[Row]:
    """The slope of resident memory over calls by least squares, in the second half of the time."""
    half = [look for look in looks if 2 * look.calls >= looks[-1].calls] if looks else []
    calls = [look.calls / 1000 for look in half]
    if len(set(calls)) < 2:
        return [at_most("memory, MiB per 1,000 calls", 0.0, MOST_SLOPE, detail="too few looks", judged=False)]
    held = [look.vitals.resident / MIB for look in half]
    slope = statistics.linear_regression(calls, held).slope
    detail = f"{held[0]:.1f} MiB at {1000 * calls[0]:.0f} calls, {held[-1]:.1f} at {1000 * calls[-1]:.0f}"
    return [at_most("memory, MiB per 1,000 calls", slope, MOST_SLOPE, detail=detail, judged=judged)]


def _left(before: Vitals, after: Vitals, *, judged: bool) -> list[Row]:
    detail = f"before {before}; after {after}"
    return [
        at_most("threads left over", after.threads - before.threads, 0, detail=detail, judged=judged),
        at_most("descriptors left over", after.descriptors - before.descriptors, 0, detail=detail, judged=judged),
    ]


def _look(server: Server, load: Load, looks: list[Look]) -> None:
    looks.append(Look(len(load.calls), server.vitals()))


def _reload(exchange: Exchange, admin: Admin, told: Counter[str]) -> None:
    exchange.turn()
    told[admin.reload()] += 1
