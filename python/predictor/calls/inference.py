"""The calls of the open inference protocol, on the same service and queue."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, final

import numpy as np

from predictor._pb import inference_pb2 as pb
from predictor.call_context import CallContext
from predictor.calls.futures import MAX_INLINE_PARTS, JobThread, chain_futures, completed_future
from predictor.calls.streams import FlowControl, ManyRequestCall, ResponseCallback
from predictor.catalog import ModelInfo
from predictor.errors import (
    CallCancelledError,
    MalformedRequestError,
    ModelNotFoundError,
    PermissionDeniedError,
    QuantraError,
    VersionNotFoundError,
)
from predictor.instance import InstanceOrError
from predictor.service import LazyRequest, PredictionService
from predictor.wire.kserve import inputs, models
from predictor.wire.kserve.answers import encode_answer, read_output_names
from predictor.wire.kserve.requests import (
    InferRequest,
    RequestParameters,
    decode_parameters,
    join_reference,
    read_request,
)
from predictor.wire.limits import check_text
from predictor.wire.request_counts import TooManyPartsError, parse_short

if TYPE_CHECKING:
    from predictor.arrays import PositionArray


UnaryHandler = Callable[[bytes, CallContext], Future[bytes]]
"""Handles a unary request; raises QuantraError."""
INFER: Final = "ModelInfer"
INFER_STREAM: Final = "ModelStreamInfer"
_ONLY: Final = np.zeros(1, np.intp)
"""Position of a window's only symbol."""


@final
class RowDecoder:
    """Decodes the rows of a ModelInferRequest.

    Args:
        parameters: Its parameters.
        info: The model, for windows; None for bars.
    """

    def __init__(self, parameters: RequestParameters, info: ModelInfo | None) -> None:
        self._parameters, self._info = parameters, info
        self.positions: list[PositionArray] = []
        """Positions of each decoded row's symbols among the sent symbols."""

    def decode(self, request: InferRequest) -> list[InstanceOrError]:
        """Decode each row, or return its error."""
        if self._info is not None:
            self.positions = [_ONLY] * request.count
            return [*inputs.read_windows(request.tensors, self._info, self._parameters)]
        arrays = inputs.read_bars(request.tensors)
        self.positions = inputs.find_symbols(arrays)
        return [
            inputs.build_instance(arrays, row, positions, self._parameters)
            for row, positions in enumerate(self.positions)
        ]


@final
class InferenceCalls:
    """The unary calls of GRPCInferenceService."""

    def __init__(self, service: PredictionService, jobs: JobThread) -> None:
        self._service = service
        self._jobs = jobs
        immediate: Mapping[str, Callable[[bytes], bytes]] = {
            "ServerLive": answer_live,
            "ServerReady": answer_ready,
            "ModelReady": self._answer_model_ready,
            "ServerMetadata": answer_metadata,
            "ModelMetadata": self._answer_model_metadata,
            "ModelConfig": self._answer_model_config,
            "RepositoryIndex": lambda body: answer_index(body, service.models()),
            "RepositoryModelLoad": _refuse_change,
            "RepositoryModelUnload": _refuse_change,
        }
        self.unary: dict[str, UnaryHandler] = {
            INFER: self._infer,
            **{name: partial(_respond_at_once, respond) for name, respond in immediate.items()},
        }
        """Handlers by name."""

    def _infer(self, body: bytes, context: CallContext) -> Future[bytes]:
        size = len(body)
        try:
            request = read_request(body, MAX_INLINE_PARTS)
        except TooManyPartsError:
            request_future = self._jobs.run(INFER, lambda: read_request(body), context, size=size)
            return chain_futures(INFER, request_future, lambda request: self._forecast(request, size, context))
        return self._forecast(request, size, context)

    def _forecast(self, request: InferRequest, size: int, context: CallContext) -> Future[bytes]:
        request_id, symbols = request.head.id, request.symbols
        check_text("id", request_id)
        output_names = read_output_names(request.head)
        parameters = decode_parameters(request.head, are_bars=request.are_bars)
        reference, info = request.reference, None
        if not request.are_bars:  # the form of windows depends on the model, so pin its version
            info = self._service.model(reference)
            reference = f"{info.name}@{info.version}"
        decoder = RowDecoder(parameters, info)
        return self._service.predict(
            reference,
            LazyRequest(partial(decoder.decode, request), request.rows, size),
            context,
            lambda outcomes: encode_answer(
                outcomes, decoder.positions, symbols, request_id=request_id, output_names=output_names
            ),
        )

    def _answer_model_ready(self, body: bytes) -> bytes:
        request = parse_short(body, pb.ModelReadyRequest)
        try:
            self._service.model(join_reference(request.name, request.version))
        except (ModelNotFoundError, VersionNotFoundError):
            return pb.ModelReadyResponse(ready=False).SerializeToString()
        return pb.ModelReadyResponse(ready=True).SerializeToString()

    def _answer_model_metadata(self, body: bytes) -> bytes:
        request = parse_short(body, pb.ModelMetadataRequest)
        info = self._service.model(join_reference(request.name, request.version))
        versions = [other.version for other in self._service.models() if other.name == info.name]
        return models.encode_metadata(info, versions).SerializeToString()

    def _answer_model_config(self, body: bytes) -> bytes:
        request = parse_short(body, pb.ModelConfigRequest)
        info = self._service.model(join_reference(request.name, request.version))
        return pb.ModelConfigResponse(config=models.encode_config(info)).SerializeToString()


