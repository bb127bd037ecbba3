"""ModelStreamInfer: many requests on one call, answered in order, each with its id."""

from collections import deque
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Final, final

from predictor.calls.flow_control import StreamWindow
from predictor.calls.streams import ManyRequestCall, ResponseCallback
from predictor.errors import CallCancelledError, QuantraError
from predictor.instance import Deadline
from predictor.wire.kserve import models

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CALL: Final = "ModelStreamInfer"


@final
class PendingInference:
    """A request whose response was not emitted yet."""

    def __init__(self, request: bytes) -> None:
        self.request_id = models.read_request_id(request)
        self.size = len(request)
        self.answer: Future[bytes] | None = None
        """None while it is being started."""

    @property
    def is_answered(self) -> bool:
        """Whether the result is ready."""
        return self.answer is not None and self.answer.done()

    def cancel(self) -> None:
        """Cancel the request."""
        if self.answer is not None:
            self.answer.cancel()

    def result(self) -> bytes:
        """Return the result, once ready; raises its error."""
        assert self.answer is not None  # noqa: S101 - it is answered
        return self.answer.result()


@final
class InferStream(ManyRequestCall):
    """An open ModelStreamInfer.

    Args:
        infer: Starts one request; its future fails only with a QuantraError.
        deadline, emit, flow, most_bytes: See `ManyRequestCall`.
    """

    def __init__(
        self,
        infer: "Callable[[bytes, Deadline], Future[bytes]]",
        deadline: Deadline,
        emit: ResponseCallback,
        flow: StreamWindow,
        most_bytes: int | None = None,
    ) -> None:
        super().__init__(CALL, deadline, emit, flow, most_bytes)
        self._infer = infer
        self._requests: deque[PendingInference] = deque()
        """Oldest first."""

    def send(self, request: bytes) -> bool:
        """See `OpenCall`. An invalid request gets its error as its response."""
        with self._lock:
            if not self._takes_more:
                return False
            pending = PendingInference(request)
            self._flow.enter(pending.size)
            self._requests.append(pending)
        answer = self._infer(request, self._deadline)  # outside the lock, which completing the request takes
        with self._lock:
            pending.answer = answer
            if self._is_cancelled:
                answer.cancel()
        answer.add_done_callback(lambda _: self._advance())
        return self._may_continue()

    def _cancellations(self) -> "Sequence[Callable[[], object]]":
        return [request.cancel for request in self._requests]

    def _is_busy(self) -> bool:
        return bool(self._requests)

    def _advance(self) -> None:
        """Emit the ready responses, up to the first request that is not ready."""
        with self._lock:
            while self._requests and self._requests[0].is_answered and not self._is_cancelled:
                request = self._requests.popleft()
                message = self._response(request)
                self._flow.answer(request.size, len(message))
                self._emit(message)
        self._finish_if_over()

    def _response(self, request: PendingInference) -> bytes:
        try:
            message = models.encode_response(request.result())
            error = self._find_excess(message, "request fewer rows or outputs")
        except CancelledError:
            error = CallCancelledError("the request was cancelled before its response was ready")
        except QuantraError as failure:
            error = failure
        else:
            if error is None:
                return message
        return models.encode_error(request.request_id, error)
