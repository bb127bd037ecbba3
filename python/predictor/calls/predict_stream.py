"""PredictStream: many requests on one call, each answered by id as soon as its result is ready."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeVar, final

from predictor._pb import prediction_pb2 as pb
from predictor.calls.futures import AT_ONCE, JobThread, to_quantra_error
from predictor.calls.live_sessions import LiveSessions, SessionReply, SessionRequest
from predictor.calls.requests import EncodedInstances, check_reference
from predictor.calls.streams import ManyRequestCall, ResponseCallback, StreamWindow
from predictor.errors import (
    CallCancelledError,
    DuplicateIdError,
    MalformedRequestError,
    QuantraError,
)
from predictor.forecast import Forecast, Outcome
from predictor.instance import Deadline
from predictor.service import DecodedInstances, LightFuture, PredictionRequest, PredictionService
from predictor.wire import errors, forecasts
from predictor.wire.fields import encode_field
from predictor.wire.instances import decode_or_error
from predictor.wire.limits import MAX_PARTS, MAX_TEXT, check_text
from predictor.wire.request_counts import (
    RequestCounts,
    StreamRequest,
    TooManyPartsError,
    count_parts,
    malformed_message_error,
    parse,
    read_request,
)

PREDICT_STREAM: Final = "PredictStream"

SMALL: Final = 64 * 1024
"""Largest session request, in bytes, that is decoded on the calling thread."""

DoneT = TypeVar("DoneT")
SessionT = TypeVar("SessionT", pb.OpenSession, pb.PushBars, pb.CloseSession)


@final
class PendingRequest:
    """A request without a response yet."""

    def __init__(self, request_id: str, size: int, deadline: Deadline) -> None:
        self.request_id = request_id
        self.session_id = ""
        self.size = size
        self.deadline = deadline
        self.work: Future[Any] | None = None
        """The job that the response currently waits for."""
        self.is_answered = False

    def cancel(self) -> None:
        """Cancel the request and its job."""
        self.deadline.cancel()
        if self.work is not None:
            self.work.cancel()


@final
class PredictStream(ManyRequestCall):
    """An open PredictStream.

    Args:
        service: Forecasts.
        sessions: Sessions of this stream only.
        jobs: Works on large requests.
        deadline, emit, flow, most_bytes: See `ManyRequestCall`.
    """

    def __init__(
        self,
        service: PredictionService,
        sessions: LiveSessions,
        jobs: JobThread,
        deadline: Deadline,
        emit: ResponseCallback,
        flow: StreamWindow,
        most_bytes: int | None = None,
    ) -> None:
        super().__init__(PREDICT_STREAM, deadline, emit, flow, most_bytes)
        self._service, self._sessions, self._jobs = service, sessions, jobs
        self._requests: dict[str, PendingRequest] = {}
        self._under_way = 0
        """Requests whose responses were not emitted yet, including those being rejected."""
        self._steps = 0
        """Session requests that are queued or running."""
        self._has_ended = False

    def send(self, request: bytes) -> bool:
        """See `OpenCall`. A malformed request or the call's deadline ends the stream."""
        try:
            self._deadline.check()
            read = read_request(request)
        except QuantraError as error:
            self.stop(error)
            return False
        pending = PendingRequest(read.request_id[:MAX_TEXT], len(request), self._limit_deadline(read))
        try:
            if self._enter(pending, read):
                self._begin(pending, read, request)
        except Exception as error:  # noqa: BLE001 - layer boundary
            self._answer(pending, to_quantra_error(PREDICT_STREAM, error))
        return self._can_continue()

    def _list_cancellations(self) -> "Sequence[Callable[[], object]]":
        return [request.cancel for request in self._requests.values()]

    def _is_busy(self) -> bool:
        return bool(self._under_way or self._steps)

    # --- requests

    def _limit_deadline(self, read: StreamRequest) -> Deadline:
        ends_s = time.monotonic() + read.timeout_s if read.timeout_s > 0 else math.inf
        whole_s = self._deadline.expires_at_s
        ends_s = ends_s if whole_s is None else min(ends_s, whole_s)
        expires_at_s = None if math.isinf(ends_s) else ends_s
        return Deadline(expires_at_s, observer=self._deadline.observer, caller=self._deadline.caller)

    def _enter(self, request: PendingRequest, read: StreamRequest) -> bool:
        """Register a request; False if the stream is ending. Raises if the request is invalid."""
        with self._lock:
            if not self._takes_more:
                return False
            self._flow.enter(request.size)
            self._under_way += 1
            _check(read)
            if read.request_id in self._requests:
                raise DuplicateIdError(
                    f"request id {read.request_id!r} is in use; wait for its response, or choose another id",
                    metadata={"request_id": read.request_id},
                )
            self._requests[read.request_id] = request
        return True

    def _begin(self, request: PendingRequest, read: StreamRequest, body: bytes) -> None:
        if read.prediction is not None:
            model = check_reference(read.prediction.model)
            instances = DecodedInstances((decode_or_error(read.prediction.instance),), len(body))
            self._run_prediction(request, model, instances, _return_outcome)
            return
        action, within = read.action()
        match action:
            case "predict":
                self._predict(request, body, within)
            case "cancel":
                self._cancel(request, body, within)
            case _:
                self._begin_session_request(request, action, body, within)

    def _cancel(self, request: PendingRequest, body: bytes, within: slice) -> None:
        try:
            count_parts(body, pb.CancelRequest, AT_ONCE, within=within)
        except TooManyPartsError:
            raise malformed_message_error(pb.CancelRequest, within.stop - within.start) from None
        wanted = parse(body[within], pb.CancelRequest).request_id
        with self._lock:
            requests = [self._requests.get(wanted)] if wanted else [*self._requests.values()]
        for other in requests:
            if other is not None and other is not request:
                other.cancel()
        self._answer(request, pb.Ack())

    def _predict(self, request: PendingRequest, body: bytes, within: slice) -> None:
        counted = self._jobs.count(PREDICT_STREAM, body, pb.StreamPredict, request.deadline, within)
        if isinstance(counted, RequestCounts):
            self._predict_counted(request, body, counted)
        else:
            self._follow(request, counted, partial(self._predict_counted, request, body))

    def _predict_counted(self, request: PendingRequest, body: bytes, counted: RequestCounts) -> None:
        model = check_reference(parse(counted.head, pb.StreamPredict).model)
        if len(counted.instances) != 1:
            raise MalformedRequestError(
                f"instance: have {len(counted.instances)}, need 1; send one request per instance",
                metadata={"field": "instance", "have": str(len(counted.instances))},
            )
        self._run_prediction(request, model, EncodedInstances(body, counted), _return_outcome)

    def _run_prediction(
        self,
        request: PendingRequest,
        model: str,
        instances: PredictionRequest,
        respond: Callable[[Outcome], SessionReply],
    ) -> None:
        """Run a prediction and handle the reply that `respond` makes of its outcome."""

        def finish(outcome: Outcome) -> None:
            self._handle(request, respond(outcome))

        try:
            outcome = self._service.predict(model, instances, request.deadline, itemgetter(0))
        except QuantraError as error:
            finish(error)
        else:
            self._follow(request, outcome, finish, finish)

    # --- sessions

    def _begin_session_request(self, request: PendingRequest, action: str, body: bytes, within: slice) -> None:
        """Pass a request to the sessions: at once if it is small and the first, else queued."""
        work = partial(self._pass_to_sessions, request, action, body, within)
        with self._lock:
            is_next = not self._steps
            self._steps += 1
        reply = _reply_at_once(work) if is_next and len(body) <= SMALL else None
        reply = self._jobs.run(PREDICT_STREAM, work, request.deadline, size=len(body)) if reply is None else reply
        self._follow(request, reply, partial(self._handle, request))
        reply.add_done_callback(lambda _: self._finish_session_request())  # must come after the callback above

    def _pass_to_sessions(
        self, request: PendingRequest, action: str, body: bytes, within: slice, most_parts: int = MAX_PARTS
    ) -> SessionReply:
        """Pass a request to the sessions.

        Raises:
            QuantraError: The response is this error.
            TooManyPartsError: The request has more than `most_parts`, if that is less than the protocol allows.
        """

        def decode(kind: type[SessionT]) -> SessionT:
            count_parts(body, kind, most_parts, within=within)
            message = parse(body[within], kind)
            check_text("session_id", message.session_id)
            request.session_id = message.session_id
            return message

        match action:
            case "open":
                return self._sessions.open(decode(pb.OpenSession))
            case "push":
                return self._sessions.push(decode(pb.PushBars))
            case _:
                return self._sessions.close(decode(pb.CloseSession))

    def _handle(self, request: PendingRequest, reply: SessionReply) -> None:
        """Handle a session's reply: run its prediction, wait for the reply, or answer."""
        if isinstance(reply, SessionRequest):
            self._run_prediction(request, reply.model, reply.request, reply.respond)
        elif isinstance(reply, Future):
            self._follow(request, reply, partial(self._handle, request))
        else:
            self._answer(request, reply)

    def _finish_session_request(self) -> None:
        with self._lock:
            self._steps -= 1
        if self._is_cancelled:
            self._release()
        else:
            self._finish_if_over()

    def _release(self) -> None:
        """End the sessions, unless they are in use."""
        with self._lock:
            if self._steps or self._has_ended:
                return
            self._has_ended = True
        self._sessions.end()

    # --- answers

    def _follow(
        self,
        request: PendingRequest,
        work: "Future[DoneT]",
        then: Callable[[DoneT], None],
        failed: Callable[[QuantraError], None] | None = None,
    ) -> None:
        """Call `then` with the result of the work, on the thread that completes it, or `failed` with its error.

        By default, the error is the response.
        """

        def done(work: "Future[DoneT]") -> None:
            try:
                _pass_on(work, then, failed or partial(self._answer, request))
            except Exception as error:  # noqa: BLE001 - layer boundary
                self._answer(request, to_quantra_error(PREDICT_STREAM, error))

        request.work = work
        work.add_done_callback(done)
        if request.deadline.is_cancelled:  # cancelled before `work` was set
            work.cancel()

    def _answer(self, request: PendingRequest, outcome: Outcome | pb.Ack) -> None:
        message = self._encode(request, outcome)
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

    def _encode(self, request: PendingRequest, outcome: Outcome | pb.Ack) -> bytes:
        message = encode_response(request.request_id, request.session_id, outcome)
        error = self._find_excess(message, "request fewer symbols")
        return message if error is None else encode_response(request.request_id, request.session_id, error)


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


