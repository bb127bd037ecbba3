"""PredictStream by hand at each interface, for tests that are the same for all of them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Protocol, final

import grpc
from serving import serving

from predictor._pb import prediction_pb2 as pb
from predictor.call_context import CallContext
from predictor.calls import PredictionCalls
from predictor.client.calls import make_call_error
from predictor.embed import EmbeddedStream
from predictor.errors import QuantraError
from predictor.limits import ServiceLimits
from predictor.server import ServerLimits
from predictor.service import PredictionService
from predictor.wire import errors

SOON_S = 30
METHOD = "/quantra.v1.PredictionService/PredictStream"


class StreamCaller(Protocol):
    """One stream."""

    def send(self, request: bytes) -> None: ...

    def end(self) -> None: ...

    def cancel(self) -> None: ...

    def on_losses(self) -> pb.PredictStreamResponse:
        """The next response."""
        ...

    def rest(self) -> tuple[list[pb.PredictStreamResponse], QuantraError | None]:
        """All further responses and the end of the stream."""
        ...


class StreamInterface(Protocol):
    """An interface that opens streams."""

    def open(self, timeout_s: float | None = None) -> StreamCaller: ...

    def drain(self) -> None:
        """Start the drain that SIGTERM starts."""
        ...


DoorMaker = Callable[..., Any]


@final
class GrpcStreamCaller:
    """A stream over gRPC."""

    def __init__(self, channel: grpc.Channel, timeout_s: float | None) -> None:
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._call: Any = channel.stream_stream(METHOD)(iter(self._requests.get, None), timeout=timeout_s)

    def send(self, request: bytes) -> None:
        self._requests.put(request)

    def end(self) -> None:
        self._requests.put(None)

    def cancel(self) -> None:
        self._call.cancel()
        self.end()

    def on_losses(self) -> pb.PredictStreamResponse:
        return pb.PredictStreamResponse.FromString(next(self._call))

    def rest(self) -> tuple[list[pb.PredictStreamResponse], QuantraError | None]:
        heard: list[pb.PredictStreamResponse] = []
        try:
            heard.extend(map(pb.PredictStreamResponse.FromString, self._call))
        except grpc.RpcError as failure:
            return heard, make_call_error(failure, "there", 0)
        finally:
            self.end()
        return heard, None


@final
class EmbeddedStreamCaller:
    """A stream of the embedded server."""

    def __init__(self, calls: PredictionCalls, timeout_s: float | None) -> None:
        self._heard: SimpleQueue[bytes | None] = SimpleQueue()
        self._stream = EmbeddedStream(calls.open("PredictStream", CallContext.with_timeout(timeout_s), self._heard.put))
        self._stream.when_done(lambda: self._heard.put(None))

    def send(self, request: bytes) -> None:
        self._stream.send(request)

    def end(self) -> None:
        self._stream.end()

    def cancel(self) -> None:
        self._stream.cancel()

    def on_losses(self) -> pb.PredictStreamResponse:
        message = self._heard.get(timeout=SOON_S)
        assert message is not None
        self._stream.taken(len(message))
        return pb.PredictStreamResponse.FromString(message)

    def rest(self) -> tuple[list[pb.PredictStreamResponse], QuantraError | None]:
        messages = iter(lambda: self._heard.get(timeout=SOON_S), None)
        heard = [pb.PredictStreamResponse.FromString(message) for message in messages]
        status = self._stream.status()
        return heard, errors.decode_details(status) if status else None


@final
class GrpcStreamInterface:
    def __init__(self, channel: grpc.Channel, drain: Callable[[], None]) -> None:
        self._channel = channel
        self.drain = drain

    def open(self, timeout_s: float | None = None) -> StreamCaller:
        return GrpcStreamCaller(self._channel, timeout_s)


@final
class EmbeddedStreamInterface:
    def __init__(self, calls: PredictionCalls) -> None:
        self._calls = calls
        self.drain = calls.drain

    def open(self, timeout_s: float | None = None) -> StreamCaller:
        return EmbeddedStreamCaller(self._calls, timeout_s)


@contextmanager
def stream_interface(
    kind: str,
    service: PredictionService,
    limits: ServiceLimits | None = None,
) -> Generator[StreamInterface]:
    """The interface `grpc` or `embedded` to a service."""
    calls = PredictionCalls(service, limits)
    if kind == "embedded":
        yield EmbeddedStreamInterface(calls)
        calls.close()
        return
    with serving(service, ServerLimits(), calls) as served, grpc.insecure_channel(served.target) as channel:
        yield GrpcStreamInterface(channel, served.begin_drain)
