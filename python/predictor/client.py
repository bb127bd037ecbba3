"""The thin Python client: the methods of Forecaster against a server, without torch.

    with QuantraClient("127.0.0.1:50051", "aapl") as client:
        forecast = client.predict(BarPanel.read("aapl.csv"))

Errors are the same exceptions as in-process ones. UnavailableError means that nobody answered.
"""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar, final

import grpc
import grpc.aio

from predictor._pb import prediction_pb2 as pb
from predictor._pb.prediction_pb2_grpc import PredictionServiceStub
from predictor.bars import BarPanel
from predictor.catalog import ModelInfo
from predictor.errors import (
    CallCancelledError,
    ConfigurationError,
    DeadlineExceededError,
    InternalError,
    InvalidInputError,
    QuantraError,
    RequestTooLargeError,
    UnavailableError,
)
from predictor.forecast import Attribution, Explanation, Forecast, TargetPoint
from predictor.instance import FeatureWindow, Instance, Query
from predictor.wire import attributions, errors, forecasts, instances, models, queries

Outcome = Forecast | QuantraError
Question = BarPanel | FeatureWindow | Instance

DEFAULT_TIMEOUT_S: Final = 30.0

_OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))  # the server's bounds hold

MessageT = TypeVar("MessageT")
ValueT = TypeVar("ValueT")


@final
class QuantraClient:
    """Asks a server and waits for its answers; safe to use from many threads.

    Args:
        target: "HOST:PORT".
        model: "NAME", "NAME@VERSION" or "NAME@ALIAS"; empty = the only model that the server has.
        timeout_s: Seconds that one call may take.
    """

    def __init__(self, target: str, model: str = "", timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._target = target
        self._model = model
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._stub = PredictionServiceStub(self._channel)

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; calls under way end as CallCancelledError."""
        self._channel.close()

    def predict(self, bars: Question) -> Forecast:
        """The forecast for one panel.

        Raises:
            QuantraError: the server refused, as in-process; UnavailableError or DeadlineExceededError if it is silent.
        """
        return _forecast(self.predict_many([_instance(bars)])[0])

    def predict_many(self, instances: Sequence[Instance]) -> list[Outcome]:
        """Each instance's forecast, or the error that it alone has, in order.

        Raises:
            QuantraError: the whole call failed.
        """
        request = _predict_request(self._reference(), instances)
        response = self._ask(self._stub.Predict, request)
        return _read(self._target, lambda: _outcomes(response, len(instances)))

    def feature_importance(self, bars: Question, horizon: int = 5, quantile: float = 0.5) -> Attribution:
        """How much each input moved one quantile of one horizon; raises as `predict`."""
        return self.explain(_importance_query(bars, horizon, quantile)).attributions[0]

    def explain(self, query: Query) -> Explanation:
        """The reasons behind a forecast; raises as `predict`."""
        request = queries.encode(query, self._reference())
        response = self._ask(self._stub.Explain, request)
        return _read(self._target, lambda: attributions.decode(response))

    def models(self) -> tuple[ModelInfo, ...]:
        """Every version that the server has."""
        response = self._ask(self._stub.ListModels, pb.ListModelsRequest())
        return _read(self._target, lambda: tuple(map(models.decode, response.models)))

    def model(self, reference: str = "") -> ModelInfo:
        """One version; the client's own model if none is named."""
        request = pb.GetModelRequest(model=reference or self._reference())
        response = self._ask(self._stub.GetModel, request)
        return _read(self._target, lambda: models.decode(response.model))

    def _reference(self) -> str:
        if not self._model:
            self._model = _only_model(self._target, self.models())
        return self._model

    def _ask(self, call: "_Call[MessageT, ValueT]", request: MessageT) -> ValueT:
        try:
            return call(request, timeout=self._timeout_s)
        except grpc.RpcError as failure:
            raise _error(self._target, self._timeout_s, failure) from None


@final
class AsyncQuantraClient:
    """The same for asyncio: make it in a coroutine and await each method; the arguments are QuantraClient's."""

    def __init__(self, target: str, model: str = "", timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._target = target
        self._model = model
        self._timeout_s = timeout_s
        self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        self._stub = PredictionServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls under way end as CallCancelledError."""
        await self._channel.close()