def _check(read: StreamRequest) -> None:
    """Validate the fields of a request other than its action."""
    if not read.request_id:
        raise MalformedRequestError("request_id is empty; set a unique id", metadata={"field": "request_id"})
    check_text("request_id", read.request_id)
    if not read.timeout_s >= 0:  # also rejects NaN
        raise MalformedRequestError(
            f"timeout_s is {read.timeout_s:g} seconds, but must be 0 or more", metadata={"field": "timeout_s"}
        )


def _pass_on(work: "Future[DoneT]", then: Callable[[DoneT], None], failed: Callable[[QuantraError], None]) -> None:
    try:
        result = work.result()
    except CancelledError:
        failed(CallCancelledError("the request was cancelled before its response was ready"))
    except Exception as error:  # noqa: BLE001 - layer boundary
        failed(to_quantra_error(PREDICT_STREAM, error))
    else:
        then(result)


def _reply_at_once(work: Callable[..., SessionReply]) -> "Future[SessionReply] | None":
    """Return the sessions' reply to a request; None if it has too many parts for the calling thread."""
    reply: Future[SessionReply] = LightFuture()
    try:
        reply.set_result(work(most_parts=AT_ONCE))
    except TooManyPartsError:
        return None
    except Exception as error:  # noqa: BLE001 - layer boundary
        reply.set_exception(error)
    return reply


def _return_outcome(outcome: Outcome) -> SessionReply:
    """Return the outcome as the response."""
    return outcome
