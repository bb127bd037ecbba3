"""The faults of requests as large as may be that hardly mean anything, and of those that never become whole."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import repeat
from random import Random
from typing import Any, Final, final

import grpc
import grpc.aio
import numpy as np

from benchmarks.faults.calls import (
    NO_ANSWER,
    OUR_FAULT,
    Ended,
    ask,
    ask_all,
    ask_once,
    codes,
    ended,
)
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.models import flat_panel
from benchmarks.faults.mutants import delimited
from benchmarks.faults.pulse import Waits, asking
from benchmarks.faults.served import MIB, Server, forget_peak, serving, wait_for
from benchmarks.faults.speech import UNKNOWN
from benchmarks.faults.target import Target
from benchmarks.report import Row, at_most, shown
from predictor._pb import prediction_pb2 as pb

BUDGET_MIB: Final = 512
"""What requests in flight may take together."""
SLACK: Final = 1.2
"""What the process may grow by, in budgets."""
LARGEST: Final = 16 * MIB - 1024
"""Bytes of a request that the server still takes."""
PART: Final = 15 * MIB
"""What is sent of the largest, where not all of it is."""
PATIENCE_S, QUICK_PATIENCE_S = 90.0, 30.0
HELD_S, QUICK_HELD_S = 5.0, 1.0
"""How long halves of requests stay where they are."""
SETTLE_S, QUICK_SETTLE_S = 3.0, 0.2
AT_ONCE: Final = 8
PANEL_SYMBOLS: Final = 10_000
SEED: Final = 20_260_102
QUICK_ELSEWHERE: Final = 3
"""Contents that a short run sends through the other doors."""


@final
@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen of the server beside the calls."""

    waits: Waits
    grown_mib: float
    """How far its memory rose above what it had before, at most."""
    kept_mib: float
    """What of that it still has some seconds later."""
    died: bool

    def rows(self, *, judged: bool) -> list[Row]:
        """Health, and memory."""
        limit, detail = BUDGET_MIB * SLACK, f"the budget is {BUDGET_MIB} MiB of requests in flight, and a fifth more"
        return [
            *self.waits.rows(judged=judged),
            at_most("memory grown at most, MiB", self.grown_mib, limit, detail=detail),
            shown("memory kept afterwards, MiB", self.kept_mib, detail=f"{SETTLE_S:g} s later"),
            at_most("server died", int(self.died), 0, detail=""),
        ]


def watched(place: Place, server: Server, do: Callable[[], list[Ended]]) -> tuple[list[Ended], Watched]:
    """Do it, and watch the server meanwhile and for some seconds more."""
    before = server.vitals()
    forget_peak(server.popen.pid)
    with asking(server.target) as pulse:
        ends = do()
        waits = pulse.stop()
    wait_for(lambda: not server.is_alive, QUICK_SETTLE_S if place.quick else SETTLE_S)
    if not server.is_alive:
        return ends, Watched(waits, 0.0, 0.0, died=True)
    after = server.vitals()
    grown, kept = ((held - before.resident) / MIB for held in (after.peak, after.resident))
    return ends, Watched(waits, grown, kept, died=False)


def run(place: Place) -> Iterator[Finding]:
    """Each of them with a server of its own, or in a short run with one for all."""
    contents = [_emptiest(what) for what in place.door.speech.emptiest(1000)]
    if place.quick and not place.door.is_plain:
        del contents[QUICK_ELSEWHERE:]
    faults: list[Callable[[Place, Server], Finding]] = [_nothing, *contents, _panels, _halves, _cancelled]
    if place.quick:
        with _served(place) as server:
            yield from (fault(place, server) for fault in faults)
        return
    for fault in faults:
        with _served(place) as server:
            yield fault(place, server)


def _served(place: Place) -> AbstractContextManager[Server]:
    return serving(place.material.small, place.log, "--log-level", "error", secured=place.door.secured)


def _finding(place: Place, fault: str, done: str, found: tuple[list[Ended], Watched], detail: str = "") -> Finding:
    """A call is wrong that is the server's fault or was cancelled by nobody."""
    ends, seen = found
    return Finding(
        fault=fault,
        done=done,
        calls=len(ends),
        wrong=sum(end.code in OUR_FAULT or end.is_bare for end in ends) + seen.died,
        lost=sum(end.code in NO_ANSWER for end in ends),
        rows=seen.rows(judged=not place.quick),
        detail="; ".join(part for part in (codes(ends), detail) if part),
    )


def _nothing(place: Place, server: Server) -> Finding:
    """What this machine alone makes of the wait: other programs may keep the server or the asking process waiting."""
    with asking(server.target) as pulse:
        time.sleep(QUICK_HELD_S if place.quick else HELD_S)
        waits = pulse.stop()
    detail = f"{waits.asked} questions while nothing else is asked"
    return Finding(
        fault="health while nothing happens",
        done="nothing: the wait that this machine alone makes",
        calls=waits.asked,
        wrong=waits.unanswered,
        lost=0,
        rows=[shown("health's longest wait, ms", waits.longest_ms, detail=detail)],
    )


