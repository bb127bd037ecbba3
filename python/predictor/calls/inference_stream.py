"""ModelStreamInfer: many requests on one call, answered in order, each with its id."""

import threading
from collections import deque
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Final, final

from predictor.calls.flow_control import StreamWindow
from predictor.calls.futures import fail, settle
from predictor.calls.streams import ResponseCallback
from predictor.errors import CallCancelledError, QuantraError, RequestTooLargeError
from predictor.instance import Deadline
from predictor.wire.kserve import models

if TYPE_CHECKING:
    from collections.abc import Callable

CALL: Final = "ModelStreamInfer"


@final
class PendingInference:
    """A request whose response was not emitted yet."""

    def __init__(self, request: bytes) -> None:
        self.request_id = models.request_id_of(request)
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
class InferStream:
    """An open ModelStreamInfer; see `OpenCall`. Send requests one at a time, on any thread.

    Args:
        infer: Starts one request; its future fails only with a QuantraError.
        deadline: Deadline of the call.
        emit: Receives each response.
        flow: Flow control of this stream only.
        most_bytes: Largest response; None: any.
    """

    def __init__(
        self,
        infer: "Callable[[bytes, Deadline], Future[bytes]]",
        deadline: Deadline,
        emit: ResponseCallback,
        flow: StreamWindow,
        most_bytes: int | None = None,
    ) -> None:
        self._infer = infer
        self._deadline = deadline
        self._emit = emit
        self._flow = flow
        self._most_bytes = most_bytes
        self._lock = threading.RLock()  # `emit` may call `taken`
        self._requests: deque[PendingInference] = deque()
        """Oldest first."""
        self._takes_more = True
        self._is_cancelled = False
        self._error: QuantraError | None = None
        """The error that the call ends with."""
        self.ended: Future[None] = Future()

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
        with self._lock:
            return self._takes_more and self._flow.has_room

    def taken(self, size: int) -> bool:
        """See `OpenCall`."""
        with self._lock:
            self._flow.leave(size)
            return self._takes_more and self._flow.has_room

    def end(self) -> None:
        """See `OpenCall`."""
        self._take_no_more(None)

    def stop(self, error: QuantraError) -> None:
        """See `OpenCall`."""
        self._take_no_more(error)

    def cancel(self) -> None:
        """See `OpenCall`."""
        self._deadline.cancel()
        with self._lock:
            self._takes_more, self._is_cancelled = False, True
            requests = [*self._requests]
        self.ended.cancel()
        for request in requests:
            request.cancel()

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
        except CancelledError:
            return models.encode_error(
                request.request_id, CallCancelledError("the request was cancelled before its response was ready")
            )
        except QuantraError as error:
            return models.encode_error(request.request_id, error)
        if self._most_bytes is None or len(message) <= self._most_bytes:
            return message
        return models.encode_error(
            request.request_id,
            RequestTooLargeError(
                f"the response has {len(message)} bytes, at most {self._most_bytes}; request fewer rows or outputs",
                metadata={"have": str(len(message)), "most": str(self._most_bytes)},
            ),
        )

    def _take_no_more(self, error: QuantraError | None) -> None:
        with self._lock:
            if self._takes_more:
                self._takes_more, self._error = False, error
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        with self._lock:
            if self._takes_more or self._requests or self._is_cancelled:
                return
        if self._error is None:
            settle(self.ended, None)
        else:
            fail(CALL, self.ended, self._error)
