"""PredictStream: many requests on one call, each answered by id as soon as its result is ready."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeVar, final

from predictor._pb import prediction_pb2 as pb
from predictor.call_context import CallContext
from predictor.calls.futures import MAX_INLINE_PARTS, JobThread, make_quantra_error
from predictor.calls.live_sessions import LiveSessions, SessionRequest, SessionStepResult
from predictor.calls.streams import FlowControl, ManyRequestCall, ResponseCallback
from predictor.errors import (
    CallCancelledError,
    DuplicateIdError,
    MalformedRequestError,
    QuantraError,
)
from predictor.forecast import Forecast, Outcome
from predictor.service import LazyRequest, LightFuture, PredictionRequest, PredictionService, create_request
from predictor.wire import errors, forecasts
from predictor.wire.instances import InstanceDecoder, decode_or_error
from predictor.wire.limits import MAX_PARTS, MAX_TEXT, check_reference, check_text
from predictor.wire.request_counts import (
    RequestCounts,
    StreamRequest,
    TooManyPartsError,
    count_parts,
    encode_field,
    make_malformed_message_error,
    parse,
    read_request,
)

PREDICT_STREAM: Final = "PredictStream"
MAX_INLINE_BYTES: Final = 64 * 1024
"""Largest session request, in bytes, that is decoded on the calling thread."""

ResultT = TypeVar("ResultT")
SessionT = TypeVar("SessionT", pb.OpenSession, pb.PushBars, pb.CloseSession)


@final
class PendingRequest:
    """A request without a response yet."""

    def __init__(self, request_id: str, size: int, context: CallContext) -> None:
        self.request_id = request_id
        self.session_id = ""
        self.size = size
        self.context = context
        self.work: Future[Any] | None = None
        """The job that the response currently waits for."""
        self.is_answered = False

    def cancel(self) -> None:
        """Cancel the request and its job."""
        self.context.cancel()
        if self.work is not None:
            self.work.cancel()


@final
class PredictStream(ManyRequestCall):
    """An open PredictStream.

    Args:
        service: Forecasts.
        sessions: Sessions of this stream only.
        jobs: Works on large requests.
        context, emit, flow_control, max_bytes: See `ManyRequestCall`.
    """

    def __init__(
        self,
        service: PredictionService,
        sessions: LiveSessions,
        jobs: JobThread,
        context: CallContext,
        emit: ResponseCallback,
        flow_control: FlowControl,
        max_bytes: int | None = None,
    ) -> None:
        super().__init__(PREDICT_STREAM, context, emit, flow_control, max_bytes)
        self._service, self._sessions, self._jobs = service, sessions, jobs
        self._requests: dict[str, PendingRequest] = {}
        self._unanswered_count = 0
        """Requests whose responses were not emitted yet, including those being rejected."""
        self._session_requests = 0
        """Session requests that are queued or running."""
        self._has_ended_sessions = False

    def send(self, body: bytes) -> bool:
        """See `OpenCall`. A malformed request or the call's deadline ends the stream."""
        try:
            self._context.check()
            parsed = read_request(body)
        except QuantraError as error:
            self.drain(error)
            return False
        expires_at_s = self._context.expires_at_s
        if parsed.timeout_s > 0:  # no later than the stream
            expires_at_s = min(time.monotonic() + parsed.timeout_s, math.inf if expires_at_s is None else expires_at_s)
        context = CallContext(expires_at_s, self._context.observer, self._context.caller)
        pending = PendingRequest(parsed.request_id[:MAX_TEXT], len(body), context)
        try:
            if self._register(pending, parsed):
                self._start(pending, parsed, body)
        except Exception as error:  # noqa: BLE001 - layer boundary
            self._respond(pending, make_quantra_error(PREDICT_STREAM, error))
        return self._can_continue()

    def _list_cancellations(self) -> "Sequence[Callable[[], object]]":
        return [request.cancel for request in self._requests.values()]

    def _is_busy(self) -> bool:
        return bool(self._unanswered_count or self._session_requests)

    # --- requests

    def _register(self, pending: PendingRequest, parsed: StreamRequest) -> bool:
        """Register a request; False if the stream is ending. Raises if the request is invalid."""
        with self._lock:
            if not self._is_accepting:
                return False
            self._flow_control.add_request(pending.size)
            self._unanswered_count += 1
            if not parsed.request_id:
                raise MalformedRequestError("request_id is empty; set a unique id", metadata={"field": "request_id"})
            check_text("request_id", parsed.request_id)
            if not parsed.timeout_s >= 0:  # also rejects NaN
                raise MalformedRequestError(
                    f"timeout_s is {parsed.timeout_s:g} seconds, but must be 0 or more", metadata={"field": "timeout_s"}
                )
            if parsed.request_id in self._requests:
                raise DuplicateIdError(
                    f"request id {parsed.request_id!r} is in use; wait for its response, or choose another id",
                    metadata={"request_id": parsed.request_id},
                )
            self._requests[parsed.request_id] = pending
        return True

    def _start(self, pending: PendingRequest, parsed: StreamRequest, body: bytes) -> None:
        if parsed.prediction is not None:
            model = check_reference(parsed.prediction.model)
            request = create_request((decode_or_error(parsed.prediction.instance),), len(body))
            self._run_prediction(pending, model, request)
            return
        action, position = parsed.action()
        match action:
            case "predict":
                self._predict(pending, body, position)
            case "cancel":
                self._cancel(pending, body, position)
            case _:
                self._start_session_request(pending, action, body, position)

    def _cancel(self, pending: PendingRequest, body: bytes, position: slice) -> None:
        try:
            count_parts(body, pb.CancelRequest, MAX_INLINE_PARTS, position=position)
        except TooManyPartsError:
            raise make_malformed_message_error(pb.CancelRequest, position.stop - position.start) from None
        cancelled_id = parse(body[position], pb.CancelRequest).request_id
        with self._lock:
            requests = [self._requests.get(cancelled_id)] if cancelled_id else [*self._requests.values()]
        for other in requests:
            if other is not None and other is not pending:
                other.cancel()
        self._respond(pending, pb.Ack())

    def _predict(self, pending: PendingRequest, body: bytes, position: slice) -> None:
        counts = self._jobs.count(PREDICT_STREAM, body, pb.StreamPredict, pending.context, position)
        if isinstance(counts, RequestCounts):
            self._predict_counted(pending, body, counts)
        else:
            self._follow(pending, counts, partial(self._predict_counted, pending, body))

    def _predict_counted(self, pending: PendingRequest, body: bytes, counts: RequestCounts | QuantraError) -> None:
        if isinstance(counts, QuantraError):
            self._respond(pending, counts)
            return
        model = check_reference(parse(counts.head, pb.StreamPredict).model)
        if len(counts.instances) != 1:
            raise MalformedRequestError(
                f"instance: have {len(counts.instances)}, need 1; send one request per instance",
                metadata={"field": "instance", "have": str(len(counts.instances))},
            )
        decoder = InstanceDecoder(body, counts)
        self._run_prediction(pending, model, LazyRequest(decoder.decode, counts.rows, len(body)))

    def _run_prediction(
        self,
        pending: PendingRequest,
        model: str,
        request: PredictionRequest,
        respond: Callable[[Outcome], SessionStepResult] | None = None,
    ) -> None:
        """Run a prediction. Its outcome is the response, or `respond` makes the next result of it."""

        def finish(outcome: Outcome) -> None:
            self._handle(pending, respond(outcome) if respond else outcome)

        try:
            outcome = self._service.predict(model, request, pending.context, itemgetter(0))
        except QuantraError as error:
            finish(error)
        else:
            self._follow(pending, outcome, finish)

    # --- sessions

    def _start_session_request(self, pending: PendingRequest, action: str, body: bytes, position: slice) -> None:
        """Run a request of a session: at once if it is small and the first, else on the job thread."""
        work = partial(self._run_session_request, pending, action, body, position)
        with self._lock:
            is_next = not self._session_requests
            self._session_requests += 1
        result = _run_inline(work) if is_next and len(body) <= MAX_INLINE_BYTES else None
        result = self._jobs.run(PREDICT_STREAM, work, pending.context, size=len(body)) if result is None else result
        self._follow(pending, result, partial(self._handle, pending))
        result.add_done_callback(lambda _: self._finish_session_request())  # must come after the callback above

    def _run_session_request(
        self, pending: PendingRequest, action: str, body: bytes, position: slice, max_parts: int = MAX_PARTS
    ) -> SessionStepResult:
        """Run a request of a session.

        Raises:
            QuantraError: The response is this error.
            TooManyPartsError: The request has more than `max_parts`, if that is less than the protocol allows.
        """

        def decode(kind: type[SessionT]) -> SessionT:
            count_parts(body, kind, max_parts, position=position)
            message = parse(body[position], kind)
            check_text("session_id", message.session_id)
            pending.session_id = message.session_id
            return message

        match action:
            case "open":
                return self._sessions.open(decode(pb.OpenSession))
            case "push":
                return self._sessions.push(decode(pb.PushBars))
            case _:
                return self._sessions.close(decode(pb.CloseSession))

    def _handle(self, pending: PendingRequest, result: SessionStepResult) -> None:
        """Handle the result of a session's step: run its prediction, wait for the result, or respond."""
        if isinstance(result, SessionRequest):
            self._run_prediction(pending, result.model, result.request, result.respond)
        elif isinstance(result, Future):
            self._follow(pending, result, partial(self._handle, pending))
        else:
            self._respond(pending, result)

    def _finish_session_request(self) -> None:
        with self._lock:
            self._session_requests -= 1
        if self._is_cancelled:
            self._release()
        else:
            self._finish_if_over()

    def _release(self) -> None:
        """End the sessions, unless they are in use."""
        with self._lock:
            if self._session_requests or self._has_ended_sessions:
                return
            self._has_ended_sessions = True
        self._sessions.end()

    # --- responses

    def _follow(
        self,
        pending: PendingRequest,
        work: "Future[ResultT]",
        on_done: Callable[[ResultT | QuantraError], None],
    ) -> None:
        """Call `on_done` with the result or the error of the work, on the thread that completes it."""

        def finish(future: "Future[ResultT]") -> None:
            try:
                on_done(_take_result(future))
            except Exception as error:  # noqa: BLE001 - layer boundary
                self._respond(pending, make_quantra_error(PREDICT_STREAM, error))

        pending.work = work
        work.add_done_callback(finish)
        if pending.context.is_cancelled:  # cancelled before `work` was set
            work.cancel()

    def _respond(self, pending: PendingRequest, outcome: Outcome | pb.Ack) -> None:
        message = self._encode(pending, outcome)
        with self._lock:
            if pending.is_answered:
                return
            pending.is_answered = True
            if self._requests.get(pending.request_id) is pending:
                del self._requests[pending.request_id]
            self._flow_control.replace_with_response(pending.size, len(message))
            is_wanted = not self._is_cancelled
        try:
            if is_wanted:
                self._emit(message)
        finally:
            with self._lock:
                self._unanswered_count -= 1
            self._finish_if_over()

    def _encode(self, pending: PendingRequest, outcome: Outcome | pb.Ack) -> bytes:
        message = encode_response(pending.request_id, pending.session_id, outcome)
        error = self._make_excess_error(message, "request fewer symbols")
        return message if error is None else encode_response(pending.request_id, pending.session_id, error)


