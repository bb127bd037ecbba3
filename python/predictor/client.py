"""The thin Python client: the methods of Forecaster against a server, without torch.

    with QuantraClient("127.0.0.1:50051", "aapl") as client:
        forecast = client.predict(BarPanel.read("aapl.csv"))

Errors are the same exceptions as in-process ones. UnavailableError means that no server answered.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar, cast, final

import grpc
import grpc.aio
from google.protobuf.message import Message

from predictor._pb import prediction_pb2 as pb
from predictor._pb.prediction_pb2_grpc import PredictionServiceStub
from predictor.catalog import ModelInfo
from predictor.covariates import Covariates
from predictor.errors import (
    CallCancelledError,
    ConfigurationError,
    DeadlineExceededError,
    ExplainUnsupportedError,
    InternalError,
    MalformedRequestError,
    QuantraError,
    QueueFullError,
    RequestTooLargeError,
    UnavailableError,
)
from predictor.forecast import Attribution, Explanation, Forecast, Outcome, forecast_or_raise
from predictor.global_importance import GlobalImportance, GlobalQuery
from predictor.instance import Query, Question, importance_query, instance_of
from predictor.wire import attributions, errors, forecasts, global_importance, instances, models

DEFAULT_TIMEOUT_S: Final = 30.0
LONGEST_TIMEOUT_S: Final = 86_400.0
"""A day, as in the .NET client. Centuries overflow gRPC's clock, and such a call ends before it begins."""

# No bounds of our own: the server's hold.
_OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

ValueT = TypeVar("ValueT")


@final
@dataclass(frozen=True, slots=True)
class _Call(Generic[ValueT]):
    """One call: which of the stub's it is, what it sends, and how its answer is read."""

    method: Callable[[PredictionServiceStub], Any]
    request: Message
    read: Callable[[Any], ValueT]

    @classmethod
    def predict(cls, model: str, asked: Sequence[Question]) -> "_Call[tuple[Outcome, ...]]":
        sent = (instances.encode(instance_of(question)) for question in asked)
        request = pb.PredictRequest(model=model, instances=sent)
        return _Call(lambda stub: stub.Predict, request, lambda answer: _outcomes(answer, len(asked)))

    @classmethod
    def explain(cls, model: str, query: Query) -> "_Call[Explanation]":
        return _Call(lambda stub: stub.Explain, attributions.encode_query(query, model), attributions.decode)

    @classmethod
    def models(cls) -> "_Call[tuple[ModelInfo, ...]]":
        request = pb.ListModelsRequest()
        return _Call(lambda stub: stub.ListModels, request, lambda answer: tuple(map(models.decode, answer.models)))

    @classmethod
    def model(cls, reference: str) -> "_Call[ModelInfo]":
        request = pb.GetModelRequest(model=reference)
        return _Call(lambda stub: stub.GetModel, request, lambda answer: models.decode(answer.model))


