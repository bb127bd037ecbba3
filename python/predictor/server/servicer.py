"""The four calls of quantra.v1.PredictionService, from request bytes to answer bytes, and which of them are admitted.

Requests arrive as bytes and are parsed here, not by gRPC, so that bytes that are not a request get an answer of ours.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, Never, Protocol, TypeVar, final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from predictor._pb import prediction_pb2 as pb
from predictor.catalog import ModelInfo
from predictor.errors import (
    InternalError,
    MalformedRequestError,
    QuantraError,
    QueueFullError,
    RequestTooLargeError,
    Status,
    UnavailableError,
    answer_of,
)
from predictor.forecast import Explanation, Forecast, Outcome
from predictor.instance import Deadline, Query, ReadInstance
from predictor.server.settings import ServerLimits
from predictor.wire import attributions, errors, forecasts, instances, models
from predictor.wire.counting import check_parts
from predictor.wire.limits import MAX_INSTANCES, check_count, check_text

STATUS_CODES = {status: grpc.StatusCode[status.value] for status in Status}
"""gRPC's own constant for each status."""

SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["PredictionService"].full_name

Context = grpc.aio.ServicerContext[bytes, bytes]
Call = Callable[[bytes, Deadline], Awaitable[Message]]
MessageT = TypeVar("MessageT", bound=Message)

_log = logging.getLogger(__name__)


@final
class Admission:
    """Counts calls in flight on one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_flight = 0
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def call(self) -> Generator[None]:
        """One call, from its arrival to its answer.

        Raises:
            UnavailableError: the server is stopping.
            QueueFullError: as many calls as allowed are in flight.
        """
        if self._is_closed:
            raise UnavailableError("the server is stopping; ask again in a moment, or another server")
        if self._in_flight >= self._most:
            raise QueueFullError(
                f"{self._in_flight} calls are in flight already, at most {self._most}; ask again in a moment",
                metadata={"have": str(self._in_flight), "most": str(self._most)},
            )
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()

    def close(self) -> None:
        """Let no further call in."""
        self._is_closed = True

    async def idle(self) -> None:
        """Wait until no call is in flight."""
        await self._idle.wait()


async def refuse(context: grpc.aio.ServicerContext[Any, Any], error: QuantraError) -> Never:
    """End the call with the error's status, its message, and google.rpc.Status details."""
    await context.abort(
        STATUS_CODES[answer_of(error).status],
        errors.shortened(error.message, errors.MAX_CALL_MESSAGE),
        ((errors.DETAILS_KEY, errors.encode_details(error)),),
    )


class Service(Protocol):
    """What the calls need from predictor.service.PredictionService."""

    def models(self) -> tuple[ModelInfo, ...]:
        """Every version that is served."""
        ...

    def model(self, reference: str) -> ModelInfo:
        """One version; raises ModelNotFoundError or VersionNotFoundError."""
        ...

    def predict(
        self, reference: str, instances: Sequence[ReadInstance], deadline: Deadline
    ) -> Future[tuple[Outcome, ...]]:
        """Each instance's forecast or error, in order; raises at once if the model is unknown or the queue is full."""
        ...

    def explain(self, reference: str, query: Query, deadline: Deadline) -> Future[Explanation]:
        """The reasons behind one forecast; never keeps a prediction waiting."""
        ...


@final
class PredictionServicer:
    """Translates between the wire and a service."""

    def __init__(self, service: Service, admission: Admission, limits: ServerLimits) -> None:
        self._service = service
        self._admission = admission
        self._limits = limits

    def handler(self) -> grpc.GenericRpcHandler:
        """What gRPC routes calls to."""
        calls: dict[str, Call] = {
            "ListModels": self._list_models,
            "GetModel": self._get_model,
            "Predict": self._predict,
            "Explain": self._explain,
        }
        methods = {
            name: grpc.unary_unary_rpc_method_handler(self._answered(name, call)) for name, call in calls.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE_NAME, methods)

    def _answered(self, name: str, call: Call) -> Callable[[bytes, Context], Any]:
        """Wrap a call: it is counted, has a deadline, and every error ends as a status."""

        async def answer(body: bytes, context: Context) -> bytes:
            started_s = time.perf_counter()
            deadline = Deadline.after(context.time_remaining())
            try:
                with self._admission.call():
                    return self._serialized(await call(body, deadline))
            except asyncio.CancelledError:
                deadline.cancelled.set()
                raise
            except QuantraError as error:
                await refuse(context, error)
            except Exception as error:  # noqa: BLE001 - the process's edge: our own bug must not end in the caller's hands
                await refuse(context, InternalError.of(name, error, _log))
            finally:
                _log.debug("%s: %d bytes, %.1f ms", name, len(body), 1e3 * (time.perf_counter() - started_s))

        return answer

    def _serialized(self, message: Message) -> bytes:
        body = message.SerializeToString()
        if len(body) > self._limits.send_bytes:
            raise RequestTooLargeError(
                f"the answer has {len(body)} bytes, at most {self._limits.send_bytes}; ask for fewer symbols, targets "
                "or less detail",
                metadata={"have": str(len(body)), "most": str(self._limits.send_bytes)},
            )
        return body

    async def _list_models(self, body: bytes, _: Deadline) -> Message:
        _parsed(pb.ListModelsRequest, body)
        return pb.ListModelsResponse(models=map(models.encode, self._service.models()))

    async def _get_model(self, body: bytes, _: Deadline) -> Message:
        request = _parsed(pb.GetModelRequest, body)
        check_text("model", request.model)
        return pb.GetModelResponse(model=models.encode(self._service.model(request.model)))

    async def _predict(self, body: bytes, deadline: Deadline) -> Message:
        request = _parsed(pb.PredictRequest, body)
        _check(request)
        decoded = instances.decode_each(request.instances)
        outcomes = await asyncio.wrap_future(self._service.predict(request.model, decoded, deadline))
        return pb.PredictResponse(
            results=[
                _result(instance.request_id, outcome)
                for instance, outcome in zip(request.instances, outcomes, strict=True)
            ]
        )

    async def _explain(self, body: bytes, deadline: Deadline) -> Message:
        request = _parsed(pb.ExplainRequest, body)
        check_text("model", request.model)
        self._service.model(request.model)
        query = attributions.decode_query(request)
        explanation = await asyncio.wrap_future(self._service.explain(request.model, query, deadline))
        return attributions.encode(explanation, request.instance.request_id)


def _parsed(kind: type[MessageT], body: bytes) -> MessageT:
    check_parts(body, kind)
    try:
        return kind.FromString(body)
    except DecodeError:
        name = kind.DESCRIPTOR.full_name
        raise MalformedRequestError(
            f"the {len(body)} bytes of the request are not a {name}; encode it from prediction.proto",
            metadata={"message": name, "bytes": str(len(body))},
        ) from None


def _check(request: pb.PredictRequest) -> None:
    check_text("model", request.model)
    check_count("instances", len(request.instances), MAX_INSTANCES)
    if not request.instances:
        raise MalformedRequestError("instances: have 0, need at least 1", metadata={"field": "instances"})


def _result(request_id: str, outcome: Outcome) -> pb.Result:
    if isinstance(outcome, Forecast):
        return pb.Result(request_id=request_id, forecast=forecasts.encode(outcome))
    return pb.Result(request_id=request_id, error=errors.encode(outcome))
