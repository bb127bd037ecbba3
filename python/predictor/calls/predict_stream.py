"""PredictStream: many requests on one call, each answered by its id as soon as its answer is there."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Final, Protocol, TypeVar, final

from predictor._pb import prediction_pb2 as pb
from predictor.calls.flow_control import StreamWindow
from predictor.calls.futures import fail, quantra_error, settle
from predictor.calls.request_counter import AT_ONCE, RequestCounter, UncountedRequest
from predictor.calls.requests import EncodedInstances, ParsedInstances, checked_reference, parsed
from predictor.calls.sessions import Said, SessionRequest, Sessions, SessionStep
from predictor.calls.streams import Emit
from predictor.errors import (
    CallCancelledError,
    DuplicateIdError,
    MalformedRequestError,
    QuantraError,
    RequestTooLargeError,
)
from predictor.forecast import Forecast, Outcome
from predictor.instance import Deadline
from predictor.service import PredictionRequest
from predictor.wire import errors, forecasts
from predictor.wire.limits import MAX_TEXT, check_text
from predictor.wire.request_counts import (
    RequestCounts,
    StreamRequest,
    TooManyPartsError,
    count_parts,
    instance_of,
    no_message,
    read_request,
)

CALL: Final = "PredictStream"

SMALL: Final = 64 * 1024
"""Bytes of a session's request that is read on the caller's own thread."""

DoneT = TypeVar("DoneT")


class PredictService(Protocol):
    """What forecasts; see predictor.service.PredictionService."""

    def predict(self, reference: str, asked: PredictionRequest, deadline: Deadline) -> "Future[tuple[Outcome, ...]]":
        """Each instance's forecast or error, in order; raises at once if the model is unknown or the queue is full."""
        ...


@final
class PendingRequest:
    """A request that has no answer yet."""

    def __init__(self, request_id: str, size: int, deadline: Deadline) -> None:
        self.request_id = request_id
        self.session_id = ""
        self.size = size
        self.deadline = deadline
        self.work: Future[Any] | None = None
        """What its answer waits for now."""
        self.is_answered = False

    def cancel(self) -> None:
        """Nobody waits for it."""
        self.deadline.cancelled.set()
        if self.work is not None:
            self.work.cancel()


