"""Which calls there are, and how each is answered."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar, final

from google.protobuf.message import Message

from predictor._pb import prediction_pb2 as pb
from predictor.calls.flow_control import StreamWindow
from predictor.calls.futures import chain, fail, follow, settle
from predictor.calls.inference import INFER, Begin, InferenceCalls
from predictor.calls.inference_stream import CALL as INFER_STREAM
from predictor.calls.inference_stream import InferStream
from predictor.calls.live_sessions import LiveSessions
from predictor.calls.predict_stream import CALL as PREDICT_STREAM
from predictor.calls.predict_stream import PredictStream
from predictor.calls.request_counter import RequestCounter, UncountedRequest
from predictor.calls.requests import (
    EncodedGlobalQuery,
    EncodedInstances,
    EncodedQuery,
    ParsedInstances,
    checked_reference,
    parsed,
)
from predictor.calls.session_room import SessionRoom
from predictor.calls.sessions import Sessions
from predictor.calls.streams import Emit, OneRequestCall, OpenCall
from predictor.catalog import ModelInfo
from predictor.errors import MalformedRequestError, QuantraError, UnavailableError
from predictor.forecast import Explanation, Forecast, Outcome
from predictor.global_importance import GlobalImportance
from predictor.instance import Deadline
from predictor.limits import ServiceLimits
from predictor.service import ExplanationRequest, GlobalExplanationRequest, PredictionRequest
from predictor.wire import attributions, errors, forecasts, global_importance, models
from predictor.wire.limits import MAX_ROWS, RequestLimits
from predictor.wire.request_counts import RequestCounts, parsed_if_plain

SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["PredictionService"].full_name

MOST_PLAIN: Final = 64
"""Instances of a request that is parsed without being counted."""

ReadT = TypeVar("ReadT")


class CallService(Protocol):
    """What the calls need from predictor.service.PredictionService."""

    def models(self) -> tuple[ModelInfo, ...]:
        """Every version that is served."""
        ...

    def model(self, reference: str) -> ModelInfo:
        """One version; raises ModelNotFoundError or VersionNotFoundError."""
        ...

    def predict(
        self, reference: str, asked: PredictionRequest, deadline: Deadline, *, here: bool = False
    ) -> Future[tuple[Outcome, ...]]:
        """Each instance's forecast or error, in order; raises at once if the model is unknown or the queue is full.

        `here` lets the caller's own thread work where no other call waits.
        """
        ...

    def explain(self, reference: str, asked: ExplanationRequest, deadline: Deadline) -> Future[Explanation]:
        """The reasons behind one forecast; never keeps a prediction waiting."""
        ...

    def explain_global(
        self,
        reference: str,
        asked: GlobalExplanationRequest,
        report: Callable[[GlobalImportance], None],
        deadline: Deadline,
    ) -> Future[GlobalImportance]:
        """What moves the forecasts of many instances; reports on the way, called on a thread of the service."""
        ...


@final
@dataclass(frozen=True, slots=True)
class UnaryMethod:
    """One unary call."""

    request: type[Message]
    begin: Callable[[bytes, RequestCounts, Deadline, "Future[bytes]"], None]
    """Begin to answer counted bytes; raises QuantraError where that cannot be."""


@final
class OpenStreams:
    """The streams that are under way. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: set[OpenCall] = set()
        self._error: QuantraError | None = None

    def add(self, stream: OpenCall) -> None:
        """One more, until it ends."""
        with self._lock:
            self._streams.add(stream)
            error = self._error
        stream.ended.add_done_callback(lambda _: self._leave(stream))
        if error is not None:
            stream.stop(error)

    def stop(self, error: QuantraError) -> None:
        """End all with this error, those that come later too."""
        with self._lock:
            self._error = error
            streams = [*self._streams]
        for stream in streams:
            stream.stop(error)

    def _leave(self, stream: OpenCall) -> None:
        with self._lock:
            self._streams.discard(stream)


