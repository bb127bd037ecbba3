"""A future for requests, of which a server makes several thousand per second."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)
PENDING, RUNNING, CANCELLED, FINISHED = range(4)


class LightFuture(Future[ResultT]):
    """A `Future` with a lock instead of a condition: the condition made up a quarter of the function calls per request.

    While the future is pending, `result` and `exception` return only after the callbacks that were added earlier. Do
    not pass it to `concurrent.futures.wait` or `as_completed`.
    """

    def __init__(self) -> None:  # pyright: ignore[reportMissingSuperCall] - it replaces every method
        self._lock = threading.Lock()
        self._phase = PENDING
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[ResultT]], object]] = []

    __repr__ = object.__repr__

    def cancel(self) -> bool:
        """See `Future.cancel`."""
        return self._cancel(even_running=False)

    def cancelled(self) -> bool:
        """See `Future.cancelled`."""
        return self._phase == CANCELLED

    def running(self) -> bool:
        """See `Future.running`."""
        return self._phase == RUNNING

    def done(self) -> bool:
        """See `Future.done`."""
        return self._phase >= CANCELLED

    def add_done_callback(self, fn: Callable[[Future[ResultT]], object]) -> None:
        """See `Future.add_done_callback`."""
        with self._lock:
            if self._phase < CANCELLED:
                self._callbacks.append(fn)
                return
        self._call(fn)

    def result(self, timeout: float | None = None) -> ResultT:
        """See `Future.result`."""
        if self._phase == FINISHED and self._error is None:
            return self._value
        if (error := self.exception(timeout)) is not None:
            try:
                raise error
            finally:
                del self, error  # the error's traceback refers to this frame
        return self._value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See `Future.exception`."""
        if self._phase < CANCELLED:
            event = threading.Event()
            self.add_done_callback(lambda _: event.set())
            if not event.wait(timeout):
                raise TimeoutError
        if self._phase == CANCELLED:
            raise CancelledError
        return self._error

    def set_running_or_notify_cancel(self) -> bool:
        """See `Future.set_running_or_notify_cancel`."""
        with self._lock:
            if self._phase == PENDING:
                self._phase = RUNNING
                return True
        if self._phase == CANCELLED:
            return False
        raise InvalidStateError("the future is already running")

    def set_result(self, result: ResultT) -> None:
        """See `Future.set_result`."""
        self._finish(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        """See `Future.set_exception`."""
        self._finish(None, exception)

    def _cancel(self, *, even_running: bool) -> bool:
        with self._lock:
            if self._phase >= (CANCELLED if even_running else RUNNING):
                return self._phase == CANCELLED
            self._phase = CANCELLED
        self._call_back()
        return True

    def _finish(self, value: object, error: BaseException | None) -> None:
        with self._lock:
            if self._phase >= CANCELLED:
                raise InvalidStateError("the future is already done")
            self._value, self._error = value, error
            self._phase = FINISHED
        self._call_back()

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks, []  # they often refer to what holds this future
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[Future[ResultT]], object]) -> None:
        try:
            callback(self)
        except Exception:  # noqa: BLE001 - as `concurrent.futures`
            _log.exception("a callback of %r failed", self)
