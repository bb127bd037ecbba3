"""A closed loop of calls from a process of its own: so many are in flight, and each that ends is followed by another.

Requests and answers are bytes, so that the client's own work is gRPC alone.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import grpc
import grpc.aio
import numpy as np

from benchmarks.calling.subject import PREDICT
from predictor.arrays import FloatArray

if TYPE_CHECKING:
    from multiprocessing.connection import Connection  # no generic class while the program runs

SPAWN: Final = multiprocessing.get_context("spawn")
MOST_CHANNELS: Final = 4
WARM_S: Final = 0.2
_OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 16 << 20))


@final
@dataclass(frozen=True, slots=True)
class Access:
    """How the server is reached."""

    authority: bytes
    """PEM; empty: plain text."""
    token: str = ""

    def open(self, target: str) -> grpc.aio.Channel:
        """A connection of its own."""
        if not self.authority:
            return grpc.aio.insecure_channel(target, options=_OPTIONS)
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(self.authority), options=_OPTIONS)

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Of each call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


PLAIN: Final = Access(b"")


@final
@dataclass(frozen=True, slots=True)
class Turn:
    """What is asked for how long."""

    request: str
    """Its name."""
    in_flight: int
    seconds: float


@final
@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """The calls of one turn, or of several."""

    took_s: FloatArray
    """[N] from each request to its answer, all of them within the time."""
    seconds: float

    @property
    def per_second(self) -> float:
        """Calls a second."""
        return len(self.took_s) / self.seconds

    def percentile_ms(self, percent: float) -> float:
        """Of what a call takes."""
        return 1e3 * float(np.percentile(self.took_s, percent))


def together(turns: list[Calls]) -> Calls:
    """Their calls, as those of one turn."""
    return Calls(np.concatenate([one.took_s for one in turns]), sum(one.seconds for one in turns))


@final
class Load:
    """The other process; one turn at a time.

    Args:
        there: the connection to it.
    """

    def __init__(self, there: "Connection[Turn, Calls]") -> None:
        self._there = there

    def run(self, turn: Turn) -> Calls:
        """Take a turn; a call that fails ends the other process, and this raises EOFError."""
        self._there.send(turn)
        return self._there.recv()


@contextmanager
def load(target: str, requests: Mapping[str, bytes], access: Access = PLAIN) -> Generator[Load]:
    """Start the process that asks the server at `target`, with these requests by name."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=answer_turns, args=(target, dict(requests), access, there), daemon=True)
    process.start()
    there.close()
    try:
        yield Load(here)
    finally:
        process.terminate()
        process.join()


def answer_turns(target: str, requests: Mapping[str, bytes], access: Access, told: "Connection[Calls, Turn]") -> None:
    """Take turns until the process is ended; runs in its own process."""
    while True:
        turn = told.recv()
        told.send(asyncio.run(calls_of(target, requests[turn.request], turn, access)))


async def calls_of(target: str, request: bytes, turn: Turn, access: Access = PLAIN) -> Calls:
    """Call for as long as the turn takes, after a little time that does not count."""
    channels = [access.open(target) for _ in range(min(turn.in_flight, MOST_CHANNELS))]
    begin = time.perf_counter() + WARM_S
    end, took_s = begin + turn.seconds, list[float]()

    async def caller(channel: grpc.aio.Channel) -> None:
        predict = channel.unary_unary(PREDICT)
        while (asked := time.perf_counter()) < end:
            await predict(request, metadata=access.headers)
            answered = time.perf_counter()
            if asked >= begin and answered <= end:
                took_s.append(answered - asked)

    await asyncio.gather(*(caller(channels[place % len(channels)]) for place in range(turn.in_flight)))
    for channel in channels:
        await channel.close()
    return Calls(np.array(took_s), turn.seconds)
