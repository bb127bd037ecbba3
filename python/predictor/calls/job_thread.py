"""Jobs of calls on a separate thread, such as counting the parts of a large request before it is parsed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from google.protobuf.message import Message

from predictor.calls.futures import fail
from predictor.instance import Deadline
from predictor.limits import QueueLimits
from predictor.service import ExplanationWorker, OneStepJob, QueuedRequest, RequestQueue
from predictor.wire.request_counts import RequestCounts, TooManyPartsError, count_parts

if TYPE_CHECKING:
    from concurrent.futures import Future

AT_ONCE: Final = 256
"""Largest number of fields counted on the calling thread, which takes 0.1 ms; more would block an event loop."""

ResultT = TypeVar("ResultT")


@final
class JobThread:
    """Runs jobs one at a time on one thread, in order of arrival within a call. Thread-safe.

    Args:
        name: Name of the thread.
        limits: Limits of queued jobs.
    """

    def __init__(self, name: str, limits: QueueLimits) -> None:
        self._queue = RequestQueue(limits)
        self._worker = ExplanationWorker(name, self._queue)

    def run(
        self,
        call: str,
        work: Callable[[], ResultT],
        deadline: Deadline,
        *,
        size: int = 0,
        encode: Callable[[Any], ResultT] | None = None,
    ) -> "Future[ResultT]":
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
    ) -> "RequestCounts | Future[RequestCounts]":
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
