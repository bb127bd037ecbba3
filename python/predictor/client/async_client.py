"""`AsyncQuantraClient`, the client for asyncio."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Self, TypeVar, final

import grpc
import grpc.aio

from predictor._pb.ledger_pb2_grpc import LedgerServiceStub
from predictor._pb.prediction_pb2_grpc import PredictionServiceStub
from predictor.bars import BarPanel
from predictor.catalog import ModelInfo
from predictor.client.calls import (
    DEFAULT_TIMEOUT_S,
    CallSequence,
    CallTimeout,
    UnaryCall,
    decode_response,
    make_call_error,
    make_cancelled_error,
)
from predictor.client.connection import ChannelOptions, ClientCredentials, ServerClient
from predictor.client.sessions import AsyncBarSession, AsyncSessionStream, SessionRequests, decode_first_forecast
from predictor.client.streams import DEFAULT_IN_FLIGHT, WATCH_S, AsyncRequestSender, RequestStream, StreamResponse
from predictor.covariates import Covariates
from predictor.dates import DateLike
from predictor.errors import QuantraError
from predictor.forecast import Attribution, Explanation, Forecast, Outcome, require_forecast
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance
from predictor.instance import (
    ExplanationQuery,
    Instance,
    InstanceLike,
    create_importance_query,
    require_bars,
    to_instance,
)
from predictor.ledger.ledger import make_frame
from predictor.price_paths import PricePaths, simulate_paths
from predictor.wire import global_importance, ledger

if TYPE_CHECKING:
    import pandas as pd

ValueT = TypeVar("ValueT")


@final
class AsyncQuantraClient(ServerClient[grpc.aio.Channel]):
    """`QuantraClient` for asyncio, with the same arguments. Create it in a coroutine and await each method."""

    def __init__(
        self,
        target: str,
        model: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        credentials: ClientCredentials | None = None,
        channel: grpc.aio.Channel | None = None,
    ) -> None:
        super().__init__(target, model, timeout_s, credentials, channel, _open_channel)
        self._stub = PredictionServiceStub(self._channel)
        self._ledger_stub = LedgerServiceStub(self._channel)
        self._sessions: AsyncSessionStream | None = None

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        await self.close()

    async def close(self) -> None:
        """Close the connection.

        Calls in progress raise CallCancelledError; later calls raise UnavailableError. A channel passed by the caller
        stays open, and its calls continue.
        """
        self._is_closed = True
        if self._sessions is not None:
            await self._sessions.close()
        if self._is_own:
            await self._channel.close()

    async def predict(
        self, bars: InstanceLike, covariates: Covariates | None = None, *, timeout_s: float | None = None
    ) -> Forecast:
        """Forecast one panel. See `QuantraClient.predict`."""
        return require_forecast((await self.predict_many([to_instance(bars, covariates)], timeout_s=timeout_s))[0])

    async def predict_many(
        self, instances: Sequence[InstanceLike], *, timeout_s: float | None = None
    ) -> tuple[Outcome, ...]:
        """Return the forecast or the error of each instance, in order. See `QuantraClient.predict_many`."""
        return await self._run(self._planner.predict(instances), self._start_timeout(timeout_s))

    async def simulate(
        self,
        bars: InstanceLike,
        covariates: Covariates | None = None,
        *,
        paths: int = 1000,
        seed: int = 0,
        timeout_s: float | None = None,
    ) -> PricePaths:
        """Forecast one panel, and draw joint price paths in this process. See `QuantraClient.simulate`."""
        instance = to_instance(bars, covariates)
        past = require_bars(instance, "paths")
        forecast = await self.predict(instance, timeout_s=timeout_s)
        return await asyncio.to_thread(simulate_paths, forecast, past, paths=paths, seed=seed)

    async def predict_stream(
        self, instances: Iterable[InstanceLike] | AsyncIterable[InstanceLike], *, in_flight: int = DEFAULT_IN_FLIGHT
    ) -> AsyncGenerator[StreamResponse, None]:
        """Forecast many instances over one call. See `QuantraClient.predict_stream`.

        If you stop reading early, close the generator (for example with `contextlib.aclosing`) to cancel the remaining
        requests.
        """
        self._check_open()
        stream = RequestStream(self._target, self._model, self._timeout_s, in_flight)
        sender = AsyncRequestSender(stream, instances)
        call = self._stub.PredictStream(sender.requests(), metadata=self._headers)
        monitor = asyncio.create_task(_cancel_when_overdue(stream, call.cancel))
        try:
            stream.begin_wait()
            async for response in call:
                sender.release()
                yield stream.decode_response(response)
                stream.begin_wait()
        except grpc.RpcError as failure:
            raise make_call_error(failure, self._target, self._timeout_s) from failure
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise (stream.make_timeout_error() if monitor.done() else make_cancelled_error(self._target)) from None
        finally:
            monitor.cancel()
            call.cancel()
        sender.check()
        stream.check_complete()

    async def open_session(
        self, bars: BarPanel | Instance, covariates: Covariates | None = None, *, session_id: str = ""
    ) -> AsyncBarSession:
        """Open a session. See `QuantraClient.open_session`."""
        self._check_open()
        if self._sessions is None or self._sessions.is_over:
            self._sessions = AsyncSessionStream(self._stub, self._target, self._headers)
        stream, requests = self._sessions, SessionRequests(session_id, self._timeout_s)
        opening = requests.open(self._model, to_instance(bars, covariates))
        try:
            response = await stream.request(opening)
        except BaseException:  # without a response, the server may have opened it
            for request in requests.abandon(opening):
                stream.send(request)
            raise
        return AsyncBarSession(stream, requests, decode_first_forecast(response))

    async def feature_importance(
        self,
        bars: InstanceLike,
        horizon: int = 5,
        quantile: float = 0.5,
        covariates: Covariates | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Attribution:
        """Attribute one quantile of one horizon to the inputs. See `QuantraClient.feature_importance`."""
        return (
            await self.explain(create_importance_query(bars, horizon, quantile, covariates), timeout_s=timeout_s)
        ).attributions[0]

    async def explain(self, query: ExplanationQuery, *, timeout_s: float | None = None) -> Explanation:
        """Explain a forecast. See `QuantraClient.explain`."""
        return await self._run(self._planner.explain(query), self._start_timeout(timeout_s))

    async def explain_global(
        self, query: GlobalExplanationQuery, *, timeout_s: float | None = None
    ) -> AsyncIterator[GlobalImportance]:
        """Explain the forecasts of many instances. See `QuantraClient.explain_global`."""
        deadline = self._start_timeout(timeout_s)
        request = global_importance.encode_query(*await self._run(self._planner.cut_query(query), deadline))
        self._check_open()
        call = self._stub.ExplainGlobal(request, timeout=deadline.remaining_s(self._target), metadata=self._headers)
        try:
            async for progress in call:
                yield decode_response(self._target, global_importance.decode, progress)
        except grpc.RpcError as failure:
            raise make_call_error(failure, self._target, deadline.limit_s) from failure
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise make_cancelled_error(self._target) from None
        finally:
            call.cancel()

    async def forecasts(
        self,
        *,
        model: str = "",
        symbol: str = "",
        since: DateLike = 0,
        newest: int = 0,
        timeout_s: float | None = None,
    ) -> "pd.DataFrame":
        """Read the forecasts in the server's ledger as a table. See `QuantraClient.forecasts`."""
        self._check_open()
        deadline = self._start_timeout(timeout_s)
        call = self._ledger_stub.ListForecasts(
            ledger.request_forecasts(model, symbol, since, newest),
            timeout=deadline.remaining_s(self._target),
            metadata=self._headers,
        )
        try:
            messages = [forecast async for part in call for forecast in part.forecasts]
        except grpc.RpcError as failure:
            raise make_call_error(failure, self._target, deadline.limit_s) from failure
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise make_cancelled_error(self._target) from None
        return make_frame(ledger.decode_forecasts(messages))

    async def models(self, *, timeout_s: float | None = None) -> tuple[ModelInfo, ...]:
        """List all model versions on the server."""
        return await self._call(UnaryCall.models(), self._start_timeout(timeout_s))

    async def model(self, reference: str = "", *, timeout_s: float | None = None) -> ModelInfo:
        """Describe one model version; by default, the client's model."""
        return await self._call(UnaryCall.model(reference or self._model), self._start_timeout(timeout_s))

    async def _run(self, steps: CallSequence[ValueT], deadline: CallTimeout) -> ValueT:
        """Make the calls of `steps` in sequence, within one deadline."""
        try:
            call = next(steps)
            while True:
                try:
                    response = await self._call(call, deadline)
                except QuantraError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(response)
        except StopIteration as stop:
            return stop.value

    async def _call(self, call: UnaryCall[ValueT], deadline: CallTimeout) -> ValueT:
        self._check_open()
        remaining_s = deadline.remaining_s(self._target)
        try:
            response = await call.method(self._stub)(call.request, timeout=remaining_s, metadata=self._headers)
        except grpc.RpcError as failure:
            raise make_call_error(failure, self._target, deadline.limit_s) from failure
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise make_cancelled_error(self._target) from None  # the connection was closed; the task was not cancelled
        return decode_response(self._target, call.decode, response)


async def _cancel_when_overdue(stream: RequestStream, cancel: Callable[[], object]) -> None:
    """Cancel a call when its server stops responding."""
    while True:
        await asyncio.sleep(WATCH_S)
        if stream.is_overdue():
            cancel()
            return


def _is_cancelled() -> bool:
    """Whether this task was cancelled, rather than only its call."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _open_channel(target: str, options: ChannelOptions) -> grpc.aio.Channel:
    if options.credentials is None:
        return grpc.aio.insecure_channel(target, options=options.options)
    return grpc.aio.secure_channel(target, options.credentials, options=options.options)