@final
class Calls:
    """Answers the calls of PredictionService and of GRPCInferenceService. Thread-safe.

    Args:
        service: computes the answers.
        limits: the service's.
        most_bytes: of one request that the door lets through; None = it does not mind.
        sessions: makes the sessions of one stream; None: those that bars are pushed to.
    """

    def __init__(
        self,
        service: CallService,
        limits: ServiceLimits | None = None,
        sessions: Callable[[], Sessions] | None = None,
        *,
        most_bytes: int | None = None,
    ) -> None:
        self._service = service
        self._sessions = sessions or self._live_sessions
        self._limits = limits or ServiceLimits()
        self._room = SessionRoom.of_process(self._limits)
        self._counting = RequestCounter(self._limits.uncounted)
        self._told_limits = models.encode_limits(_request_limits(self._limits, most_bytes))
        self._open = OpenStreams()
        methods = {
            "ListModels": UnaryMethod(pb.ListModelsRequest, self._list_models),
            "GetModel": UnaryMethod(pb.GetModelRequest, self._get_model),
            "Explain": UnaryMethod(pb.ExplainRequest, self._explain),
        }
        self._inference = InferenceCalls(service, self._counting)
        self._unary: dict[str, Begin] = {
            **{name: partial(self._begin, name, method) for name, method in methods.items()},
            "Predict": partial(self._begin_predict, here=False),
            **self._inference.unary,
        }
        self._unary_here = {**self._unary, "Predict": partial(self._begin_predict, here=True)}

    def call(self, name: str, request: bytes, deadline: Deadline, *, here: bool = False) -> "Future[bytes]":
        """Answer one call. Never raises: the future fails, with a QuantraError and nothing else.

        Cancelling the future drops a call that waits; the deadline's flag ends one that is worked on.

        Args:
            name: of the call.
            request: its bytes.
            deadline: of the call.
            here: let this thread forecast where no other call waits for the model.
        """
        methods = self._unary_here if here else self._unary
        return self._answered(name, methods.get(name), request, deadline)

    def open(self, name: str, deadline: Deadline, emit: Emit, most_bytes: int | None = None) -> OpenCall:
        """Begin a call whose answer is a stream of messages. Never raises, as `call`.

        Args:
            name: of the call.
            deadline: of the whole call.
            emit: takes each message.
            most_bytes: of one message; None = any. A larger answer to one request of several is an error of its own.
        """
        stream = self._opened(name, deadline, emit, most_bytes)
        self._open.add(stream)
        return stream

    def _opened(self, name: str, deadline: Deadline, emit: Emit, most_bytes: int | None) -> OpenCall:
        flow = StreamWindow(self._limits.requests_per_stream, self._limits.bytes_per_stream)
        if name == INFER_STREAM:
            return InferStream(partial(self.call, INFER), deadline, emit, flow, most_bytes)
        if name == PREDICT_STREAM:
            return PredictStream(self._service, self._sessions(), self._counting, deadline, emit, flow, most_bytes)
        explaining = UnaryMethod(pb.ExplainGlobalRequest, partial(self._explain_global, emit))
        streams: dict[str, Begin] = {"ExplainGlobal": partial(self._begin, "ExplainGlobal", explaining)}
        return OneRequestCall(
            name, lambda request: self._answered(name, streams.get(name), request, deadline), deadline, emit
        )

    @property
    def sessions_held(self) -> tuple[int, int]:
        """Sessions that are open on all streams, and the bytes that they hold."""
        return self._room.held

    def drain(self) -> None:
        """End streams, those that come later too, as UNAVAILABLE: what they have asked already is answered first."""
        self._open.stop(UnavailableError("the server is stopping; open the stream again in a moment, or elsewhere"))

    def close(self) -> None:
        """As `drain`; finish counting what waits, and count no more; what was counted is the service's."""
        self.drain()
        self._counting.close()

    def _live_sessions(self) -> LiveSessions:
        """Those of one stream."""
        return LiveSessions(self._service, self._room.of_stream(self._limits))

    def _answered(self, name: str, begin: "Begin | None", request: bytes, deadline: Deadline) -> "Future[bytes]":
        answer: Future[bytes] = Future()
        if begin is None:
            fail(name, answer, MalformedRequestError(f"there is no call {name[:80]!r} of this kind"))
            return answer
        try:
            begin(request, deadline, answer)
        except Exception as error:  # noqa: BLE001 - the layer's edge
            fail(name, answer, error)
        return answer

    def _begin(
        self, name: str, method: UnaryMethod, request: bytes, deadline: Deadline, answer: "Future[bytes]"
    ) -> None:
        counted = self._counting.count(name, UncountedRequest(request, method.request), deadline)
        if isinstance(counted, RequestCounts):
            method.begin(request, counted, deadline, answer)
        else:
            follow(name, counted, answer, lambda counted: method.begin(request, counted, deadline, answer))

    def _begin_predict(self, request: bytes, deadline: Deadline, answer: "Future[bytes]", *, here: bool) -> None:
        plain = parsed_if_plain(request, pb.PredictRequest)
        if plain is not None and 0 < len(plain.instances) <= MOST_PLAIN:
            asked = ParsedInstances(request, plain.instances, _instances_of)
            self._ask(plain.model, asked, deadline, answer, here=here)
        else:
            self._begin("Predict", UnaryMethod(pb.PredictRequest, self._predict), request, deadline, answer)

    def _list_models(self, body: bytes, _counted: RequestCounts, _deadline: Deadline, answer: "Future[bytes]") -> None:
        parsed(body, pb.ListModelsRequest)
        infos = self._service.models()
        settle(answer, pb.ListModelsResponse(models=map(models.encode, infos)).SerializeToString())

    def _get_model(self, body: bytes, _counted: RequestCounts, _deadline: Deadline, answer: "Future[bytes]") -> None:
        request = parsed(body, pb.GetModelRequest)
        info = self._service.model(checked_reference(request.model))
        told = pb.GetModelResponse(model=models.encode(info), limits=self._told_limits)
        settle(answer, told.SerializeToString())

    def _predict(self, body: bytes, counted: RequestCounts, deadline: Deadline, answer: "Future[bytes]") -> None:
        asked = EncodedInstances(body, counted)
        self._ask(parsed(counted.head, pb.PredictRequest).model, asked, deadline, answer)

    def _ask(
        self,
        model: str,
        asked: EncodedInstances | ParsedInstances,
        deadline: Deadline,
        answer: "Future[bytes]",
        *,
        here: bool = False,
    ) -> None:
        outcomes = self._service.predict(checked_reference(model), asked, deadline, here=here)
        chain("Predict", outcomes, answer, lambda done: encode_results(asked.request_ids, done))

    def _explain(self, body: bytes, counted: RequestCounts, deadline: Deadline, answer: "Future[bytes]") -> None:
        asked = EncodedQuery(body, counted)
        explanation = self._service.explain(asked.model, asked, deadline)
        chain("Explain", explanation, answer, lambda done: encode_explanation(asked.request_id, done))

    def _explain_global(
        self, emit: Emit, body: bytes, counted: RequestCounts, deadline: Deadline, answer: "Future[bytes]"
    ) -> None:
        asked = EncodedGlobalQuery(body, counted)

        def report(known: GlobalImportance) -> None:
            emit(encode_known(known))

        known = self._service.explain_global(asked.model, asked, report, deadline)
        chain("ExplainGlobal", known, answer, encode_known)


