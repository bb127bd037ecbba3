"""Prediction streams of both clients: requests, responses, flow control and detection of unresponsive servers."""

import asyncio
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Self, TypeVar, final

from predictor._pb import prediction_pb2 as pb
from predictor.client.calls import decode_response
from predictor.errors import ConfigurationError, DeadlineExceededError, InternalError
from predictor.forecast import Outcome
from predictor.instance import InstanceLike, to_instance
from predictor.wire import errors, forecasts, instances

DEFAULT_IN_FLIGHT: Final = 32
"""Default number of unanswered requests on one stream."""
GRACE_S: Final = 5.0
"""Seconds after its timeout in which the server still reports a request as expired."""
WATCH_S: Final = 1.0
"""Interval in seconds between checks for an unresponsive server."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamResponse:
    """The outcome of one instance of a stream."""

    index: int
    """Index of the instance, from 0."""
    request_id: str
    """Id set in the instance; may be empty."""
    outcome: Outcome
    """Forecast or error of the instance."""


@final
class RequestStream:
    """Requests and responses of one stream. One thread may send while another reads.

    Args:
        target: address of the server, for messages.
        model: reference of the model.
        timeout_s: timeout of each instance in seconds.
        in_flight: most unanswered requests, at least 1.

    Raises:
        ConfigurationError: `in_flight` is below 1.
    """

    def __init__(self, target: str, model: str, timeout_s: float, in_flight: int) -> None:
        if in_flight < 1:
            raise ConfigurationError(f"in_flight is {in_flight}, but must be at least 1")
        self.target = target
        self.in_flight = in_flight
        self._model = model
        self._timeout_s = timeout_s
        self._count = 0
        self._sent_requests: dict[str, tuple[str, float]] = {}
        self._waits_since_at_s: float | None = None

    def request(self, source: InstanceLike) -> pb.PredictStreamRequest:
        """Build the request for the next instance; its id on the wire is its index."""
        instance, wire_id = to_instance(source), str(self._count)
        predict = pb.StreamPredict(model=self._model, instance=instances.encode(instance))
        self._sent_requests[wire_id] = instance.request_id, time.monotonic()
        self._count += 1
        return pb.PredictStreamRequest(request_id=wire_id, timeout_s=self._timeout_s, predict=predict)

    def decode_response(self, response: pb.PredictStreamResponse) -> StreamResponse:
        """Decode a response; raises InternalError if it is malformed, or no pending request has its id."""
        self._waits_since_at_s = None
        pending = self._sent_requests.pop(response.request_id, None)
        if pending is None:
            raise InternalError(
                f"{self.target} answered unknown request {response.request_id[:80]!r}; use the same version of client "
                "and server"
            )
        outcome: Outcome
        match response.WhichOneof("outcome"):
            case "forecast":
                outcome = decode_response(self.target, forecasts.decode, response.forecast)
            case "error":
                outcome = errors.decode(response.error)
            case kind:
                raise InternalError(
                    f"{self.target} answered with {kind or 'nothing'} instead of a forecast or an error; use the same "
                    "version of client and server"
                )
        return StreamResponse(index=int(response.request_id), request_id=pending[0], outcome=outcome)

    def begin_wait(self) -> None:
        """Record that the caller waits for the next response."""
        self._waits_since_at_s = time.monotonic()

    def is_overdue(self) -> bool:
        """Whether the response that the caller waits for is overdue."""
        oldest_s = next((sent_s for _, sent_s in [*self._sent_requests.values()]), None)
        waits_since_at_s = self._waits_since_at_s
        if oldest_s is None or waits_since_at_s is None:
            return False
        return time.monotonic() > max(oldest_s, waits_since_at_s) + self._timeout_s + GRACE_S

    def make_timeout_error(self) -> DeadlineExceededError:
        """Return the error of a server that has stopped responding."""
        return DeadlineExceededError(
            f"no response from {self.target} within {self._timeout_s + GRACE_S:g} s; set a longer timeout, or use "
            "another server"
        )

    def check_complete(self) -> None:
        """Check that every instance has a response; raises InternalError."""
        if self._sent_requests:
            raise InternalError(
                f"{self.target} ended the stream with {len(self._sent_requests)} unanswered requests; send them again"
            )


SemaphoreT = TypeVar("SemaphoreT", threading.Semaphore, asyncio.Semaphore)


class SentRequests(Generic[SemaphoreT]):
    """The requests that a stream has sent, and room for more."""

    def __init__(self, stream: RequestStream, room: SemaphoreT) -> None:
        self._stream, self._room = stream, room
        self._failure: Exception | None = None

    def release(self) -> None:
        """Release the capacity of an answered request."""
        self._room.release()

    def check(self) -> None:
        """Raise the exception of the instances, if any."""
        if self._failure is not None:
            raise self._failure


@final
class RequestSender(SentRequests[threading.Semaphore]):
    """Sends the requests of a stream. gRPC iterates over them in its own thread.

    Args:
        stream: builds the requests.
        instances: iterated in that thread as capacity becomes available.
    """

    def __init__(self, stream: RequestStream, instances: Iterable[InstanceLike]) -> None:
        super().__init__(stream, threading.Semaphore(stream.in_flight))
        self._instances = instances
        self._is_over = False

    def requests(self) -> Iterator[pb.PredictStreamRequest]:
        """Yield each request when there is capacity. An exception from `instances` ends them; `check` raises it."""
        instances = iter(self._instances)
        try:
            while self._room.acquire() and not self._is_over:
                try:
                    instance = next(instances)
                except StopIteration:
                    return
                yield self._stream.request(instance)
        except Exception as error:  # noqa: BLE001 - end of a thread: `check` raises it in the caller
            self._failure = error

    def stop(self) -> None:
        """Stop sending; the caller no longer reads responses."""
        self._is_over = True
        self._room.release()


@final
class AsyncRequestSender(SentRequests[asyncio.Semaphore]):
    """`RequestSender` for asyncio, where gRPC iterates over the requests in a task.

    Args:
        stream: builds the requests.
        instances: iterated in that task as capacity becomes available.
    """

    def __init__(self, stream: RequestStream, instances: Iterable[InstanceLike] | AsyncIterable[InstanceLike]) -> None:
        super().__init__(stream, asyncio.Semaphore(stream.in_flight))
        self._instances = instances

    async def requests(self) -> AsyncIterator[pb.PredictStreamRequest]:
        """See `RequestSender.requests`."""
        instances = _iterate(self._instances)
        try:
            while await self._room.acquire():
                try:
                    instance = await anext(instances)
                except StopAsyncIteration:
                    return
                yield self._stream.request(instance)
        except Exception as error:  # noqa: BLE001 - end of a task: `check` raises it in the caller
            self._failure = error


async def _iterate(
    instances: Iterable[InstanceLike] | AsyncIterable[InstanceLike],
) -> AsyncIterator[InstanceLike]:
    if isinstance(instances, AsyncIterable):
        async for instance in instances:
            yield instance
    else:
        for instance in instances:
            yield instance


@final
class SilenceMonitor:
    """A thread that cancels a call when its server stops responding.

    Args:
        stream: requests of the call.
        cancel: cancels the call.
    """

    def __init__(self, stream: RequestStream, cancel: Callable[[], object]) -> None:
        self._stream, self._cancel = stream, cancel
        self._is_over = threading.Event()
        self.has_cancelled = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, name="stream-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.wait(WATCH_S):
            if self._stream.is_overdue():
                self.has_cancelled = True
                self._cancel()
                return