def answer_live(body: bytes) -> bytes:
    """Respond to ServerLive."""
    parse_short(body, pb.ServerLiveRequest)
    return pb.ServerLiveResponse(live=True).SerializeToString()


def answer_ready(body: bytes) -> bytes:
    """Respond to ServerReady, once models are loaded."""
    parse_short(body, pb.ServerReadyRequest)
    return pb.ServerReadyResponse(ready=True).SerializeToString()


def answer_metadata(body: bytes) -> bytes:
    """Respond to ServerMetadata."""
    parse_short(body, pb.ServerMetadataRequest)
    return pb.ServerMetadataResponse(
        name=models.PLATFORM, version=version("quantra"), extensions=models.EXTENSIONS
    ).SerializeToString()


def answer_index(body: bytes, infos: tuple[ModelInfo, ...]) -> bytes:
    """Respond to RepositoryIndex."""
    parse_short(body, pb.RepositoryIndexRequest)
    return models.encode_index(infos).SerializeToString()


def decode_load(body: bytes) -> str:
    """Decode the reference in a RepositoryModelLoadRequest.

    Raises:
        MalformedRequestError: It has parameters, such as model files.
    """
    request = parse_short(body, pb.RepositoryModelLoadRequest)
    _check_parameters(request.parameters, frozenset())
    return join_reference(request.model_name, "")


def decode_unload(body: bytes) -> str:
    """Decode the reference in a RepositoryModelUnloadRequest; raises as `decode_load`."""
    request = parse_short(body, pb.RepositoryModelUnloadRequest)
    _check_parameters(request.parameters, frozenset({"unload_dependents"}))
    return join_reference(request.model_name, "")


def _check_parameters(parameters: Mapping[str, pb.ModelRepositoryParameter], allowed: frozenset[str]) -> None:
    for name in parameters:
        if name not in allowed:
            raise MalformedRequestError(
                f"parameter {name[:80]!r} is not supported; leave it out, since models load from their folder only",
                metadata={"field": "parameters"},
            )


def _refuse_change(_body: bytes) -> bytes:
    raise PermissionDeniedError(
        "models are loaded and unloaded at the server's admin address only (--admin-listen); send the call there",
        metadata={"role": "admin"},
    )


def _respond_at_once(respond: Callable[[bytes], bytes], body: bytes, _context: CallContext) -> Future[bytes]:
    return completed_future(respond(body))


@final
class PendingInference:
    """A request whose response was not emitted yet."""

    def __init__(self, request: bytes) -> None:
        self.request_id = models.read_request_id(request)
        self.size = len(request)
        self.response: Future[bytes] | None = None
        """None while it is being started."""

    @property
    def is_ready(self) -> bool:
        """Whether the result is ready."""
        return self.response is not None and self.response.done()

    def cancel(self) -> None:
        """Cancel the request."""
        if self.response is not None:
            self.response.cancel()

    def result(self) -> bytes:
        """Return the result, once ready; raises its error."""
        assert self.response is not None  # noqa: S101 - it is ready
        return self.response.result()


@final
class InferStream(ManyRequestCall):
    """An open ModelStreamInfer.

    Args:
        infer: Starts one request; its future fails only with a QuantraError.
        context, emit, flow_control, max_bytes: See `ManyRequestCall`.
    """

    def __init__(
        self,
        infer: Callable[[bytes, CallContext], Future[bytes]],
        context: CallContext,
        emit: ResponseCallback,
        flow_control: FlowControl,
        max_bytes: int | None = None,
    ) -> None:
        super().__init__(INFER_STREAM, context, emit, flow_control, max_bytes)
        self._infer = infer
        self._requests: deque[PendingInference] = deque()
        """Oldest first."""

    def send(self, body: bytes) -> bool:
        """See `OpenCall`. An invalid request gets its error as its response."""
        with self._lock:
            if not self._is_accepting:
                return False
            pending = PendingInference(body)
            self._flow_control.add_request(pending.size)
            self._requests.append(pending)
        response = self._infer(body, self._context)  # outside the lock, which completing the request takes
        with self._lock:
            pending.response = response
            if self._is_cancelled:
                response.cancel()
        response.add_done_callback(lambda _: self._advance())
        return self._can_continue()

    def _list_cancellations(self) -> Sequence[Callable[[], object]]:
        return [request.cancel for request in self._requests]

    def _is_busy(self) -> bool:
        return bool(self._requests)

    def _advance(self) -> None:
        """Emit the ready responses, up to the first request that is not ready."""
        with self._lock:
            while self._requests and self._requests[0].is_ready and not self._is_cancelled:
                request = self._requests.popleft()
                message = self._encode_response(request)
                self._flow_control.replace_with_response(request.size, len(message))
                self._emit(message)
        self._finish_if_over()

    def _encode_response(self, request: PendingInference) -> bytes:
        try:
            message = models.encode_response(request.result())
            error = self._make_excess_error(message, "request fewer rows or outputs")
        except CancelledError:
            error = CallCancelledError("the request was cancelled before its response was ready")
        except QuantraError as failure:
            error = failure
        else:
            if error is None:
                return message
        return models.encode_error(request.request_id, error)
