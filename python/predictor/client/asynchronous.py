"""The client for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Self, TypeVar, final

import grpc
import grpc.aio

from predictor._pb.prediction_pb2_grpc import PredictionServiceStub
from predictor.catalog import ModelInfo
from predictor.client.calls import DEFAULT_TIMEOUT_S, UnaryCall, checked_timeout, read
from predictor.client.credentials import ClientCredentials, Connecting, connecting
from predictor.client.failures import cancelled, closed, error_of
from predictor.covariates import Covariates
from predictor.forecast import Attribution, Explanation, Forecast, Outcome, forecast_or_raise
from predictor.global_importance import GlobalImportance, GlobalQuery
from predictor.instance import Query, Question, importance_query, instance_of
from predictor.wire import global_importance

ValueT = TypeVar("ValueT")


@final
class AsyncQuantraClient:
    """The same for asyncio: make it in a coroutine and await each method; the arguments are QuantraClient's."""

    def __init__(
        self,
        target: str,
        model: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        credentials: ClientCredentials | None = None,
        channel: grpc.aio.Channel | None = None,
    ) -> None:
        self._target = target
        self._model = model
        self._timeout_s = checked_timeout(timeout_s)
        self._closed = False
        how = connecting(target, credentials, has_channel=channel is not None)
        self._headers = how.headers
        self._is_own = channel is None
        self._channel = _opened(target, how) if channel is None else channel
        self._stub = PredictionServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls under way end as CallCancelledError, later ones as UnavailableError.

        A channel of the caller's stays open, and so do calls under way.
        """
        self._closed = True
        if self._is_own:
            await self._channel.close()

    async def predict(
        self, bars: Question, covariates: Covariates | None = None, *, timeout_s: float | None = None
    ) -> Forecast:
        """The forecast for one panel; raises as QuantraClient.predict."""
        return forecast_or_raise((await self.predict_many([instance_of(bars, covariates)], timeout_s=timeout_s))[0])

    async def predict_many(
        self, instances: Sequence[Question], *, timeout_s: float | None = None
    ) -> tuple[Outcome, ...]:
        """Each instance's forecast, or the error that it alone has, in order."""
        return await self._ask(UnaryCall.predict(self._model, instances), timeout_s)

    async def feature_importance(
        self,
        bars: Question,
        horizon: int = 5,
        quantile: float = 0.5,
        covariates: Covariates | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Attribution:
        """How much each input moved one quantile of one horizon; raises as `predict`."""
        return (
            await self.explain(importance_query(bars, horizon, quantile, covariates), timeout_s=timeout_s)
        ).attributions[0]

    async def explain(self, query: Query, *, timeout_s: float | None = None) -> Explanation:
        """The reasons behind a forecast; raises as `predict`."""
        return await self._ask(UnaryCall.explain(self._model, query), timeout_s)

    async def explain_global(
        self, query: GlobalQuery, *, timeout_s: float | None = None
    ) -> AsyncIterator[GlobalImportance]:
        """What moves the forecasts of many instances; as QuantraClient.explain_global."""
        request = global_importance.encode_query(query, self._model)
        limit_s = self._limit_s(timeout_s)
        call = self._stub.ExplainGlobal(request, timeout=limit_s, metadata=self._headers)
        try:
            async for known in call:
                yield global_importance.decode(known)
        except grpc.RpcError as failure:
            raise error_of(failure, self._target, limit_s) from failure
        finally:
            call.cancel()

    async def models(self, *, timeout_s: float | None = None) -> tuple[ModelInfo, ...]:
        """Every version that the server has."""
        return await self._ask(UnaryCall.models(), timeout_s)

    async def model(self, reference: str = "", *, timeout_s: float | None = None) -> ModelInfo:
        """One version; the client's own model if none is named."""
        return await self._ask(UnaryCall.model(reference or self._model), timeout_s)

    async def _ask(self, call: UnaryCall[ValueT], timeout_s: float | None) -> ValueT:
        limit_s = self._limit_s(timeout_s)
        if self._closed:
            raise closed(self._target)
        try:
            answer = await call.method(self._stub)(call.request, timeout=limit_s, metadata=self._headers)
        except grpc.RpcError as failure:
            raise error_of(failure, self._target, limit_s) from failure
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise cancelled(self._target) from None  # the connection was closed, nobody cancelled the task
        return read(self._target, call, answer)

    def _limit_s(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else checked_timeout(timeout_s)


def _opened(target: str, how: Connecting) -> grpc.aio.Channel:
    if how.credentials is None:
        return grpc.aio.insecure_channel(target, options=how.options)
    return grpc.aio.secure_channel(target, how.credentials, options=how.options)
