"""Requests are counted before they are parsed: small ones at once, large ones on a thread for it."""

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
"""Fields of a request that are counted on the caller's own thread, in a tenth of a millisecond; larger requests are
counted on a thread for it, so that no caller, such as an event loop, is held up."""

ResultT = TypeVar("ResultT")


@final
@dataclass(frozen=True, slots=True)
class UncountedRequest:
    """A request that is not counted yet."""

    body: bytes
    request: type[Message]
    within: slice | None = None
    """Where it lies in the bytes; None = it is all of them."""
    rows: int = 0

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return len(self.body)

    def step(self, now: datetime, deadline: Cancellation) -> RequestCounts:  # noqa: ARG002 - it takes a moment only
        """What it holds; raises as `count_parts`."""
        return count_parts(self.body, self.request, within=self.within)


@final
class RequestCounter:
    """Counts requests. Thread-safe.

    Args:
        limits: of large requests that wait.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._queue = RequestQueue(limits)
        self._lane = ExplanationWorker("count", self._queue)

    def count(
        self, name: str, uncounted: UncountedRequest, deadline: Deadline
    ) -> "RequestCounts | Future[RequestCounts]":
        """What a small request of this call holds, or what a large one will turn out to hold.

        Raises:
            QuantraError: as `count_parts`, of a small request.
        """
        try:
            return count_parts(uncounted.body, uncounted.request, AT_ONCE, within=uncounted.within)
        except TooManyPartsError:
            return self.later(name, uncounted, deadline)

    def later(self, name: str, work: SteppedJob[ResultT], deadline: Deadline) -> "Future[ResultT]":
        """What work on a request of this call gives, one after the other in the order in which they came.

        The future fails where the work does, or if there is no room for it; cancelling it drops work that waits.
        """
        item: QueuedRequest[SteppedJob[ResultT], ResultT] = QueuedRequest(work, deadline)
        try:
            self._lane.put(name, item)
        except Exception as error:  # noqa: BLE001 - the layer's edge
            fail(name, item.answer, error)
        return item.answer

    def close(self) -> None:
        """Finish what waits, and take no more."""
        self._queue.close()
        self._queue.join()
