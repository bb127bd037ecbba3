"""Counting of a request's parts before parsing: small requests at once, large ones on a separate thread."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar, final

from google.protobuf.message import Message

from predictor.calls.futures import fail
from predictor.instance import Cancellation, Deadline
from predictor.limits import QueueLimits
from predictor.service import ExplanationWorker, QueuedRequest, RequestQueue
from predictor.service.workers import SteppedJob
from predictor.wire.request_counts import RequestCounts, TooManyPartsError, count_parts

if TYPE_CHECKING:
    from concurrent.futures import Future

AT_ONCE: Final = 256
"""Largest number of fields counted on the calling thread, which takes 0.1 ms; more would block an event loop."""

ResultT = TypeVar("ResultT")


@final
@dataclass(frozen=True, slots=True)
class UncountedRequest:
    """A request whose parts are not counted yet."""

    body: bytes
    request: type[Message]
    within: slice | None = None
    """Position in the body; None for all of it."""
    rows: int = 0

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body)

    def step(self, now: datetime, deadline: Cancellation) -> RequestCounts:  # noqa: ARG002 - short
        """Count the parts; raises as `count_parts`."""
        return count_parts(self.body, self.request, within=self.within)


@final
class RequestCounter:
    """Counts requests. Thread-safe.

    Args:
        limits: Limits of queued large requests.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._queue = RequestQueue(limits)
        self._worker = ExplanationWorker("count", self._queue)

    def count(
        self, name: str, uncounted: UncountedRequest, deadline: Deadline
    ) -> "RequestCounts | Future[RequestCounts]":
        """Count the parts of a request of this call; a future for a large one.

        Raises:
            QuantraError: As `count_parts`, for a small request.
        """
        try:
            return count_parts(uncounted.body, uncounted.request, AT_ONCE, within=uncounted.within)
        except TooManyPartsError:
            return self.later(name, uncounted, deadline)

    def later(self, name: str, job: SteppedJob[ResultT], deadline: Deadline) -> "Future[ResultT]":
        """Run a job of this call on the thread, in order of arrival.

        The future fails if the job does or the queue is full. Cancelling it drops a queued job.
        """
        item: QueuedRequest[SteppedJob[ResultT], ResultT] = QueuedRequest(job, deadline)
        try:
            self._worker.put(name, item)
        except Exception as error:  # noqa: BLE001 - layer boundary
            fail(name, item, error)
        return item

    def close(self) -> None:
        """Reject new requests and finish queued ones."""
        self._queue.close()
        self._queue.join()
