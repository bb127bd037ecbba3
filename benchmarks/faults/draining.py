"""The fault of a server that is told to stop while calls, streams and sessions are under way, with one process and two.

What was asked before is answered; whoever asks later is told UNAVAILABLE, which may be asked again elsewhere.
"""

import asyncio
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import grpc
import grpc.aio

from benchmarks.faults import talks
from benchmarks.faults.calls import PREDICT, STREAM, Ended, ask, ask_once, codes, ended, predict_request
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.models import NAME
from benchmarks.faults.pulse import CHECK
from benchmarks.faults.served import Server, serving
from benchmarks.report import at_least, at_most
from predictor._pb import prediction_pb2 as pb

CONNECTIONS: Final = 4
"""Of each kind: with two processes, each has some of them."""
CALLS, QUICK_CALLS = 60, 15
"""Calls of a connection, and as many questions of a stream."""
SESSIONS, QUICK_SESSIONS = 20, 4
"""Of a stream."""
LATE_EVERY_S: Final = 0.01
PATIENCE_S: Final = 60.0
_LATER: Final = frozenset({grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE})


@final
@dataclass(slots=True)
class Talk:
    """A PredictStream, and what it has been asked."""

    call: Any
    asked: set[str] = field(default_factory=set[str])
    answered: dict[str, pb.PredictStreamResponse] = field(default_factory=dict[str, pb.PredictStreamResponse])
    end: Ended | None = None

    async def send(self, request_id: str, request: bytes) -> None:
        """Ask."""
        self.asked.add(request_id)
        await self.call.write(request)

    async def hear(self, request_id: str) -> None:
        """Read until this is answered, or the stream has ended."""
        while request_id not in self.answered and self.end is None:
            await self.read()

    async def read(self) -> None:
        """Take an answer, or the stream's end."""
        try:
            message = await self.call.read()
        except grpc.aio.AioRpcError as refused:
            self.end = ended(refused, 0.0)
            return
        if message is grpc.aio.EOF:
            self.end = Ended(await self.call.code(), message=await self.call.details())
        else:
            answer = pb.PredictStreamResponse.FromString(message)
            self.answered[answer.request_id] = answer

    async def hear_all(self) -> None:
        """Read until the stream has ended."""
        while self.end is None:
            await self.read()


@final
@dataclass(slots=True)
class Seen:
    """What came of it."""

    calls: list[Ended] = field(default_factory=list[Ended])
    """Those before the signal."""
    later: list[Ended] = field(default_factory=list[Ended])
    talks: list[Talk] = field(default_factory=list[Talk])
    waiting: int = 0
    """Calls and requests without an answer when the signal came."""

    @property
    def unanswered(self) -> int:
        """Calls and requests that were there before the signal, and were not answered with a forecast."""
        asked = [talk.answered.get(one) for talk in self.talks for one in talk.asked]
        silent = sum(one is None or not one.HasField("forecast") for one in asked)
        return silent + sum(one.code is not grpc.StatusCode.OK for one in self.calls)

    @property
    def ends(self) -> list[Ended]:
        """Of the streams."""
        return [talk.end for talk in self.talks if talk.end is not None]


def run(place: Place) -> Iterator[Finding]:
    """One process, then two."""
    yield _finding(place, "SIGTERM with calls and streams in flight")
    yield _finding(place, "SIGTERM with calls and streams in flight, two processes", "--processes", "2")


