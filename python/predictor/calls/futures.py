"""Futures of calls, and the thread that runs jobs of calls, such as counting the parts of a large request."""

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar, final

from google.protobuf.message import Message

from predictor.errors import QuantraError
from predictor.instance import Deadline
from predictor.limits import QueueLimits
from predictor.memory import error_of
from predictor.service import LightFuture, OneStepJob, QueuedRequest, RequestQueue, StepWorker
from predictor.wire.request_counts import RequestCounts, TooManyPartsError, count_parts

AT_ONCE: Final = 256
"""Largest number of fields counted on the calling thread, which takes 0.1 ms; more would block an event loop."""

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)


def convert(call: str, first: Future[InputT], make: Callable[[InputT], ResultT]) -> Future[ResultT]:
    """Return the future of `make(result)` of `first`, called on the thread that completes `first`, or of its error.

    Cancelling it cancels `first`. Other errors become a QuantraError by `error_of`.
    """
    second: Future[ResultT] = LightFuture()
    follow(call, first, second, lambda result: settle(second, make(result)))
    return second


def start_after(call: str, first: Future[InputT], start: Callable[[InputT], Future[ResultT]]) -> Future[ResultT]:
    """Return the future of work that starts with the result of `first`; cancellation and errors as `convert`."""
    second: Future[ResultT] = LightFuture()
    follow(call, first, second, lambda result: follow(call, start(result), second, partial(settle, second)))
    return second


def follow(call: str, first: Future[InputT], second: Future[Any], then: Callable[[InputT], None]) -> None:
    """Let `then` complete `second` with the result of `first`, whose error or cancellation completes it, too."""
    second.add_done_callback(lambda ended: first.cancel() if ended.cancelled() else None)
    first.add_done_callback(lambda ended: _continue(call, ended, second, then))


def _continue(call: str, first: Future[InputT], second: Future[Any], then: Callable[[InputT], None]) -> None:
    if second.cancelled():
        return
    try:
        then(first.result())
    except CancelledError:
        return
    except Exception as error:  # noqa: BLE001 - layer boundary: every error becomes a QuantraError
        fail(call, second, error)


def resolve(value: ResultT) -> Future[ResultT]:
    """Return a future with its result."""
    future: Future[ResultT] = LightFuture()
    future.set_result(value)
    return future


def reject(call: str, error: Exception) -> Future[Any]:
    """Return a future with its error, which becomes a QuantraError by `error_of`."""
    future: Future[Any] = LightFuture()
    fail(call, future, error)
    return future


def settle(answer: Future[ResultT], value: ResultT) -> None:
    """Set the result of a future that is neither done nor cancelled."""
    with suppress(InvalidStateError):
        answer.set_result(value)


def fail(call: str, answer: Future[ResultT], error: Exception) -> None:
    """Set the error of a future that is neither done nor cancelled."""
    if not answer.done():
        with suppress(InvalidStateError):
            answer.set_exception(to_quantra_error(call, error).without_frames())


def to_quantra_error(call: str, error: Exception) -> QuantraError:
    """Convert an error by `error_of`, with details in the log."""
    return error_of(call, error, _log)


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
        deadline: Deadline,
        *,
        size: int = 0,
        encode: Callable[[Any], ResultT] | None = None,
    ) -> Future[ResultT]:
        """Run a job of this call.

        The future fails if the job does or the queue is full. Cancelling it drops a queued job.

        Args:
            call: Name of the call.
            work: Does the job.
            deadline: Deadline of the call.
            size: Bytes that the job holds.
            encode: As for `QueuedRequest`.
        """
        job = OneStepJob(lambda _now, _deadline: work(), size=size)
        item: QueuedRequest[OneStepJob[ResultT], ResultT] = QueuedRequest(job, deadline, call, encode=encode)
        try:
            self._worker.put(call, item)
        except Exception as error:  # noqa: BLE001 - layer boundary
            fail(call, item, error)
        return item

    def count(
        self, call: str, body: bytes, kind: type[Message], deadline: Deadline, within: slice | None = None
    ) -> RequestCounts | Future[RequestCounts]:
        """Count the parts of a request of this call; a future for a large one.

        Raises:
            QuantraError: As `count_parts`, for a small request.
        """
        try:
            return count_parts(body, kind, AT_ONCE, within=within)
        except TooManyPartsError:
            return self.run(call, lambda: count_parts(body, kind, within=within), deadline, size=len(body))

    def close(self, *, waits: bool = True) -> None:
        """Reject new jobs and finish queued ones; waits for their end by default."""
        self._queue.close()
        if waits:
            self._queue.join()