@final
class PredictStream:
    """A PredictStream under way; see `OpenCall`. Requests are handed over one after the other, on any thread.

    Args:
        service: forecasts.
        sessions: those of this stream alone.
        counting: of large requests.
        deadline: of the call.
        emit: takes each response.
        flow: what the stream may hold; its own.
        most_bytes: of one response; None = any.
    """

    def __init__(
        self,
        service: PredictService,
        sessions: Sessions,
        counting: RequestCounter,
        deadline: Deadline,
        emit: Emit,
        flow: StreamWindow,
        most_bytes: int | None = None,
    ) -> None:
        self._service, self._sessions, self._counting = service, sessions, counting
        self._deadline = deadline
        self._emit = emit
        self._flow = flow
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._requests: dict[str, PendingRequest] = {}
        self._under_way = 0
        """Requests whose responses were not emitted yet, those included that are refused just now."""
        self._steps = 0
        """Requests to sessions that wait or are being taken."""
        self._takes_more = True
        self._error: QuantraError | None = None
        """What the call ends with."""
        self._is_cancelled = self._has_ended = False
        self.ended: Future[None] = Future()

    # --- what the door calls

    def send(self, request: bytes) -> bool:
        """As `OpenCall`; bytes that are no request end the stream, and so does the call's deadline."""
        try:
            self._deadline.check()
            read = read_request(request)
        except QuantraError as error:
            self.stop(error)
            return False
        asked = PendingRequest(read.request_id[:MAX_TEXT], len(request), self._deadline_of(read))
        try:
            if self._enter(asked, read):
                self._begin(asked, read, request)
        except Exception as error:  # noqa: BLE001 - the layer's edge
            self._answer(asked, quantra_error(CALL, error))
        with self._lock:
            return self._takes_more and self._flow.has_room

    def taken(self, size: int) -> bool:
        """As `OpenCall`."""
        with self._lock:
            self._flow.leave(size)
            return self._takes_more and self._flow.has_room

    def end(self) -> None:
        """As `OpenCall`."""
        self._take_no_more(None)

    def stop(self, error: QuantraError) -> None:
        """As `OpenCall`."""
        self._take_no_more(error)

    def cancel(self) -> None:
        """As `OpenCall`."""
        self._deadline.cancelled.set()
        with self._lock:
            self._takes_more, self._is_cancelled = False, True
            requests = [*self._requests.values()]
        self.ended.cancel()
        for request in requests:
            request.cancel()
        self._end_sessions()

    # --- requests

    def _deadline_of(self, read: StreamRequest) -> Deadline:
        ends_s = time.monotonic() + read.timeout_s if read.timeout_s > 0 else math.inf
        whole_s = self._deadline.expires_at_s
        ends_s = ends_s if whole_s is None else min(ends_s, whole_s)
        return Deadline(None if math.isinf(ends_s) else ends_s, observer=self._deadline.observer)

    def _enter(self, request: PendingRequest, read: StreamRequest) -> bool:
        """Count a request; False where the stream takes no more. Raises what is wrong with it."""
        with self._lock:
            if not self._takes_more:
                return False
            self._flow.enter(request.size)
            self._under_way += 1
            _check(read)
            if read.request_id in self._requests:
                raise DuplicateIdError(
                    f"request {read.request_id!r} is under way already; wait for its answer, or take another id",
                    metadata={"request_id": read.request_id},
                )
            self._requests[read.request_id] = request
        return True

    def _begin(self, request: PendingRequest, read: StreamRequest, body: bytes) -> None:
        if read.plain is not None:
            model = checked_reference(read.plain.model)
            self._ask(request, model, ParsedInstances(body, (read.plain.instance,), instance_of), _itself)
            return
        action, within = read.action()
        match action:
            case "predict":
                self._predict(request, body, within)
            case "cancel":
                self._cancel(request, body, within)
            case _:
                self._step(request, action, body, within)

    def _cancel(self, request: PendingRequest, body: bytes, within: slice) -> None:
        try:
            count_parts(body, pb.CancelRequest, AT_ONCE, within=within)
        except TooManyPartsError:
            raise no_message(pb.CancelRequest, within.stop - within.start) from None
        wanted = parsed(body[within], pb.CancelRequest).request_id
        with self._lock:
            found = [self._requests.get(wanted)] if wanted else [*self._requests.values()]
        for one in found:
            if one is not None and one is not request:
                one.cancel()
        self._answer(request, pb.Ack())

    def _predict(self, request: PendingRequest, body: bytes, within: slice) -> None:
        counted = self._counting.count(CALL, UncountedRequest(body, pb.StreamPredict, within), request.deadline)
        if isinstance(counted, RequestCounts):
            self._predict_counted(request, body, counted)
        else:
            self._when_done(request, counted, partial(self._predict_counted, request, body))

    def _predict_counted(self, request: PendingRequest, body: bytes, counted: RequestCounts) -> None:
        model = checked_reference(parsed(counted.head, pb.StreamPredict).model)
        if len(counted.instances) != 1:
            raise MalformedRequestError(
                f"instance: have {len(counted.instances)}, need 1; send each in a request of its own",
                metadata={"field": "instance", "have": str(len(counted.instances))},
            )
        self._ask(request, model, EncodedInstances(body, counted), _itself)

    def _ask(
        self, request: PendingRequest, model: str, asked: PredictionRequest, told: Callable[[Outcome], Said]
    ) -> None:
        """Let a model answer, and do what whoever asked it says then."""

        def tell(outcome: Outcome) -> None:
            self._said(request, told(outcome))

        try:
            outcomes = self._service.predict(model, asked, request.deadline)
        except QuantraError as error:
            tell(error)
        else:
            self._when_done(request, outcomes, lambda done: tell(done[0]), tell)

    # --- sessions

    def _step(self, request: PendingRequest, action: str, body: bytes, within: slice) -> None:
        """Let the sessions take a request: at once if it is small and none is before it, else in its turn."""
        work = SessionStep(self._sessions, action, body, within, partial(_name, request))
        with self._lock:
            is_next = not self._steps
            self._steps += 1
        taken = _taken_at_once(work) if is_next and len(body) <= SMALL else None
        taken = self._counting.later(CALL, work, request.deadline) if taken is None else taken
        self._when_done(request, taken, partial(self._said, request))
        taken.add_done_callback(lambda _: self._leave_step())  # after the callback above: what follows comes later

    def _said(self, request: PendingRequest, said: Said) -> None:
        """Ask the model that a session wants to ask, wait for what it will say, or answer."""
        if isinstance(said, SessionRequest):
            self._ask(request, said.model, said.asked, said.ended)
        elif isinstance(said, Future):
            self._when_done(request, said, partial(self._said, request))
        else:
            self._answer(request, said)

    def _leave_step(self) -> None:
        with self._lock:
            self._steps -= 1
            is_over = self._is_cancelled or (not self._takes_more and not self._under_way)
        if is_over:
            self._end_sessions()

    def _end_sessions(self) -> None:
        with self._lock:
            if self._steps or self._has_ended:
                return
            self._has_ended = True
        self._sessions.end()

    # --- answers

    def _when_done(
        self,
        request: PendingRequest,
        work: "Future[DoneT]",
        go_on: Callable[[DoneT], None],
        failed: Callable[[QuantraError], None] | None = None,
    ) -> None:
        """Go on with what the work gives, on the thread that has it, or with its error, which else is the answer."""

        def done(work: "Future[DoneT]") -> None:
            try:
                _pass_on(work, go_on, failed or partial(self._answer, request))
            except Exception as error:  # noqa: BLE001 - the layer's edge
                self._answer(request, quantra_error(CALL, error))

        request.work = work
        work.add_done_callback(done)
        if request.deadline.cancelled.is_set():  # just now, when there was other work to cancel
            work.cancel()

    def _answer(self, request: PendingRequest, outcome: Outcome | pb.Ack) -> None:
        message = self._encoded(request, outcome)
        with self._lock:
            if request.is_answered:
                return
            request.is_answered = True
            if self._requests.get(request.request_id) is request:
                del self._requests[request.request_id]
            self._flow.answer(request.size, len(message))
            is_wanted = not self._is_cancelled
        try:
            if is_wanted:
                self._emit(message)
        finally:
            with self._lock:
                self._under_way -= 1
            self._finish_if_over()

    def _encoded(self, request: PendingRequest, outcome: Outcome | pb.Ack) -> bytes:
        message = encode_response(request.request_id, request.session_id, outcome)
        if self._most_bytes is None or len(message) <= self._most_bytes:
            return message
        error = RequestTooLargeError(
            f"the answer has {len(message)} bytes, at most {self._most_bytes}; ask for fewer symbols",
            metadata={"have": str(len(message)), "most": str(self._most_bytes)},
        )
        return encode_response(request.request_id, request.session_id, error)

    def _take_no_more(self, error: QuantraError | None) -> None:
        with self._lock:
            if self._takes_more:
                self._takes_more, self._error = False, error
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        with self._lock:
            if self._takes_more or self._under_way or self._is_cancelled:
                return
        self._end_sessions()
        if self._error is None:
            settle(self.ended, None)
        else:
            fail(CALL, self.ended, self._error)


