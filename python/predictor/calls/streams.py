"""A call whose answer is a stream of messages."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import final

from predictor.calls.chaining import chain, fail
from predictor.errors import MalformedRequestError
from predictor.instance import Deadline

Emit = Callable[[bytes], None]
"""Takes one message of the answer; called on any thread, one at a time."""


@final
class OpenCall:
    """A call under way: one request goes in, messages come out, until `ended` does.

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
        """Done when all messages were emitted; fails with a QuantraError and nothing else."""

    def send(self, request: bytes) -> None:
        """Hand over the request; never raises."""
        if self._has_begun:
            self._deadline.cancelled.set()
            fail(self._name, self.ended, MalformedRequestError(f"{self._name} takes one request; send no other"))
            return
        self._has_begun = True
        chain(self._name, self._start(request), self.ended, self._emit)

    def end(self) -> None:
        """No request follows; never raises."""
        if not self._has_begun:
            fail(self._name, self.ended, MalformedRequestError("the call ended without a request; send one message"))

    def cancel(self) -> None:
        """Nobody waits any more: a call that waits is dropped at once, one that is worked on soon."""
        self._deadline.cancelled.set()
        self.ended.cancel()
