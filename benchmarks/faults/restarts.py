"""The fault of servers that are exchanged one after the other, while callers that try again ask: none may fail."""

import asyncio
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Final

import grpc
import grpc.aio

from benchmarks.faults.calls import PREDICT, Ended, ask, codes, predict_request
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.served import START_S, NotServedError, Server, begin, end, first_line, free_port
from benchmarks.faults.target import Target
from benchmarks.report import at_least, at_most, shown

ROUNDS, QUICK_ROUNDS = 10, 1
CALLERS: Final = 4
PATIENCE_S: Final = 40.0
TRIES: Final = 10
AGAIN_S: Final = 0.05


def run(place: Place) -> Iterator[Finding]:
    """Two servers on addresses of their own."""
    ports = (free_port(), free_port())
    servers = [started(place, port) for port in ports]
    try:
        yield _finding(place, servers, [Target(port) for port in ports])
    finally:
        for server in servers:
            end(server)


def started(place: Place, port: int) -> Server:
    """A server that answers there."""
    server = begin(place.material.small, place.log, "--log-level", "error", listen=f"127.0.0.1:{port}")
    if not first_line(server, START_S):
        raise NotServedError(f"no server in {START_S:g} s: {place.log.read_text(encoding='utf-8')[-500:]}")
    return server


def _finding(place: Place, servers: list[Server], targets: list[Target]) -> Finding:
    rounds = place.count(ROUNDS, QUICK_ROUNDS)
    codes_at_end: list[int] = []

    def exchange() -> None:
        for _ in range(rounds):
            for number, target in enumerate(targets):
                servers[number].popen.send_signal(signal.SIGTERM)
                codes_at_end.append(_ended(servers[number]))
                servers[number] = started(place, target.port)

    request = predict_request(place.material.one_stock())
    calls = asyncio.run(_load(targets, request, exchange))
    failed = sum(one.code is not grpc.StatusCode.OK for one, _ in calls)
    again = sum(tries - 1 for _, tries in calls)
    bad = sum(code != 0 for code in codes_at_end)
    return Finding(
        fault="rolling restart",
        done=f"{len(codes_at_end)} restarts of two servers in turn, each after SIGTERM, while {CALLERS} callers ask; "
        f"a caller that is told UNAVAILABLE asks the other server, {TRIES} times at most",
        calls=len(calls),
        wrong=bad,
        lost=failed,
        rows=[
            at_most("calls that fail", failed, 0, detail=codes(one for one, _ in calls)),
            at_most("servers that do not end in order", bad, 0, detail=f"of {len(codes_at_end)}"),
            at_least("calls that were asked again", again, 1, detail="else nothing was tested"),
            shown("slowest answer, s", max(one.took_s for one, _ in calls), detail="without what was tried before"),
        ],
        detail=codes(one for one, _ in calls),
        naive="naive: a client that does not try again: each call meets the server that is stopping, or not",
    )


def _ended(server: Server) -> int:
    """The exit code; -1 if it does not end."""
    try:
        code = server.popen.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        return -1
    assert server.popen.stdout is not None
    server.popen.stdout.close()
    return code


async def _load(targets: list[Target], request: bytes, work: Callable[[], None]) -> list[tuple[Ended, int]]:
    """Ask while the work is done in a thread of its own: each call's end, and how often it was tried."""
    done, calls = threading.Event(), list[tuple[Ended, int]]()

    async def caller(first: int) -> None:
        channels = [target.channel() for target in targets]
        while not done.is_set():
            calls.append(await _try(channels, first, request))
        for channel in channels:
            await channel.close()

    async def worker() -> None:
        try:
            await asyncio.to_thread(work)
        finally:
            done.set()

    await asyncio.gather(worker(), *(caller(number) for number in range(CALLERS)))
    return calls


async def _try(channels: list[grpc.aio.Channel], first: int, request: bytes) -> tuple[Ended, int]:
    """Ask one server after the other until one answers; the last end, and how many were asked."""
    for tries in range(1, TRIES):
        ended = await ask(channels[(first + tries) % len(channels)], PREDICT, request, PATIENCE_S)
        if ended.code is not grpc.StatusCode.UNAVAILABLE:
            return ended, tries
        await asyncio.sleep(AGAIN_S)
    return await ask(channels[first], PREDICT, request, PATIENCE_S), TRIES