def encode_response(request_id: str, session_id: str, outcome: Outcome | pb.Ack) -> bytes:
    """The response to one request."""
    if isinstance(outcome, Forecast):
        response = pb.PredictStreamResponse(
            request_id=request_id, session_id=session_id, forecast=forecasts.encode(outcome)
        )
    elif isinstance(outcome, QuantraError):
        response = pb.PredictStreamResponse(request_id=request_id, session_id=session_id, error=errors.encode(outcome))
    else:
        response = pb.PredictStreamResponse(request_id=request_id, session_id=session_id, ack=outcome)
    return response.SerializeToString()


def _check(read: StreamRequest) -> None:
    """Raises what is wrong with a request, its action aside."""
    if not read.request_id:
        raise MalformedRequestError("request_id is empty; name each request", metadata={"field": "request_id"})
    check_text("request_id", read.request_id)
    if not read.timeout_s >= 0:  # NaN is not
        raise MalformedRequestError(
            f"timeout_s is {read.timeout_s:g} seconds, but must be 0 or more", metadata={"field": "timeout_s"}
        )


def _pass_on(work: "Future[DoneT]", go_on: Callable[[DoneT], None], failed: Callable[[QuantraError], None]) -> None:
    try:
        result = work.result()
    except CancelledError:
        failed(CallCancelledError("the request was cancelled before its answer was there"))
    except Exception as error:  # noqa: BLE001 - the layer's edge
        failed(quantra_error(CALL, error))
    else:
        go_on(result)


def _taken_at_once(work: SessionStep) -> "Future[Said] | None":
    """What the sessions say to a request; None if it is too large for the caller's own thread."""
    taken: Future[Said] = Future()
    try:
        taken.set_result(work.take(AT_ONCE))
    except TooManyPartsError:
        return None
    except Exception as error:  # noqa: BLE001 - the layer's edge
        taken.set_exception(error)
    return taken


def _name(request: PendingRequest, session_id: str) -> None:
    request.session_id = session_id


def _itself(outcome: Outcome) -> Said:
    """The outcome is the answer."""
    return outcome