def _emptiest(what: str) -> Callable[[Place, Server], Finding]:
    def fault(place: Place, server: Server) -> Finding:
        path, body = place.door.speech.emptiest(LARGEST)[what]
        count = place.count(2 * AT_ONCE, 1, AT_ONCE)
        found = watched(place, server, lambda: asyncio.run(_all(server.target, path, [body] * count, _patience(place))))
        done = f"{count} requests of {len(body) / MIB:.0f} MiB, {min(count, AT_ONCE)} at a time"
        return _finding(place, f"16 MiB of {what}", done, found)

    return fault


def _patience(place: Place) -> float:
    return QUICK_PATIENCE_S if place.quick else PATIENCE_S


async def _all(target: Target, path: str, bodies: Sequence[bytes], patience_s: float) -> list[Ended]:
    """Some at a time, all over one connection."""
    free = asyncio.Semaphore(AT_ONCE)
    async with target.channel() as channel:

        async def one(body: bytes) -> Ended:
            async with free:
                return await ask(channel, path, body, patience_s)

        return await asyncio.gather(*map(one, bodies))


def _panels(place: Place, server: Server) -> Finding:
    """Thirty panels of so many symbols that each has few bars: all are refused, one by one, or none is."""
    sessions = np.array(place.material.bars().bars.session_yyyymmdd[-30:], np.int32)
    panel = flat_panel(sessions, PANEL_SYMBOLS)
    panel.gap_policy = pb.GAP_POLICY_MASK
    path, body = place.door.speech.predict, place.door.speech.request(pb.Instance(bars=panel))
    count = place.count(30, 3)
    found = watched(place, server, lambda: asyncio.run(_at_once(server.target, path, [body] * count, _patience(place))))
    done = f"{count} at once, {len(body) / MIB:.0f} MiB each: {PANEL_SYMBOLS} symbols, {len(sessions)} bars"
    return _finding(place, "panels of many symbols and few bars", done, found)


async def _at_once(target: Target, path: str, bodies: Sequence[bytes], patience_s: float) -> list[Ended]:
    async with target.channel() as channel:
        return await ask_all([channel], path, bodies, patience_s)


def _halves(place: Place, server: Server) -> Finding:
    """Streams whose callers send most of a request, and then nothing."""
    count, held_s = place.count(40, 4), QUICK_HELD_S if place.quick else HELD_S
    sent, speech = list[str](), place.door.speech

    def do() -> list[Ended]:
        with ThreadPoolExecutor(count) as pool:
            sent.extend(pool.map(half, repeat(server.target, count), repeat(speech.predict), repeat(held_s)))
        body = speech.request(place.material.one_stock())
        return [asyncio.run(ask_once(server.target, speech.predict, body, QUICK_PATIENCE_S))]

    found = watched(place, server, do)
    done = f"{count} connections that send {PART / MIB:.0f} of 16 MiB, wait for {held_s:g} s and close; then one call"
    told = ", ".join(f"{sent.count(end)} {end}" for end in sorted(set(sent)))
    return _finding(place, "requests that never become whole", done, found, f"the streams: {told}")


def half(target: Target, path: str, held_s: float) -> str:
    """Send most of a request, wait, and go away; how the server took it."""
    try:
        with target.connection(timeout_s=held_s) as connection:
            stream = connection.call(path)
            start = b"\0" + LARGEST.to_bytes(4, "big")
            if not connection.send(stream, start + bytes(PART)):
                return f"ended by the server ({stream.status or stream.ended})"
            connection.finish(stream)
            return f"ended by the server ({stream.status or stream.ended})"
    except TimeoutError:
        return "held until the caller left"
    except OSError:
        return "cut off by the server"


def _cancelled(place: Place, server: Server) -> Finding:
    """Large calls that their callers leave while they send them."""
    count = place.count(100, 8, 50)
    path, meant = place.door.speech.predict, place.door.speech.request(place.material.one_stock())
    body = delimited(UNKNOWN, bytes(PART)) + meant
    found = watched(place, server, lambda: asyncio.run(_leave(server.target, path, body, meant, count)))
    done = f"{count} calls of {len(body) / MIB:.0f} MiB, 64 at a time, left after 0 to 50 ms; then one call"
    return _finding(place, "large calls cancelled at once", done, found)


async def _leave(target: Target, path: str, body: bytes, meant: bytes, count: int) -> list[Ended]:
    """The calls that were answered before they were left, and one that is meant at the end."""
    random, free = Random(SEED), asyncio.Semaphore(64)  # noqa: S311 - a run that can be repeated
    ends: list[Ended] = []
    async with target.channel() as channel:

        async def one(after_s: float) -> None:
            async with free:
                call: Any = channel.unary_unary(path)(body, timeout=QUICK_PATIENCE_S)
                done, _ = await asyncio.wait([asyncio.ensure_future(call.code())], timeout=after_s)
                call.cancel()
                if done:
                    ends.append(await _end_of(call))

        await asyncio.gather(*(one(random.uniform(0, 0.05)) for _ in range(count)))
    return [*ends, await ask_once(target, path, meant, QUICK_PATIENCE_S)]


async def _end_of(call: Any) -> Ended:
    try:
        return Ended(grpc.StatusCode.OK, await call)
    except grpc.aio.AioRpcError as refused:
        return ended(refused, 0.0)
