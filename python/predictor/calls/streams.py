"""Calls whose answer is a stream of messages."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, final

from predictor.calls.futures import fail, follow, settle
from predictor.errors import MalformedRequestError, QuantraError
from predictor.instance import Deadline

Emit = Callable[[bytes], object]
"""Takes one message of the answer; called on any thread, perhaps on several at once. It must not wait."""


class OpenCall(Protocol):
    """A call under way: requests go in, one after the other, and messages come out, until `ended` does.

    None of its methods raises or waits.
    """

    @property
    def ended(self) -> "Future[None]":
        """Done when all messages were emitted; fails with a QuantraError and nothing else."""
        ...

    def send(self, request: bytes) -> bool:
        """Hand over a request. Returns whether another may follow now; if not, `taken` will say when."""
        ...

    def taken(self, size: int) -> bool:
        """The caller has a message of so many bytes: it counts no longer. Returns whether a request may follow now."""
        ...

    def end(self) -> None:
        """No request follows."""
        ...

    def stop(self, error: QuantraError) -> None:
        """Take no more requests; answer those under way, and fail with this error then."""
        ...

    def cancel(self) -> None:
        """Nobody waits any more: what waits is dropped at once, what is worked on ends soon."""
        ...


@final
class OneRequestCall:
    """A call of one request.

    Args:
        name: of the call.
        start: begins to answer a request; its future has the answer's last message.
        deadline: of the call.
        emit: takes each message.
    """

    def __init__(self, name: str, start: "Callable[[bytes], Future[bytes]]", deadline: Deadline, emit: Emit) -> None:
        self._name = name
        self._start = start
        self._deadline = deadline
        self._emit = emit
        self._has_begun = False
        self.ended: Future[None] = Future()

    def send(self, request: bytes) -> bool:
        """Hand over the request; another may follow, and ends the call."""
        if self._has_begun:
            self._deadline.cancelled.set()
            fail(self._name, self.ended, MalformedRequestError(f"{self._name} takes one request; send no other"))
        else:
            self._has_begun = True
            follow(self._name, self._start(request), self.ended, self._finish)
        return True

    def taken(self, size: int) -> bool:  # noqa: ARG002 - messages of one request are few
        """As `OpenCall`."""
        return True

    def end(self) -> None:
        """No request follows."""
        if not self._has_begun:
            fail(self._name, self.ended, MalformedRequestError("the call ended without a request; send one message"))

    def stop(self, error: QuantraError) -> None:
        """Fail if there was no request; the answer to one goes on."""
        if not self._has_begun:
            fail(self._name, self.ended, error)

    def cancel(self) -> None:
        """As `OpenCall`."""
        self._deadline.cancelled.set()
        self.ended.cancel()

    def _finish(self, message: bytes) -> None:
        self._emit(message)
        settle(self.ended, None)
