"""The faults of a server that is told to stop while it loads or answers, and of calls that come too early."""

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

import grpc

from benchmarks.faults.calls import EXPLAIN, Ended, ask, ask_once, codes
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.models import NAME
from benchmarks.faults.pulse import CHECK
from benchmarks.faults.served import START_S, Server, begin, end, first_line, free_port, serving, wait_for
from benchmarks.faults.target import Target
from benchmarks.report import Row, at_least, at_most, shown
from predictor._pb import prediction_pb2 as pb

STOP_S: Final = 2.0
"""Within which a server that loads ends."""
PATIENCE_S: Final = 40.0
CALL_S: Final = 2.0
"""How long a call to a server that loads may take; to say that it loads takes no time."""
DELAYS_S: Final = (0.0, 0.3, 0.8, 1.5)
QUICK_DELAYS_S: Final = (0.3,)
"""When the signal comes, seconds after the address was claimed."""
PREDICTIONS, QUICK_PREDICTIONS = 300, 100
EXPLANATIONS: Final = 4


@final
@dataclass(frozen=True, slots=True)
class Stopped:
    """How a server ended that was told to while it loaded."""

    took_s: float
    """As long as was waited if it did not end."""
    code: int | None
    """Its exit code; None if it did not end."""
    said: str
    """Its first line."""

    @property
    def is_right(self) -> bool:
        """In time, orderly, and without having promised anything."""
        return self.took_s <= STOP_S and self.code == 0 and not self.said


def run(place: Place) -> Iterator[Finding]:
    """While it loads, then while it answers."""
    if place.door.is_plain or not place.quick:
        yield _early(place)
        yield _loading(place)
    yield _answering(place)


def claimed(place: Place) -> tuple[Server, int]:
    """A server that has begun to load: it has claimed an address, which is known although it has not said so."""
    port = free_port()
    server = begin(
        place.material.many, place.log, "--log-level", "error", listen=f"127.0.0.1:{port}", secured=place.door.secured
    )
    wait_for(lambda: is_open(port) or not server.is_alive, START_S)
    return server, port


def is_open(port: int) -> bool:
    """Whether connections are accepted."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _early(place: Place) -> Finding:
    """Calls from when the address is claimed to the server's first line."""
    server, port = claimed(place)
    try:
        ends = asyncio.run(_ask_until_ready(place, server, Target(port, place.door.secured)))
    finally:
        end(server)
    answered = {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
    hung = sum(one.code is grpc.StatusCode.DEADLINE_EXCEEDED for one in ends)
    return Finding(
        fault="calls while the server loads",
        done=f"a call every 50 ms, each over a connection of its own, for {CALL_S:g} s at most, until the first line",
        calls=len(ends),
        wrong=sum(one.code not in answered for one in ends) - hung,
        lost=hung,
        rows=[shown("slowest answer, s", max((one.took_s for one in ends), default=0.0), detail=codes(ends))],
        detail=codes(ends),
    )


def _request(place: Place) -> bytes:
    return place.door.speech.request(place.material.one_stock(), model=NAME)


async def _ask_until_ready(place: Place, server: Server, target: Target) -> list[Ended]:
    calls, path, request = list[asyncio.Task[Ended]](), place.door.speech.predict, _request(place)
    ready = asyncio.ensure_future(asyncio.to_thread(first_line, server, START_S))
    while not ready.done():
        calls.append(asyncio.ensure_future(ask_once(target, path, request, CALL_S)))
        await asyncio.wait([ready], timeout=0.05)
    return await asyncio.gather(*calls)


def _loading(place: Place) -> Finding:
    """The signal at several moments of loading."""
    found = [stopped_after(place, delay) for delay in (QUICK_DELAYS_S if place.quick else DELAYS_S)]
    told = ", ".join(f"{one.took_s:.1f} s, exit code {one.code}, {one.said or 'nothing'!r}" for one in found)
    return Finding(
        fault="SIGTERM while the server loads",
        done="at several moments after its address was claimed: it ends within 2 s, with exit code 0, and says nothing",
        calls=len(found),
        wrong=sum(not one.is_right for one in found),
        lost=sum(one.code is None for one in found),
        rows=_stop_rows(found, judged=not place.quick),
        detail=told,
    )


def _stop_rows(found: Sequence[Stopped], *, judged: bool) -> list[Row]:
    return [
        at_most("longest time to its end, s", max(one.took_s for one in found), STOP_S, detail="", judged=judged),
        at_most("exit codes other than 0", sum(one.code != 0 for one in found), 0, detail=""),
        at_most("first lines that say ready", sum(bool(one.said) for one in found), 0, detail=""),
    ]


def stopped_after(place: Place, delay_s: float) -> Stopped:
    """Start a server, tell it to stop, and wait."""
    server, _ = claimed(place)
    try:
        time.sleep(delay_s)
        start = time.monotonic()
        server.popen.send_signal(signal.SIGTERM)
        try:
            code = server.popen.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = None
        took_s = time.monotonic() - start
        return Stopped(took_s, code, first_line(server, 0.0).strip())
    finally:
        end(server)


def _answering(place: Place) -> Finding:
    """The signal while predictions and explanations are under way."""
    count = place.count(PREDICTIONS, QUICK_PREDICTIONS)
    with serving(place.material.heavy, place.log, "--log-level", "error", secured=place.door.secured) as server:
        ends, waiting, took_s = asyncio.run(_stop_within(server, place, count))
        try:
            code = server.popen.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = None
    failed = sum(one.code is not grpc.StatusCode.OK for one in ends)
    return Finding(
        fault="SIGTERM while the server answers",
        done=f"{count} predictions and {EXPLANATIONS} explanations; the signal when a health check behind them is back",
        calls=len(ends),
        wrong=int(code != 0),
        lost=failed,
        rows=[
            at_most("calls before the signal without an answer", failed, 0, detail=codes(ends)),
            at_least("calls that waited when it came", waiting, 1, detail=f"of {len(ends)}"),
            at_most("exit code", PATIENCE_S if code is None else abs(code), 0, detail=f"{code}"),
            shown("from the signal to the last answer, s", took_s, detail=""),
        ],
        detail=codes(ends),
        naive="naive: a grace of 0.3 s: 4 of 4 calls in flight UNAVAILABLE",
    )


async def _stop_within(server: Server, place: Place, count: int) -> tuple[list[Ended], int, float]:
    """The calls' ends, how many there were when the signal came, and how long after it the last answer did."""
    question = pb.ExplainRequest(model=NAME, instance=place.material.bars()).SerializeToString()
    path = place.door.speech.predict
    async with server.target.channel() as channel:
        await ask(channel, path, _request(place))
        reasons = (ask(channel, EXPLAIN, question, PATIENCE_S) for _ in range(EXPLANATIONS))
        forecasts = (ask(channel, path, _request(place), PATIENCE_S) for _ in range(count))
        calls = [asyncio.ensure_future(one) for one in (*reasons, *forecasts)]
        await asyncio.sleep(0)  # all have been sent; the connection keeps their order
        await ask(channel, CHECK, b"", PATIENCE_S)
        waiting = sum(not one.done() for one in calls)
        server.popen.send_signal(signal.SIGTERM)
        start = time.monotonic()
        ends = await asyncio.gather(*calls)
        return ends, waiting, time.monotonic() - start