@final
class QuantraClient:
    """Asks a server and waits for its answers; safe to use from many threads.

    Args:
        target: "HOST:PORT".
        model: "NAME", "NAME@VERSION" or "NAME@ALIAS"; empty = the only model that the server has.
        timeout_s: Seconds that one call may take: above 0, at most LONGEST_TIMEOUT_S.

    Raises:
        ConfigurationError: the timeout is out of range.
    """

    def __init__(self, target: str, model: str = "", timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._target = target
        self._model = model
        self._timeout_s = _checked_timeout(timeout_s)
        self._closed = False
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._stub = PredictionServiceStub(self._channel)

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; calls under way end as CallCancelledError, later ones as UnavailableError."""
        self._closed = True
        self._channel.close()

    def predict(self, bars: Question, covariates: Covariates | None = None) -> Forecast:
        """The forecast for one panel.

        Args:
            bars: the panel, or an instance that holds all that there is to say.
            covariates: what the model reads beside a panel, such as `CovariateSource.read([...]).for_model(...)`.

        Raises:
            QuantraError: the server refused, as in-process; UnavailableError or DeadlineExceededError if it is silent.
        """
        return forecast_or_raise(self.predict_many([instance_of(bars, covariates)])[0])

    def predict_many(self, instances: Sequence[Question]) -> tuple[Outcome, ...]:
        """Each instance's forecast, or the error that it alone has, in order.

        Raises:
            QuantraError: the whole call failed.
        """
        return self._ask(_Call.predict(self._model, instances))

    def feature_importance(
        self, bars: Question, horizon: int = 5, quantile: float = 0.5, covariates: Covariates | None = None
    ) -> Attribution:
        """How much each input moved one quantile of one horizon; raises as `predict`."""
        return self.explain(importance_query(bars, horizon, quantile, covariates)).attributions[0]

    def explain(self, query: Query) -> Explanation:
        """The reasons behind a forecast; raises as `predict`."""
        return self._ask(_Call.explain(self._model, query))

    def explain_global(self, query: GlobalQuery) -> Iterator[GlobalImportance]:
        """What moves the forecasts of many instances: what is known after some of them, the last time after all.

        Raises:
            QuantraError: as `predict`, at any step.
        """
        request = global_importance.encode_query(query, self._model)
        call = self._stub.ExplainGlobal(request, timeout=self._timeout_s)
        try:
            for known in call:
                yield global_importance.decode(known)
        except grpc.RpcError as failure:
            raise _error(failure, self._target, self._timeout_s) from failure
        finally:
            call.cancel()  # whoever stops to read has no use for the rest

    def models(self) -> tuple[ModelInfo, ...]:
        """Every version that the server has."""
        return self._ask(_Call.models())

    def model(self, reference: str = "") -> ModelInfo:
        """One version; the client's own model if none is named."""
        return self._ask(_Call.model(reference or self._model))

    def _ask(self, call: _Call[ValueT]) -> ValueT:
        try:
            answer = call.method(self._stub)(call.request, timeout=self._timeout_s)
        except grpc.RpcError as failure:
            raise _error(failure, self._target, self._timeout_s) from failure
        except ValueError as error:
            if not self._closed:
                raise
            raise _closed(self._target) from error  # asked here and not before: another thread may close at any time
        return _read(self._target, call, answer)


@final
class AsyncQuantraClient:
    """The same for asyncio: make it in a coroutine and await each method; the arguments are QuantraClient's."""

    def __init__(self, target: str, model: str = "", timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._target = target
        self._model = model
        self._timeout_s = _checked_timeout(timeout_s)
        self._closed = False
        self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        self._stub = PredictionServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls under way end as CallCancelledError, later ones as UnavailableError."""
        self._closed = True
        await self._channel.close()

    async def predict(self, bars: Question, covariates: Covariates | None = None) -> Forecast:
        """The forecast for one panel; raises as QuantraClient.predict."""
        return forecast_or_raise((await self.predict_many([instance_of(bars, covariates)]))[0])

    async def predict_many(self, instances: Sequence[Question]) -> tuple[Outcome, ...]:
        """Each instance's forecast, or the error that it alone has, in order."""
        return await self._ask(_Call.predict(self._model, instances))

    async def feature_importance(
        self, bars: Question, horizon: int = 5, quantile: float = 0.5, covariates: Covariates | None = None
    ) -> Attribution:
        """How much each input moved one quantile of one horizon; raises as `predict`."""
        return (await self.explain(importance_query(bars, horizon, quantile, covariates))).attributions[0]

    async def explain(self, query: Query) -> Explanation:
        """The reasons behind a forecast; raises as `predict`."""
        return await self._ask(_Call.explain(self._model, query))

    async def explain_global(self, query: GlobalQuery) -> AsyncIterator[GlobalImportance]:
        """What moves the forecasts of many instances; as QuantraClient.explain_global."""
        request = global_importance.encode_query(query, self._model)
        call = self._stub.ExplainGlobal(request, timeout=self._timeout_s)
        try:
            async for known in call:
                yield global_importance.decode(known)
        except grpc.RpcError as failure:
            raise _error(failure, self._target, self._timeout_s) from failure
        finally:
            call.cancel()

    async def models(self) -> tuple[ModelInfo, ...]:
        """Every version that the server has."""
        return await self._ask(_Call.models())

    async def model(self, reference: str = "") -> ModelInfo:
        """One version; the client's own model if none is named."""
        return await self._ask(_Call.model(reference or self._model))

    async def _ask(self, call: _Call[ValueT]) -> ValueT:
        if self._closed:
            raise _closed(self._target)
        try:
            answer = await call.method(self._stub)(call.request, timeout=self._timeout_s)
        except grpc.RpcError as failure:
            raise _error(failure, self._target, self._timeout_s) from failure
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise _cancelled(self._target) from None  # the connection was closed, nobody cancelled the task
        return _read(self._target, call, answer)


def _checked_timeout(timeout_s: float) -> float:
    if not 0 < timeout_s <= LONGEST_TIMEOUT_S:  # NaN is neither
        raise ConfigurationError(
            f"timeout_s is {timeout_s:g} seconds, but must be above 0 and at most {LONGEST_TIMEOUT_S:g}, which is a day"
        )
    return timeout_s


def _outcomes(response: pb.PredictResponse, count: int) -> tuple[Outcome, ...]:
    if len(response.results) != count:
        raise MalformedRequestError(f"results: have {len(response.results)}, need {count}, one per instance")
    return tuple(
        errors.decode(result.error) if result.HasField("error") else forecasts.decode(result.forecast)
        for result in response.results
    )


def _read(target: str, call: _Call[ValueT], answer: Message) -> ValueT:
    """Decode an answer. What is wrong with it is not the fault of the caller's input."""
    try:
        return call.read(answer)
    except (MalformedRequestError, ExplainUnsupportedError) as error:
        raise InternalError(
            f"the answer of {target} cannot be read: {error.message}; use the same version of client and server"
        ) from error


def _error(failure: grpc.RpcError, target: str, timeout_s: float) -> QuantraError:
    """The error that the server meant, or the network's."""
    trailers = cast("Iterable[tuple[str, str | bytes]]", failure.trailing_metadata() or ())  # the stubs lack __iter__
    for key, value in trailers:
        if key == errors.DETAILS_KEY and isinstance(value, bytes):
            meant = errors.decode_details(value)
            if meant is not None:
                return meant
    return _network_error(failure, target, timeout_s)


def _closed(target: str) -> UnavailableError:
    return UnavailableError(f"this client of {target} is closed; make another one")


def _cancelled(target: str) -> CallCancelledError:
    return CallCancelledError(f"the call to {target} was cancelled before its answer was there")


def _network_error(failure: grpc.RpcError, target: str, timeout_s: float) -> QuantraError:
    code, details = failure.code(), failure.details() or ""
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            return UnavailableError(
                f"no server answers at {target} ({details}); start a server there (quantra serve --models DIR --listen "
                f"{target}), or check the address"
            )
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceededError(f"{target} gave no answer within {timeout_s:g} seconds; allow more time")
        case grpc.StatusCode.CANCELLED:
            return _cancelled(target)
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in details:
            return RequestTooLargeError(f"{target} refused the call: {details}; send less at once")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return QueueFullError(f"{target} refused the call: {details}; ask again in a moment")
        case _:
            return QuantraError(f"{target} answered {code.name}: {details}; is it a Quantra server of this version?")