def _request_limits(limits: ServiceLimits, most_bytes: int | None) -> RequestLimits:
    """What one request may hold: as much as the door lets through, and as finds room where requests wait."""
    room = min(limits.uncounted.size, limits.predictions.size)
    return RequestLimits(
        size=room if most_bytes is None else min(room, most_bytes), rows=min(MAX_ROWS, limits.predictions.rows)
    )


def _instances_of(body: bytes) -> Sequence[pb.Instance]:
    return pb.PredictRequest.FromString(body).instances


def encode_known(known: GlobalImportance) -> bytes:
    """One message of the answer to ExplainGlobal."""
    return global_importance.encode(known).SerializeToString()


def encode_results(request_ids: Sequence[str], outcomes: Sequence[Outcome]) -> bytes:
    """The answer to Predict."""
    pairs = zip(request_ids, outcomes, strict=True)
    return pb.PredictResponse(results=[_result(*pair) for pair in pairs]).SerializeToString()


def _result(request_id: str, outcome: Outcome) -> pb.Result:
    if isinstance(outcome, Forecast):
        return pb.Result(request_id=request_id, forecast=forecasts.encode(outcome))
    return pb.Result(request_id=request_id, error=errors.encode(outcome))


def encode_explanation(request_id: str, explanation: Explanation) -> bytes:
    """The answer to Explain."""
    return attributions.encode(explanation, request_id).SerializeToString()
