"""Sequential execution of a session's requests, each of which may wait for a prediction."""

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, final

from predictor.calls.futures import quantra_error
from predictor.calls.sessions import SessionReply, SessionRequest
from predictor.service import LightFuture

if TYPE_CHECKING:
    from concurrent.futures import Future

Work = Callable[[], SessionReply]
"""Handles one request; raises QuantraError."""


@final
class RequestSequencer:
    """Runs the requests of one session in sequence. Thread-safe.

    A request is finished when its work returns. If the work returns a SessionRequest, call `advance` after the
    prediction instead.

    Args:
        call: Name of the call, for the log.
    """

    def __init__(self, call: str) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Work, Future[SessionReply]]] = deque()
        self._is_busy = self._is_advancing = False

    def run(self, work: Work) -> SessionReply:
        """Run the work, or return a future if others are first; raises what the work raises."""
        with self._lock:
            if self._is_busy or self._is_advancing or self._waiting:
                future: Future[SessionReply] = LightFuture()
                self._waiting.append((work, future))
                return future
            self._is_busy = True
        return self._run(work)

    def advance(self) -> None:
        """Finish the current request and run the next until one needs a prediction; a nested call returns."""
        with self._lock:
            self._is_busy = False
            if self._is_advancing:
                return
            self._is_advancing = True
        while (turn := self._next()) is not None:
            self._run_queued(*turn)

    def _run(self, work: Work) -> SessionReply:
        needs_prediction = False
        try:
            reply = work()
            needs_prediction = isinstance(reply, SessionRequest)
            return reply
        finally:
            if not needs_prediction:
                self.advance()

    def _next(self) -> "tuple[Work, Future[SessionReply]] | None":
        with self._lock:
            if self._is_busy or not self._waiting:
                self._is_advancing = False
                return None
            self._is_busy = True
            return self._waiting.popleft()

    def _run_queued(self, work: Work, future: "Future[SessionReply]") -> None:
        if not future.set_running_or_notify_cancel():
            self.advance()
            return
        try:
            reply = self._run(work)
        except Exception as error:  # noqa: BLE001 - a callback's edge: the error is the caller's answer
            future.set_exception(quantra_error(self._call, error))
        else:
            future.set_result(reply)
