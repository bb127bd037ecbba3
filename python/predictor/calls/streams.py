"""Calls with a stream of response messages."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import final

from predictor.call_context import CallContext
from predictor.calls.futures import forward, set_error_if_pending, set_result_if_pending
from predictor.errors import MalformedRequestError, QuantraError, RequestTooLargeError

ResponseCallback = Callable[[bytes], object]
"""Receives one response message; called on any thread, possibly on several at once. It must not block."""


class OpenCall(ABC):
    """A call in progress: requests go in one by one and messages come out until `completion` is done.

    Its methods neither raise nor block.
    """

    def __init__(self, name: str, context: CallContext, emit: ResponseCallback) -> None:
        self._name, self._context, self._emit = name, context, emit
        self.completion: Future[None] = Future()
        """Done when all messages were emitted; its error is always a QuantraError."""

    @abstractmethod
    def send(self, body: bytes) -> bool:
        """Send a request. Returns whether the next may be sent now; if not, wait until `acknowledge` returns True."""

    @abstractmethod
    def acknowledge(self, size: int) -> bool:
        """Acknowledge a received message of `size` bytes. Returns whether a request may follow now."""

    @abstractmethod
    def end_requests(self) -> None:
        """End the requests."""

    @abstractmethod
    def drain(self, error: QuantraError) -> None:
        """Reject new requests, answer pending ones, then fail with this error."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancel the call: drop queued requests and interrupt running ones."""


class OneRequestCall(OpenCall):
    """A call with exactly one request."""

    _has_begun = False

    @abstractmethod
    def _begin(self, body: bytes) -> None:
        """Start the work on the request."""

    def send(self, body: bytes) -> bool:
        """Send the request; a second one fails the call."""
        if self._has_begun:
            self._context.cancel()
            set_error_if_pending(
                self._name, self.completion, MalformedRequestError(f"{self._name} takes one request; send only one")
            )
        else:
            self._has_begun = True
            self._begin(body)
        return True

    def acknowledge(self, size: int) -> bool:  # noqa: ARG002 - one request has few messages
        """See `OpenCall`."""
        return True

    def end_requests(self) -> None:
        """End the requests."""
        if not self._has_begun:
            set_error_if_pending(
                self._name, self.completion, MalformedRequestError("the call ended without a request; send one message")
            )

    def drain(self, error: QuantraError) -> None:
        """Fail if there was no request; a started one continues."""
        if not self._has_begun:
            set_error_if_pending(self._name, self.completion, error)

    def cancel(self) -> None:
        """See `OpenCall`."""
        self._context.cancel()
        self.completion.cancel()


@final
class ProgressCall(OneRequestCall):
    """A call with one request that may emit progress and ends with a result.

    Args:
        name, context, emit: As for `OpenCall`.
        start: Starts the request and returns the future of the last message.
    """

    def __init__(
        self, name: str, start: "Callable[[bytes], Future[bytes]]", context: CallContext, emit: ResponseCallback
    ) -> None:
        super().__init__(name, context, emit)
        self._start = start

    def _begin(self, body: bytes) -> None:
        forward(self._name, self._start(body), self.completion, self._finish)

    def _finish(self, message: bytes) -> None:
        self._emit(message)
        set_result_if_pending(self.completion, None)


@final
class FlowControl:
    """Flow control of one stream: counts its requests and unread responses, in messages and bytes.

    It is not thread-safe.

    Args:
        max_count: Largest number of requests and responses.
        max_size: Bytes at which no further request may follow.
    """

    def __init__(self, max_count: int, max_size: int) -> None:
        self._max_count, self._max_size = max_count, max_size
        self.count = 0
        """Requests and unread responses."""
        self.size = 0
        """Their bytes."""

    @property
    def has_room(self) -> bool:
        """Whether another request may follow."""
        return self.count < self._max_count and self.size < self._max_size

    def add_request(self, size: int) -> None:
        """Count a request."""
        self.count += 1
        self.size += size

    def replace_with_response(self, size: int, response_size: int) -> None:
        """Count a response instead of its request."""
        self.size += response_size - size

    def remove_response(self, response_size: int) -> None:
        """Stop counting a response that the caller received."""
        self.count -= 1
        self.size -= response_size


class ManyRequestCall(OpenCall):
    """A call with many requests in flight. Send requests one at a time, on any thread.

    Args:
        name, context, emit: As for `OpenCall`.
        flow_control: Flow control of this call only.
        max_bytes: Largest response; None: any.
    """

    def __init__(
        self, name: str, context: CallContext, emit: ResponseCallback, flow_control: FlowControl, max_bytes: int | None
    ) -> None:
        super().__init__(name, context, emit)
        self._flow_control = flow_control
        self._max_bytes = max_bytes
        self._lock = threading.RLock()  # `emit` may call `acknowledge`
        self._is_accepting = True
        self._is_cancelled = False
        self._error: QuantraError | None = None
        """The error that the call ends with."""

    @abstractmethod
    def _list_cancellations(self) -> Sequence[Callable[[], object]]:
        """List a function for each request without a response that cancels it; called with the lock."""

    @abstractmethod
    def _is_busy(self) -> bool:
        """Whether work or a response is outstanding; called with the lock."""

    def _release(self) -> None:
        """Release what the call holds, at its end or cancellation."""

    def acknowledge(self, size: int) -> bool:
        """See `OpenCall`."""
        with self._lock:
            self._flow_control.remove_response(size)
        return self._can_continue()

    def end_requests(self) -> None:
        """See `OpenCall`."""
        self._stop_accepting(None)

    def drain(self, error: QuantraError) -> None:
        """See `OpenCall`."""
        self._stop_accepting(error)

    def cancel(self) -> None:
        """See `OpenCall`."""
        self._context.cancel()
        with self._lock:
            self._is_accepting, self._is_cancelled = False, True
            cancellations = self._list_cancellations()
        self.completion.cancel()
        for cancel in cancellations:
            cancel()
        self._release()

    def _can_continue(self) -> bool:
        """Whether another request may follow now."""
        with self._lock:
            return self._is_accepting and self._flow_control.has_room

    def _make_excess_error(self, message: bytes, advice: str) -> RequestTooLargeError | None:
        """Return the error of a response that is too large."""
        size, max_bytes = len(message), self._max_bytes
        if max_bytes is None or size <= max_bytes:
            return None
        return RequestTooLargeError(
            f"the response has {size} bytes, at most {max_bytes}; {advice}",
            metadata={"have": str(size), "most": str(max_bytes)},
        )

    def _stop_accepting(self, error: QuantraError | None) -> None:
        with self._lock:
            if self._is_accepting:
                self._is_accepting, self._error = False, error
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        with self._lock:
            if self._is_accepting or self._is_cancelled or self._is_busy():
                return
        self._release()
        if self._error is None:
            set_result_if_pending(self.completion, None)
        else:
            set_error_if_pending(self._name, self.completion, self._error)


@final
class OpenStreams:
    """The open streams. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: set[OpenCall] = set()
        self._error: QuantraError | None = None

    def add(self, stream: OpenCall) -> None:
        """Add a stream until it ends."""
        with self._lock:
            self._streams.add(stream)
            error = self._error
        stream.completion.add_done_callback(lambda _: self._leave(stream))
        if error is not None:
            stream.drain(error)

    def drain(self, error: QuantraError) -> None:
        """End all streams, and later ones, with this error."""
        with self._lock:
            self._error = error
            streams = [*self._streams]
        for stream in streams:
            stream.drain(error)

    def _leave(self, stream: OpenCall) -> None:
        with self._lock:
            self._streams.discard(stream)