def encode_response(request_id: str, session_id: str, outcome: Outcome | pb.Ack) -> bytes:
    """Encode the response to one request."""
    response = pb.PredictStreamResponse(request_id=request_id, session_id=session_id)
    if isinstance(outcome, Forecast):
        forecast = encode_field(pb.PredictStreamResponse.FORECAST_FIELD_NUMBER, forecasts.encode(outcome))
        return response.SerializeToString() + forecast
    if isinstance(outcome, QuantraError):
        response.error.CopyFrom(errors.encode(outcome))
    else:
        response.ack.CopyFrom(outcome)
    return response.SerializeToString()


def _take_result(future: "Future[ResultT]") -> ResultT | QuantraError:
    try:
        return future.result()
    except CancelledError:
        return CallCancelledError("the request was cancelled before its response was ready")
    except Exception as error:  # noqa: BLE001 - layer boundary
        return make_quantra_error(PREDICT_STREAM, error)


def _run_inline(work: Callable[..., SessionStepResult]) -> "Future[SessionStepResult] | None":
    """Run a session request; None if it has too many parts for the calling thread."""
    result: Future[SessionStepResult] = LightFuture()
    try:
        result.set_result(work(max_parts=MAX_INLINE_PARTS))
    except TooManyPartsError:
        return None
    except Exception as error:  # noqa: BLE001 - layer boundary
        result.set_exception(error)
    return result