def _finding(place: Place, fault: str, *options: str) -> Finding:
    with serving(place.material.heavy, place.log, "--log-level", "error", *options) as server:
        seen = asyncio.run(stopped(place, server))
        try:
            code = server.popen.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = None
    otherwise = sum(one.code is not grpc.StatusCode.UNAVAILABLE for one in seen.ends)
    badly = sum(one.code not in _LATER for one in seen.later)
    asked = len(seen.calls) + sum(len(talk.asked) for talk in seen.talks)
    return Finding(
        fault=fault,
        done=f"{len(seen.calls)} calls over {CONNECTIONS} connections, and {CONNECTIONS} streams with "
        f"{place.count(CALLS, QUICK_CALLS)} questions and pushes to {place.count(SESSIONS, QUICK_SESSIONS)} sessions "
        f"each; the signal once all have arrived; then a call every {1000 * LATE_EVERY_S:g} ms",
        calls=asked + len(seen.later),
        wrong=otherwise + badly + int(code != 0),
        lost=seen.unanswered,
        rows=[
            at_most("asked before the signal and not answered", seen.unanswered, 0, detail=f"of {asked}"),
            at_least("without an answer when it came", seen.waiting, 1, detail=f"of {asked}"),
            at_most("streams that end otherwise than UNAVAILABLE", otherwise, 0, detail=codes(seen.ends)),
            at_most("later calls that end otherwise than OK or UNAVAILABLE", badly, 0, detail=codes(seen.later)),
            at_most("exit code", PATIENCE_S if code is None else abs(code), 0, detail=f"{code}"),
        ],
        detail=f"later calls: {codes(seen.later)}",
        naive="naive: with a grace shorter than the work, all in flight is UNAVAILABLE; without one, CANCELLED",
    )


async def stopped(place: Place, server: Server) -> Seen:
    """Ask, tell it to stop when all has arrived, and hear what it says."""
    seen, request = Seen(), predict_request(place.material.one_stock(), model=NAME)
    channels = [server.target.channel() for _ in range(2 * CONNECTIONS)]
    calling, talking = channels[:CONNECTIONS], channels[CONNECTIONS:]
    await asyncio.gather(*(_ask_healthy(channel) for channel in channels))
    seen.talks = await asyncio.gather(*(_opened(place, channel) for channel in talking))
    await asyncio.gather(*(_asked(place, talk) for talk in seen.talks))
    calls = [
        asyncio.ensure_future(ask(channel, PREDICT, request, PATIENCE_S))
        for channel in calling
        for _ in range(place.count(CALLS, QUICK_CALLS))
    ]
    await asyncio.sleep(0)  # all have been sent; a connection keeps their order
    await asyncio.gather(*(_ask_healthy(channel) for channel in calling))
    seen.waiting = sum(not one.done() for one in calls) + sum(len(one.asked) - len(one.answered) for one in seen.talks)
    server.popen.send_signal(signal.SIGTERM)
    later = asyncio.create_task(_later(server, channels, request))
    await asyncio.gather(*(talk.hear_all() for talk in seen.talks))
    seen.calls = await asyncio.gather(*calls)
    seen.later = await later
    for channel in channels:
        await channel.close()
    return seen


async def _ask_healthy(channel: grpc.aio.Channel) -> None:
    await ask(channel, CHECK, b"", PATIENCE_S)


async def _opened(place: Place, channel: grpc.aio.Channel) -> Talk:
    """A stream with open sessions."""
    talk = Talk(channel.stream_stream(STREAM)())
    for number in range(place.count(SESSIONS, QUICK_SESSIONS)):
        await talk.send(f"open {number}", talks.opening(f"open {number}", f"s{number}", place.material.one_stock()))
        await talk.hear(f"open {number}")
    return talk


async def _asked(place: Place, talk: Talk) -> None:
    """Questions and pushes on it, until the server has read them all."""
    one = place.material.one_stock()
    for number in range(place.count(CALLS, QUICK_CALLS)):
        await talk.send(f"ask {number}", talks.predict(f"ask {number}", one))
    for number in range(place.count(SESSIONS, QUICK_SESSIONS)):
        await talk.send(f"push {number}", talks.pushing(f"push {number}", f"s{number}", one))
    await talk.call.write(talks.asking_nobody("all"))
    await talk.hear("all")


async def _later(server: Server, channels: Sequence[grpc.aio.Channel], request: bytes) -> list[Ended]:
    """Calls over old connections and new ones until the process has ended."""
    ends: list[Ended] = []
    while server.is_alive:
        channel = channels[len(ends) % len(channels)]
        ends.append(await ask(channel, PREDICT, request, PATIENCE_S))
        ends.append(await ask_once(server.target, PREDICT, request, PATIENCE_S))
        await asyncio.sleep(LATE_EVERY_S)
    return ends
