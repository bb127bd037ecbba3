"""A mixed load on one server: callers that each do one thing after another, and reconnect now and then.

What they do is a `Part` each, and how they connect is a function: other transports and protocols are further parts, or
another function.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol, TypeAlias, final

import grpc
import grpc.aio

from benchmarks.faults.calls import EXPLAIN, NO_ANSWER, PREDICT, STREAM, Ended, ask, predict_request
from benchmarks.faults.kserve import INFER, KServe
from benchmarks.faults.models import NAME, Material
from benchmarks.faults.talks import session
from predictor._pb import prediction_pb2 as pb

Connect: TypeAlias = Callable[[], grpc.aio.Channel]
"""Opens a connection of its own: the target, its credentials and its tokens are its affair."""

PATIENCE_S: Final = 60.0
RECONNECTED_AFTER: Final = 100
"""Calls of a caller over one connection."""
AS_ASKED: Final = frozenset({grpc.StatusCode.OK})
AS_LATE: Final = frozenset({grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED})
ALMOST: Final = 0.8
"""The share of a call's time after which it is almost over."""


class Part(Protocol):
    """One thing that callers do."""

    @property
    def name(self) -> str:
        """As figures name it."""
        ...

    @property
    def share(self) -> int:
        """How often it comes, beside the others' shares."""
        ...

    async def once(self, channel: grpc.aio.Channel) -> grpc.StatusCode | None:
        """Do it; None if it ended as it must, else the status with which it did."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Unary:
    """A call that is answered, or refused in one of a few ways."""

    name: str
    share: int
    path: str
    body: bytes
    expected: frozenset[grpc.StatusCode] = AS_ASKED
    timeout_s: float = PATIENCE_S

    async def once(self, channel: grpc.aio.Channel) -> grpc.StatusCode | None:
        """Ask, and look at the status."""
        end = await ask(channel, self.path, self.body, self.timeout_s)
        return None if end.code in self.expected else end.code


@final
@dataclass(frozen=True, slots=True)
class Cancelled:
    """A call that its caller gives up after a moment; it may have been answered by then."""

    name: str
    share: int
    path: str
    body: bytes
    after_s: float

    async def once(self, channel: grpc.aio.Channel) -> grpc.StatusCode | None:
        """Ask, wait a moment, and cancel."""
        call: Any = channel.unary_unary(self.path)(self.body, timeout=PATIENCE_S)
        await asyncio.sleep(self.after_s)
        call.cancel()
        code: grpc.StatusCode = await call.code()
        return None if code in {grpc.StatusCode.CANCELLED, grpc.StatusCode.OK} else code


@final
@dataclass(frozen=True, slots=True)
class Late:
    """A call that has hardly any time; it may be answered in it.

    Where the server's clock runs out first, gRPC may reset the call, and a caller with a moment left is told a bare
    CANCELLED: that counts as late too, at the end of the time and not before.
    """

    name: str
    share: int
    path: str
    body: bytes
    timeout_s: float

    async def once(self, channel: grpc.aio.Channel) -> grpc.StatusCode | None:
        """Ask, and look at the status and when it came."""
        end = await ask(channel, self.path, self.body, self.timeout_s)
        return None if end.code in AS_LATE or self.is_reset(end) else end.code

    def is_reset(self, end: Ended) -> bool:
        """Whether the server's end of the time came first."""
        return end.is_bare and end.took_s >= ALMOST * self.timeout_s


@final
@dataclass(frozen=True, slots=True)
class Conversed:
    """A stream that is asked for several things at once and then ended by its caller."""

    name: str
    share: int
    requests: Sequence[bytes]
    """Each must be answered, and with no error."""

    async def once(self, channel: grpc.aio.Channel) -> grpc.StatusCode | None:
        """Ask, and look at every answer; an error among them counts as the stream's."""
        call: Any = channel.stream_stream(STREAM)(iter(self.requests), timeout=PATIENCE_S)
        try:
            answers = [pb.PredictStreamResponse.FromString(one) async for one in call]
        except grpc.aio.AioRpcError as failure:
            return failure.code()
        errors = [one.error.code for one in answers if one.HasField("error")]
        if len(answers) < len(self.requests):
            return grpc.StatusCode.UNKNOWN
        return next((code for code in grpc.StatusCode if errors and code.value[0] == errors[0]), None)


def parts_of(material: Material) -> tuple[Part, ...]:
    """Windows, bars, panels, sessions, explanations, bad requests, cancelled and late calls."""
    window, bars, panel = material.window(), material.one_stock(), material.bars()
    question = pb.ExplainRequest(model=NAME, instance=bars, tolerance=0.05).SerializeToString()
    whole = predict_request(panel, bars, model=NAME)
    bad, none = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    return (
        Unary("windows", 40, PREDICT, predict_request(window, model=NAME)),
        Unary("bars", 20, PREDICT, predict_request(bars, model=NAME)),
        Unary("panels", 10, PREDICT, predict_request(*[panel] * 4, model=NAME)),
        Unary("KServe windows", 10, INFER, KServe().request(window)),
        Conversed("sessions", 4, session(bars)),
        Unary("explanations", 2, EXPLAIN, question),
        Unary("cut messages", 6, PREDICT, whole[: len(whole) // 2], frozenset({bad})),
        Unary("models that are not there", 6, PREDICT, predict_request(bars, model="../none"), frozenset({bad, none})),
        Late("late calls", 4, PREDICT, whole, timeout_s=0.005),
        Cancelled("cancelled predictions", 6, PREDICT, whole, 0.003),
        Cancelled("cancelled explanations", 2, EXPLAIN, question, 0.01),
    )


@final
@dataclass(frozen=True, slots=True)
class Done:
    """One call."""

    part: str
    at_s: float
    """From the load's start to the call's end."""
    took_s: float
    unexpected: grpc.StatusCode | None

    @property
    def is_lost(self) -> bool:
        """Whether there was no answer."""
        return self.unexpected in NO_ANSWER


@final
@dataclass(slots=True)
class Load:
    """Callers of one server; it can be looked at while it runs.

    Attributes:
        connect: Opens a connection.
        parts: What they do.
        calls: What they have done, in the order of its end.
        connections: How many they have opened.
    """

    connect: Connect
    parts: Sequence[Part]
    calls: list[Done] = field(default_factory=list[Done])
    connections: int = 0

    async def run(self, callers: int, is_over: Callable[[], bool]) -> None:
        """Let so many callers call until it is over."""
        start = time.monotonic()
        await asyncio.gather(*(self._caller(Random(seed), start, is_over) for seed in range(callers)))  # noqa: S311 - a choice

    async def once_each(self) -> None:
        """Every part once, so that all threads and buffers are there; not counted."""
        async with self.connect() as channel:
            for part in self.parts:
                await part.once(channel)

    async def _caller(self, dice: Random, start: float, is_over: Callable[[], bool]) -> None:
        shares = [part.share for part in self.parts]
        while not is_over():
            self.connections += 1
            async with self.connect() as channel:
                for part in dice.choices(self.parts, shares, k=RECONNECTED_AFTER):
                    if is_over():
                        return
                    asked = time.monotonic()
                    unexpected = await part.once(channel)
                    ended = time.monotonic()
                    self.calls.append(Done(part.name, ended - start, ended - asked, unexpected))
