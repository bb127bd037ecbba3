"""Calls of bytes, and how each of them ended: status, details, and when to ask again."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from benchmarks.faults.target import Target
from predictor._pb import prediction_pb2 as pb

PREDICT: Final = "/quantra.v1.PredictionService/Predict"
EXPLAIN: Final = "/quantra.v1.PredictionService/Explain"
STREAM: Final = "/quantra.v1.PredictionService/PredictStream"
LIST: Final = "/quantra.v1.PredictionService/ListModels"
DETAILS: Final = "grpc-status-details-bin"
PUSHBACK: Final = "grpc-retry-pushback-ms"
OUR_FAULT: Final = frozenset({grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL})
NO_ANSWER: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
"""What a call ends with whose server is gone, or has not answered in the time that the caller allows."""


@final
@dataclass(frozen=True, slots=True)
class Ended:
    """How one call ended."""

    code: grpc.StatusCode
    body: bytes = b""
    has_details: bool = False
    """Whether the status carries google.rpc.Status: our server refuses with it, gRPC itself does not."""
    retry_s: float | None = None
    """When to ask again, from google.rpc.RetryInfo."""
    has_pushback: bool = False
    """Whether the trailers tell gRPC's own clients when to ask again."""
    took_s: float = 0.0
    message: str = ""

    @property
    def is_bare(self) -> bool:
        """Cancelled, but by nobody and for no reason."""
        return self.code is grpc.StatusCode.CANCELLED and not self.has_details


async def ask(
    channel: grpc.aio.Channel, path: str, body: bytes, timeout_s: float = 30.0, headers: Sequence[tuple[str, str]] = ()
) -> Ended:
    """One call that sends one message and gets one; a failure is an end too."""
    start = time.perf_counter()
    call: Any = channel.unary_unary(path)(body, timeout=timeout_s, metadata=tuple(headers))
    try:
        answer = await call
    except grpc.aio.AioRpcError as refused:
        return ended(refused, time.perf_counter() - start)
    return Ended(grpc.StatusCode.OK, answer, took_s=time.perf_counter() - start)


def ended(refused: Any, took_s: float) -> Ended:
    """Read what the error of a failed call says beside its status."""
    told: dict[str, str | bytes] = dict(refused.trailing_metadata() or ())
    details = told.get(DETAILS)
    return Ended(
        code=refused.code(),
        has_details=details is not None,
        retry_s=retry_of(details) if isinstance(details, bytes) else None,
        has_pushback=str(told.get(PUSHBACK, "")).isdigit(),
        took_s=took_s,
        message=refused.details() or "",
    )


def retry_of(details: bytes) -> float | None:
    """The delay of the google.rpc.RetryInfo in a google.rpc.Status, seconds; None if there is none."""
    info = RetryInfo()
    try:
        found = any(detail.Unpack(info) for detail in Status.FromString(details).details)
    except DecodeError:
        return None
    return info.retry_delay.seconds + info.retry_delay.nanos / 1e9 if found else None


async def ask_once(target: Target, path: str, body: bytes, timeout_s: float = 30.0) -> Ended:
    """One call over a connection of its own."""
    async with target.channel() as channel:
        return await ask(channel, path, body, timeout_s)


async def until_answered(target: Target, path: str, body: bytes, within_s: float) -> float | None:
    """Seconds until a call is answered, each over a connection of its own; None if it is not in time."""
    start = time.perf_counter()
    while (left := start + within_s - time.perf_counter()) > 0:
        end = await ask_once(target, path, body, timeout_s=left)
        if end.code is grpc.StatusCode.OK:
            return time.perf_counter() - start
        await asyncio.sleep(0.02)
    return None


async def ask_all(
    channels: Sequence[grpc.aio.Channel], path: str, bodies: Sequence[bytes], timeout_s: float
) -> list[Ended]:
    """All calls at once, over the connections in turn."""
    asked = (ask(channels[n % len(channels)], path, body, timeout_s) for n, body in enumerate(bodies))
    return await asyncio.gather(*asked)


def codes(ends: Iterable[Ended]) -> str:
    """How often each status came, in words."""
    counted = Counter(end.code.name for end in ends)
    return ", ".join(f"{count} {name}" for name, count in counted.most_common()) or "no calls"


def values_of(answer: bytes) -> bytes:
    """The numbers of every forecast in an answer, and the errors, as bytes to compare; not the answer's own name."""
    results = pb.PredictResponse.FromString(answer).results
    return b"|".join(
        result.forecast.values + result.forecast.returns + result.forecast.prices + result.error.reason.encode()
        for result in results
    )


def predict_request(*instances: pb.Instance, model: str = "") -> bytes:
    """What a caller sends."""
    return pb.PredictRequest(model=model, instances=instances).SerializeToString()
