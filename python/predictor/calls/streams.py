"""Calls with a stream of response messages."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, final

from predictor.calls.futures import fail, follow, settle
from predictor.errors import MalformedRequestError, QuantraError
from predictor.instance import Deadline

ResponseCallback = Callable[[bytes], object]
"""Receives one response message; called on any thread, possibly on several at once. It must not block."""


class OpenCall(Protocol):
    """A call in progress: requests go in one by one and messages come out until `ended` is done.

    Its methods neither raise nor block.
    """

    @property
    def ended(self) -> "Future[None]":
        """Done when all messages were emitted; its error is always a QuantraError."""
        ...

    def send(self, request: bytes) -> bool:
        """Send a request. Returns whether the next may be sent now; if not, wait until `taken` returns True."""
        ...

    def taken(self, size: int) -> bool:
        """Acknowledge a received message of `size` bytes. Returns whether a request may follow now."""
        ...

    def end(self) -> None:
        """End the requests."""
        ...

    def stop(self, error: QuantraError) -> None:
        """Reject new requests, answer pending ones, then fail with this error."""
        ...

    def cancel(self) -> None:
        """Cancel the call: drop queued requests and interrupt running ones."""
        ...


@final
class OneRequestCall:
    """A call with exactly one request.

    Args:
        name: Name of the call.
        start: Starts the request; its future holds the last message.
        deadline: Deadline of the call.
        emit: Receives each message.
    """

    def __init__(
        self, name: str, start: "Callable[[bytes], Future[bytes]]", deadline: Deadline, emit: ResponseCallback
    ) -> None:
        self._name = name
        self._start = start
        self._deadline = deadline
        self._emit = emit
        self._has_begun = False
        self.ended: Future[None] = Future()

    def send(self, request: bytes) -> bool:
        """Send the request; a second one fails the call."""
        if self._has_begun:
            self._deadline.cancel()
            fail(self._name, self.ended, MalformedRequestError(f"{self._name} takes one request; send only one"))
        else:
            self._has_begun = True
            follow(self._name, self._start(request), self.ended, self._finish)
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

    def _finish(self, message: bytes) -> None:
        self._emit(message)
        settle(self.ended, None)


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
