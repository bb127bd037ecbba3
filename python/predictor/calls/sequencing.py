"""One request after the other, where each may have to wait for what a model says to the one before."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import final

from predictor.calls.futures import quantra_error
from predictor.calls.sessions import Said, SessionRequest

Work = Callable[[], Said]
"""What is done when a request has its turn; raises QuantraError."""


@final
class RequestSequencer:
    """The turns of one session's requests. Thread-safe.

    A turn ends with the work, unless that asks a model: then whoever asked says `go_on` once it has answered.

    Args:
        call: whose requests they are, for the log.
    """

    def __init__(self, call: str) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Work, Future[Said]]] = deque()
        self._is_busy = self._goes_on = False

    def take(self, work: Work) -> Said:
        """What the work says, or a future of it where others come first; raises what the work raises."""
        with self._lock:
            if self._is_busy or self._goes_on or self._waiting:
                later: Future[Said] = Future()
                self._waiting.append((work, later))
                return later
            self._is_busy = True
        return self._work(work)

    def go_on(self) -> None:
        """A turn has ended: let the next requests have theirs, until a model is asked; never from within itself."""
        with self._lock:
            self._is_busy = False
            if self._goes_on:
                return
            self._goes_on = True
        while (turn := self._next()) is not None:
            self._take_late(*turn)

    def _work(self, work: Work) -> Said:
        is_asked = False
        try:
            said = work()
            is_asked = isinstance(said, SessionRequest)
            return said
        finally:
            if not is_asked:
                self.go_on()

    def _next(self) -> "tuple[Work, Future[Said]] | None":
        with self._lock:
            if self._is_busy or not self._waiting:
                self._goes_on = False
                return None
            self._is_busy = True
            return self._waiting.popleft()

    def _take_late(self, work: Work, later: "Future[Said]") -> None:
        if not later.set_running_or_notify_cancel():
            self.go_on()
            return
        try:
            said = self._work(work)
        except Exception as error:  # noqa: BLE001 - a callback's edge: the error is the caller's answer
            later.set_exception(quantra_error(self._call, error))
        else:
            later.set_result(said)
