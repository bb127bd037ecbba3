"""A mixed load on one server: each caller makes one call after another and reconnects periodically."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol, final

import grpc
import grpc.aio

from benchmarks.faults.calls import (
    EXPLAIN,
    INFER,
    NO_ANSWER,
    PREDICT,
    STREAM,
    ask,
    infer_request,
    open_channel,
    predict_request,
    session_requests,
)
from predictor._pb import prediction_pb2 as pb

TIMEOUT_S: Final = 60.0
CALLS_PER_CONNECTION: Final = 100
_OK: Final = frozenset({grpc.StatusCode.OK})


class CallKind(Protocol):
    """One kind of call."""

    @property
    def name(self) -> str:
        """Name in reports."""
        ...

    @property
    def share(self) -> int:
        """Weight when callers choose a part."""
        ...

    async def once(self, channel: grpc.aio.Channel) -> grpc.StatusCode | None:
        """Make the call; None if it ended as expected, else its status."""
        ...


@final
@dataclass(frozen=True, slots=True)
class UnaryCall:
    """A call that must end with an expected status."""

    name: str
    share: int
    path: str
    body: bytes
    expected: frozenset[grpc.StatusCode] = _OK

    async def once(self, channel: grpc.aio.Channel) -> grpc.StatusCode | None:
        """Call and check the status."""
        end = await ask(channel, self.path, self.body, TIMEOUT_S)
        return None if end.code in self.expected else end.code


@final
@dataclass(frozen=True, slots=True)
class CancelledCall:
    """A call that the caller cancels after a moment; the response may arrive earlier."""

    name: str
    share: int
    path: str
    body: bytes
    after_s: float

    async def once(self, channel: grpc.aio.Channel) -> grpc.StatusCode | None:
        """Call, wait, cancel."""
        call: Any = channel.unary_unary(self.path)(self.body, timeout=TIMEOUT_S)
        await asyncio.sleep(self.after_s)
        call.cancel()
        code: grpc.StatusCode = await call.code()
        return None if code in {grpc.StatusCode.CANCELLED, grpc.StatusCode.OK} else code


@final
@dataclass(frozen=True, slots=True)
class LateCall:
    """A call with a very short deadline.

    If the deadline expires on the server first, gRPC may reset the call and report CANCELLED shortly before it.
    """

    name: str
    share: int
    path: str
    body: bytes
    timeout_s: float

    async def once(self, channel: grpc.aio.Channel) -> grpc.StatusCode | None:
        """Call and check the status and its time."""
        end = await ask(channel, self.path, self.body, self.timeout_s)
        was_reset = end.is_bare_cancel and end.took_s >= 0.8 * self.timeout_s
        return None if was_reset or end.code in {grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED} else end.code


@final
@dataclass(frozen=True, slots=True)
class StreamCall:
    """A stream with several requests, which the caller then closes."""

    name: str
    share: int
    requests: Sequence[bytes]
    """Each must get a response without an error."""

    async def once(self, channel: grpc.aio.Channel) -> grpc.StatusCode | None:
        """Send all requests and check every response."""
        call: Any = channel.stream_stream(STREAM)(iter(self.requests), timeout=TIMEOUT_S)
        try:
            responses = [pb.PredictStreamResponse.FromString(one) async for one in call]
        except grpc.aio.AioRpcError as error:
            return error.code()
        errors = [one.error.code for one in responses if one.HasField("error")]
        if len(responses) < len(self.requests):
            return grpc.StatusCode.UNKNOWN
        return next((code for code in grpc.StatusCode if errors and code.value[0] == errors[0]), None)


def all_parts(bars: pb.Instance, window: pb.Instance, panel: pb.Instance, model: str) -> tuple[CallKind, ...]:
    """Windows, bars, panels, sessions, explanations, malformed requests, late and cancelled calls."""
    question = pb.ExplainRequest(model=model, instance=bars, tolerance=0.05).SerializeToString()
    whole = predict_request(panel, bars, model=model)
    invalid, missing = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    return (
        UnaryCall("windows", 40, PREDICT, predict_request(window, model=model)),
        UnaryCall("bars", 20, PREDICT, predict_request(bars, model=model)),
        UnaryCall("panels", 10, PREDICT, predict_request(*[panel] * 4, model=model)),
        UnaryCall("KServe bars", 10, INFER, infer_request(bars, model)),
        StreamCall("sessions", 4, session_requests(bars, model)),
        UnaryCall("explanations", 2, EXPLAIN, question),
        UnaryCall("truncated messages", 6, PREDICT, whole[: len(whole) // 2], frozenset({invalid})),
        UnaryCall("unknown models", 6, PREDICT, predict_request(bars, model="../none"), frozenset({invalid, missing})),
        LateCall("late calls", 4, PREDICT, whole, timeout_s=0.005),
        CancelledCall("cancelled predictions", 6, PREDICT, whole, 0.003),
        CancelledCall("cancelled explanations", 2, EXPLAIN, question, 0.01),
    )


@final
@dataclass(frozen=True, slots=True)
class FinishedCall:
    """A finished call."""

    part: str
    at_s: float
    """Time from the start of the load to the end of the call."""
    took_s: float
    unexpected: grpc.StatusCode | None

    @property
    def is_lost(self) -> bool:
        """Whether there was no response."""
        return self.unexpected in NO_ANSWER


@final
@dataclass(slots=True)
class Load:
    """Callers of one server.

    Attributes:
        target: The server's address.
        parts: The kinds of calls.
        calls: Finished calls in the order of their end.
        connections: Connections opened so far.
    """

    target: str
    parts: Sequence[CallKind]
    calls: list[FinishedCall] = field(default_factory=list[FinishedCall])
    connections: int = 0

    async def run(self, callers: int, is_over: Callable[[], bool]) -> None:
        """Run the callers until `is_over`."""
        start = time.monotonic()
        await asyncio.gather(*(self._caller(Random(seed), start, is_over) for seed in range(callers)))  # noqa: S311 - a choice

    async def once_each(self) -> None:
        """Make every kind of call once without counting it, so that all threads and buffers exist."""
        async with open_channel(self.target) as channel:
            for part in self.parts:
                await part.once(channel)

    async def _caller(self, dice: Random, start: float, is_over: Callable[[], bool]) -> None:
        shares = [part.share for part in self.parts]
        while not is_over():
            self.connections += 1
            async with open_channel(self.target) as channel:
                for part in dice.choices(self.parts, shares, k=CALLS_PER_CONNECTION):
                    if is_over():
                        return
                    asked = time.monotonic()
                    unexpected = await part.once(channel)
                    ended = time.monotonic()
                    self.calls.append(FinishedCall(part.name, ended - start, ended - asked, unexpected))
