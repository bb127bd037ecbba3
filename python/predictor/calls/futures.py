"""Futures of calls, and the thread that runs jobs of calls, such as counting the parts of a large request."""

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar, final

from google.protobuf.message import Message

from predictor.call_context import CallContext
from predictor.errors import CallCancelledError, QuantraError
from predictor.limits import QueueLimits
from predictor.memory import make_caller_error
from predictor.service import LazyRequest, LightFuture, QueuedRequest, RequestQueue, StepWorker
from predictor.wire.request_counts import RequestCounts, TooManyPartsError, count_parts

MAX_INLINE_PARTS: Final = 256
"""Largest number of fields counted on the calling thread, which takes 0.1 ms; more would block an event loop."""

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)


def map_future(call: str, source: Future[InputT], convert: Callable[[InputT], ResultT]) -> Future[ResultT]:
    """Return the future of `convert(result)` of `source`, called on the thread that completes `source`.

    It fails with the error of either, as a QuantraError. Cancelling it cancels `source`.
    """
    target: Future[ResultT] = LightFuture()
    forward(call, source, target, lambda result: set_result_if_pending(target, convert(result)))
    return target


def chain_futures(call: str, source: Future[InputT], start: Callable[[InputT], Future[ResultT]]) -> Future[ResultT]:
    """Return the future of work that starts with the result of `source`; cancellation and errors as `map_future`."""
    target: Future[ResultT] = LightFuture()
    set_result = partial(set_result_if_pending, target)
    forward(call, source, target, lambda result: forward(call, start(result), target, set_result))
    return target


def forward(call: str, source: Future[InputT], target: Future[Any], on_result: Callable[[InputT], None]) -> None:
    """Call `on_result`, which completes `target`, with the result of `source`, and forward its error to `target`.

    Cancelling `target` cancels `source`.
    """

    def finish(future: Future[InputT]) -> None:
        if target.cancelled():
            return
        try:
            on_result(future.result())
        except CancelledError:
            set_error_if_pending(call, target, CallCancelledError("the call was cancelled"))
        except Exception as error:  # noqa: BLE001 - layer boundary: every error becomes a QuantraError
            set_error_if_pending(call, target, error)

    target.add_done_callback(lambda future: source.cancel() if future.cancelled() else None)
    source.add_done_callback(finish)


def completed_future(value: ResultT) -> Future[ResultT]:
    """Return a future with its result."""
    future: Future[ResultT] = LightFuture()
    future.set_result(value)
    return future


def failed_future(call: str, error: Exception) -> Future[Any]:
    """Return a future with its error, which becomes a QuantraError by `make_caller_error`."""
    future: Future[Any] = LightFuture()
    set_error_if_pending(call, future, error)
    return future


def set_result_if_pending(future: Future[ResultT], value: ResultT) -> None:
    """Set the result of a future that is neither done nor cancelled."""
    with suppress(InvalidStateError):
        future.set_result(value)


def set_error_if_pending(call: str, future: Future[ResultT], error: Exception) -> None:
    """Set the error of a future that is neither done nor cancelled; a QuantraError by `make_caller_error`."""
    if not future.done():
        with suppress(InvalidStateError):
            future.set_exception(make_quantra_error(call, error).without_frames())


def make_quantra_error(call: str, error: Exception) -> QuantraError:
    """Convert an error by `make_caller_error`, with details in the log."""
    return make_caller_error(call, error, _log)


@final
class JobThread:
    """Runs jobs one at a time on one thread, in order of arrival within a call. Thread-safe."""

    def __init__(self, name: str, limits: QueueLimits) -> None:
        self._queue = RequestQueue(limits)
        self._worker = StepWorker(name, self._queue)

    def run(
        self,
        call: str,
        work: Callable[[], ResultT],
        context: CallContext,
        *,
        size: int = 0,
        encode: Callable[[Any], ResultT] | None = None,
    ) -> Future[ResultT]:
        """Run a job of this call.

        The future fails if the job does or the queue is full. Cancelling it drops a queued job.

        Args:
            call: Name of the call.
            work: Does the job.
            context: Context of the call.
            size: Bytes that the job holds.
            encode: As for `QueuedRequest`.
        """
        request = LazyRequest(work, rows=0, size=size)
        queued: QueuedRequest[ResultT] = QueuedRequest(request, context, call, encode=encode)
        try:
            self._worker.put(call, queued, lambda _now, _deadline: request.decode())
        except Exception as error:  # noqa: BLE001 - layer boundary
            set_error_if_pending(call, queued, error)
        return queued

    def count(
        self, call: str, body: bytes, kind: type[Message], context: CallContext, position: slice | None = None
    ) -> RequestCounts | Future[RequestCounts]:
        """Count the parts of a request of this call; a future for a large one.

        Raises:
            QuantraError: As `count_parts`, for a small request.
        """
        try:
            return count_parts(body, kind, MAX_INLINE_PARTS, position=position)
        except TooManyPartsError:
            return self.run(call, lambda: count_parts(body, kind, position=position), context, size=len(body))

    def close(self, *, waits: bool = True) -> None:
        """Reject new jobs and finish queued ones; waits for their end by default."""
        self._queue.close()
        if waits:
            self._queue.join()
