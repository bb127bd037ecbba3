"""The calls of PredictionService and GRPCInferenceService."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, final

from google.protobuf.message import Message

from predictor._pb import prediction_pb2 as pb
from predictor.call_context import CallContext
from predictor.calls.futures import JobThread, chain_futures, completed_future, failed_future, map_future
from predictor.calls.inference import INFER, INFER_STREAM, InferenceCalls, InferStream, UnaryHandler
from predictor.calls.live_sessions import LiveSessions, SessionLoad, SessionQuota
from predictor.calls.predict_stream import PREDICT_STREAM, PredictStream
from predictor.calls.streams import FlowControl, OpenCall, OpenStreams, ProgressCall, ResponseCallback
from predictor.errors import MalformedRequestError, UnavailableError
from predictor.forecast import Forecast, Outcome
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance
from predictor.limits import ServiceLimits
from predictor.service import LazyRequest, PredictionService, Simulation, create_request
from predictor.wire import attributions, errors, forecasts, global_importance, models, price_paths
from predictor.wire.instances import InstanceDecoder, decode_or_error
from predictor.wire.limits import MAX_ROWS, RequestLimits, check_reference
from predictor.wire.request_counts import RequestCounts, encode_field, is_plain, parse, parse_small

if TYPE_CHECKING:
    from concurrent.futures import Future

SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["PredictionService"].full_name


CountedHandler = Callable[[bytes, RequestCounts, CallContext], "Future[bytes]"]
"""Handles a request whose fields were counted; raises QuantraError."""


@final
class PredictionCalls:
    """The calls of PredictionService and of GRPCInferenceService. Thread-safe.

    Args:
        service: Computes the results.
        limits: Limits of the service.
        max_bytes: Largest request that the transport accepts; None: unlimited.
    """

    def __init__(
        self,
        service: PredictionService,
        limits: ServiceLimits | None = None,
        *,
        max_bytes: int | None = None,
    ) -> None:
        self._service = service
        self._limits = limits or ServiceLimits()
        self._quota = SessionQuota.of_process(self._limits)
        self._jobs = JobThread("count", self._limits.uncounted)
        size = min(self._limits.uncounted.size, self._limits.predictions.size)
        request_limits = RequestLimits(
            size=size if max_bytes is None else min(size, max_bytes), rows=min(MAX_ROWS, self._limits.predictions.rows)
        )
        self._encoded_limits = models.encode_limits(request_limits)
        self._streams = OpenStreams()
        self._inference = InferenceCalls(service, self._jobs)
        self._unary: dict[str, UnaryHandler] = {
            "ListModels": partial(self._begin, "ListModels", pb.ListModelsRequest, self._list_models),
            "GetModel": partial(self._begin, "GetModel", pb.GetModelRequest, self._get_model),
            "Explain": partial(self._begin, "Explain", pb.ExplainRequest, self._explain),
            **self._inference.unary,
        }

    def handle(self, name: str, request: bytes, context: CallContext, *, inline: bool = False) -> "Future[bytes]":
        """Answer one unary call. Never raises: the future fails, always with a QuantraError.

        Cancelling the future ends it and drops a queued call; cancelling the context interrupts a running one.

        Args:
            name: Name of the call.
            request: The encoded request.
            context: Context of the call.
            inline: As for `PredictionService.predict`.
        """
        try:
            if name == "Predict":
                small = parse_small(request, pb.PredictRequest)
                if small is None or len(small.instances) != 1 or not is_plain(small.instances[0]):
                    return self._begin("Predict", pb.PredictRequest, self._predict, request, context)
                (message,) = small.instances
                decoded = create_request((decode_or_error(message),), len(request))
                encode = partial(encode_results, (message.request_id,))
                return self._service.predict(check_reference(small.model), decoded, context, encode, inline=inline)
            return self._unary.get(name, _reject_unknown)(request, context)
        except Exception as error:  # noqa: BLE001 - layer boundary
            return failed_future(name, error)

    def open(self, name: str, context: CallContext, emit: ResponseCallback, max_bytes: int | None = None) -> OpenCall:
        """Open a call with a stream of response messages. Never raises, as `handle`.

        Args:
            name: Name of the call.
            context: Context of the whole call.
            emit: Receives each message.
            max_bytes: Largest message; None: any. A larger response to one request becomes an error.
        """
        stream = self._create_stream(name, context, emit, max_bytes)
        self._streams.add(stream)
        return stream

    def _create_stream(
        self, name: str, context: CallContext, emit: ResponseCallback, max_bytes: int | None
    ) -> OpenCall:
        flow_control = FlowControl(self._limits.requests_per_stream, self._limits.bytes_per_stream)
        if name == INFER_STREAM:
            return InferStream(partial(self.handle, INFER), context, emit, flow_control, max_bytes)
        if name == PREDICT_STREAM:
            sessions = LiveSessions(self._service, self._quota.create_stream_quota(self._limits))
            return PredictStream(self._service, sessions, self._jobs, context, emit, flow_control, max_bytes)
        methods: dict[str, UnaryHandler] = {
            "ExplainGlobal": partial(self._begin, name, pb.ExplainGlobalRequest, partial(self._explain_global, emit)),
            "SimulatePaths": partial(self._begin, name, pb.SimulatePathsRequest, partial(self._simulate, emit)),
        }

        def start(request: bytes) -> "Future[bytes]":
            try:
                return methods.get(name, _reject_unknown)(request, context)
            except Exception as error:  # noqa: BLE001 - layer boundary
                return failed_future(name, error)

        return ProgressCall(name, start, context, emit)

    @property
    def session_load(self) -> SessionLoad:
        """Load of the open sessions of all streams."""
        return self._quota.load

    def drain(self) -> None:
        """Answer the pending requests of all streams, then end them, and later ones, as UNAVAILABLE."""
        self._streams.drain(
            UnavailableError("the server is stopping; open the stream again in a moment, or on another server")
        )

    def close(self) -> None:
        """Drain, and finish the queue of requests to count. The service finishes the counted ones."""
        self.drain()
        self._jobs.close()

    def _begin(
        self, name: str, kind: type[Message], handler: CountedHandler, request: bytes, context: CallContext
    ) -> "Future[bytes]":
        # Count the fields before parsing: a small message may expand to gigabytes in memory. A large request is counted
        # on the job thread.
        counts = self._jobs.count(name, request, kind, context)
        if isinstance(counts, RequestCounts):
            return handler(request, counts, context)
        return chain_futures(name, counts, lambda counts: handler(request, counts, context))

    def _list_models(self, body: bytes, _counted: RequestCounts, _context: CallContext) -> "Future[bytes]":
        parse(body, pb.ListModelsRequest)
        infos = self._service.models()
        return completed_future(pb.ListModelsResponse(models=map(models.encode, infos)).SerializeToString())

    def _get_model(self, body: bytes, _counted: RequestCounts, _context: CallContext) -> "Future[bytes]":
        request = parse(body, pb.GetModelRequest)
        info = self._service.model(check_reference(request.model))
        response = pb.GetModelResponse(model=models.encode(info), limits=self._encoded_limits)
        return completed_future(response.SerializeToString())

    def _predict(self, body: bytes, counts: RequestCounts, context: CallContext) -> "Future[bytes]":
        model = parse(counts.head, pb.PredictRequest).model
        decoder = InstanceDecoder(body, counts)
        return self._service.predict(
            check_reference(model),
            LazyRequest(decoder.decode, counts.rows, len(body)),
            context,
            lambda outcomes: encode_results(decoder.request_ids, outcomes),
        )

    def _explain(self, body: bytes, counts: RequestCounts, context: CallContext) -> "Future[bytes]":
        message = parse(body, pb.ExplainRequest)
        query = LazyRequest(partial(attributions.decode_query, message), counts.rows, len(body))
        explanation = self._service.explain(check_reference(message.model), query, context)
        request_id = message.instance.request_id
        return map_future(
            "Explain", explanation, lambda result: attributions.encode(result, request_id).SerializeToString()
        )

    def _explain_global(
        self, emit: ResponseCallback, body: bytes, counts: RequestCounts, context: CallContext
    ) -> "Future[bytes]":
        head, decoder = parse(counts.head, pb.ExplainGlobalRequest), InstanceDecoder(body, counts)

        def decode() -> GlobalExplanationQuery:
            return replace(global_importance.decode_query(head), instances=decoder.decode())

        importance = self._service.explain_global(
            check_reference(head.model),
            LazyRequest(decode, counts.rows, len(body)),
            lambda progress: emit(encode_progress(progress)),
            context,
        )
        return map_future("ExplainGlobal", importance, encode_progress)

    def _simulate(
        self, emit: ResponseCallback, body: bytes, counts: RequestCounts, context: CallContext
    ) -> "Future[bytes]":
        message = parse(body, pb.SimulatePathsRequest)
        query = LazyRequest(partial(price_paths.decode_query, message), counts.rows, len(body))

        def encode(result: Simulation) -> bytes:
            """Emit all messages but the last."""
            messages = [price_paths.encode_answers(result.forecast, result.paths, result.query.questions)]
            messages += price_paths.encode_parts(result.paths) if message.include_paths else ()
            for part in messages[:-1]:
                emit(part.SerializeToString())
            return messages[-1].SerializeToString()

        simulation = self._service.simulate(check_reference(message.model), query, context)
        return map_future("SimulatePaths", simulation, encode)


def _reject_unknown(_request: bytes, _context: CallContext) -> "Future[bytes]":
    raise MalformedRequestError("unknown call; use a call of the service")


def encode_progress(progress: GlobalImportance) -> bytes:
    """Encode one message of the ExplainGlobal response."""
    return global_importance.encode(progress).SerializeToString()


def encode_results(request_ids: Sequence[str], outcomes: Sequence[Outcome]) -> bytes:
    """Encode the Predict response."""
    results: list[bytes] = []
    for request_id, outcome in zip(request_ids, outcomes, strict=True):
        if isinstance(outcome, Forecast):
            result = encode_field(pb.Result.FORECAST_FIELD_NUMBER, forecasts.encode(outcome))
        else:
            result = encode_field(pb.Result.ERROR_FIELD_NUMBER, errors.encode(outcome).SerializeToString())
        if request_id:
            result = encode_field(pb.Result.REQUEST_ID_FIELD_NUMBER, request_id.encode()) + result
        results.append(encode_field(pb.PredictResponse.RESULTS_FIELD_NUMBER, result))
    return b"".join(results)
