"""Calls with a stream of response messages."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import final

from predictor.calls.futures import fail, follow, settle
from predictor.errors import MalformedRequestError, QuantraError, RequestTooLargeError
from predictor.instance import Deadline

ResponseCallback = Callable[[bytes], object]
"""Receives one response message; called on any thread, possibly on several at once. It must not block."""


class OpenCall(ABC):
    """A call in progress: requests go in one by one and messages come out until `ended` is done.

    Its methods neither raise nor block.
    """

    def __init__(self, name: str, deadline: Deadline, emit: ResponseCallback) -> None:
        self._name, self._deadline, self._emit = name, deadline, emit
        self.ended: Future[None] = Future()
        """Done when all messages were emitted; its error is always a QuantraError."""

    @abstractmethod
    def send(self, request: bytes) -> bool:
        """Send a request. Returns whether the next may be sent now; if not, wait until `taken` returns True."""

    @abstractmethod
    def taken(self, size: int) -> bool:
        """Acknowledge a received message of `size` bytes. Returns whether a request may follow now."""

    @abstractmethod
    def end(self) -> None:
        """End the requests."""

    @abstractmethod
    def stop(self, error: QuantraError) -> None:
        """Reject new requests, answer pending ones, then fail with this error."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancel the call: drop queued requests and interrupt running ones."""


class OneRequestCall(OpenCall):
    """A call with exactly one request."""

    _has_begun = False

    @abstractmethod
    def _begin(self, request: bytes) -> None:
        """Start the work on the request."""

    def send(self, request: bytes) -> bool:
        """Send the request; a second one fails the call."""
        if self._has_begun:
            self._deadline.cancel()
            fail(self._name, self.ended, MalformedRequestError(f"{self._name} takes one request; send only one"))
        else:
            self._has_begun = True
            self._begin(request)
        return True

    def taken(self, size: int) -> bool:  # noqa: ARG002 - one request has few messages
        """See `OpenCall`."""
        return True

    def end(self) -> None:
        """End the requests."""
        if not self._has_begun:
            fail(self._name, self.ended, MalformedRequestError("the call ended without a request; send one message"))

    def stop(self, error: QuantraError) -> None:
        """Fail if there was no request; a started one continues."""
        if not self._has_begun:
            fail(self._name, self.ended, error)

    def cancel(self) -> None:
        """See `OpenCall`."""
        self._deadline.cancel()
        self.ended.cancel()


@final
class ProgressCall(OneRequestCall):
    """A call whose response ends with the result of one future.

    Args:
        name, deadline, emit: As for `OpenCall`.
        start: Starts the request; its future holds the last message.
    """

    def __init__(
        self, name: str, start: "Callable[[bytes], Future[bytes]]", deadline: Deadline, emit: ResponseCallback
    ) -> None:
        super().__init__(name, deadline, emit)
        self._start = start

    def _begin(self, request: bytes) -> None:
        follow(self._name, self._start(request), self.ended, self._finish)

    def _finish(self, message: bytes) -> None:
        self._emit(message)
        settle(self.ended, None)


@final
class StreamWindow:
    """Counts messages and bytes. Not thread-safe.

    Args:
        most: Largest number of requests and responses.
        most_size: Bytes at which no further request may follow.
    """

    def __init__(self, most: int, most_size: int) -> None:
        self._most, self._most_size = most, most_size
        self._count = self._size = 0

    @property
    def has_room(self) -> bool:
        """Whether another request may follow."""
        return self._count < self._most and self._size < self._most_size

    @property
    def held(self) -> tuple[int, int]:
        """Messages and bytes."""
        return self._count, self._size

    def enter(self, size: int) -> None:
        """Count a request."""
        self._count += 1
        self._size += size

    def answer(self, size: int, response_size: int) -> None:
        """Count a response instead of its request."""
        self._size += response_size - size

    def leave(self, response_size: int) -> None:
        """Stop counting a response that the caller received."""
        self._count -= 1
        self._size -= response_size


class ManyRequestCall(OpenCall):
    """A call with many requests in flight. Send requests one at a time, on any thread.

    Args:
        name, deadline, emit: As for `OpenCall`.
        flow: Flow control of this call only.
        most_bytes: Largest response; None: any.
    """

    def __init__(
        self, name: str, deadline: Deadline, emit: ResponseCallback, flow: StreamWindow, most_bytes: int | None
    ) -> None:
        super().__init__(name, deadline, emit)
        self._flow = flow
        self._most_bytes = most_bytes
        self._lock = threading.RLock()  # `emit` may call `taken`
        self._takes_more = True
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

    def taken(self, size: int) -> bool:
        """See `OpenCall`."""
        with self._lock:
            self._flow.leave(size)
        return self._can_continue()

    def end(self) -> None:
        """See `OpenCall`."""
        self._take_no_more(None)

    def stop(self, error: QuantraError) -> None:
        """See `OpenCall`."""
        self._take_no_more(error)

    def cancel(self) -> None:
        """See `OpenCall`."""
        self._deadline.cancel()
        with self._lock:
            self._takes_more, self._is_cancelled = False, True
            cancellations = self._list_cancellations()
        self.ended.cancel()
        for cancel in cancellations:
            cancel()
        self._release()

    def _can_continue(self) -> bool:
        """Whether another request may follow now."""
        with self._lock:
            return self._takes_more and self._flow.has_room

    def _find_excess(self, message: bytes, advice: str) -> RequestTooLargeError | None:
        """Return the error of a response that is too large."""
        size, most = len(message), self._most_bytes
        if most is None or size <= most:
            return None
        return RequestTooLargeError(
            f"the response has {size} bytes, at most {most}; {advice}", metadata={"have": str(size), "most": str(most)}
        )

    def _take_no_more(self, error: QuantraError | None) -> None:
        with self._lock:
            if self._takes_more:
                self._takes_more, self._error = False, error
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        with self._lock:
            if self._takes_more or self._is_cancelled or self._is_busy():
                return
        self._release()
        if self._error is None:
            settle(self.ended, None)
        else:
            fail(self._name, self.ended, self._error)


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
        stream.ended.add_done_callback(lambda _: self._leave(stream))
        if error is not None:
            stream.stop(error)

    def stop(self, error: QuantraError) -> None:
        """End all streams, and later ones, with this error."""
        with self._lock:
            self._error = error
            streams = [*self._streams]
        for stream in streams:
            stream.stop(error)

    def _leave(self, stream: OpenCall) -> None:
        with self._lock:
            self._streams.discard(stream)
