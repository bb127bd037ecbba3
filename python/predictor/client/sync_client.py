"""`QuantraClient`, the synchronous client."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Self, TypeVar, final

import grpc

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
    make_closed_error,
)
from predictor.client.connection import ClientCredentials, ServerClient, open_channel
from predictor.client.sessions import BarSession, SessionRequests, SessionStream, decode_first_forecast
from predictor.client.streams import DEFAULT_IN_FLIGHT, RequestSender, RequestStream, SilenceMonitor, StreamResponse
from predictor.covariates import Covariates
from predictor.dates import DateLike
from predictor.errors import QuantraError, UnavailableError
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
class QuantraClient(ServerClient[grpc.Channel]):
    """Synchronous client of one server. Thread-safe.

    Args:
        target: "HOST:PORT" or "unix:PATH", optionally with the prefix http://, or https:// with `credentials.ca`.
        model: "NAME", "NAME@VERSION" or "NAME@ALIAS"; empty: the server's only model.
        timeout_s: default timeout of a call in seconds, above 0 and at most MAX_TIMEOUT_S.
        credentials: TLS files and token. None: plain text, with the token in QUANTRA_TOKEN, if set.
        channel: a channel to use instead of `credentials`. The client then adds no token, does not close the channel,
            and uses `target` only in messages.

    Raises:
        ConfigurationError: the timeout is out of range, both credentials and a channel are given, the target is
            invalid or contradicts the credentials, or the credentials are invalid.
    """

    def __init__(
        self,
        target: str,
        model: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        credentials: ClientCredentials | None = None,
        channel: grpc.Channel | None = None,
    ) -> None:
        super().__init__(target, model, timeout_s, credentials, channel, open_channel)
        self._stub = PredictionServiceStub(self._channel)
        self._ledger_stub = LedgerServiceStub(self._channel)
        self._sessions_lock = threading.Lock()
        self._sessions: SessionStream | None = None

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection.

        Calls in progress raise CallCancelledError; later calls raise UnavailableError. A channel passed by the caller
        stays open, and its calls continue.
        """
        with self._sessions_lock:
            self._is_closed = True
            sessions = self._sessions
        if self._is_own:
            self._channel.close()
        if sessions is not None:
            sessions.close()

    def predict(
        self, bars: InstanceLike, covariates: Covariates | None = None, *, timeout_s: float | None = None
    ) -> Forecast:
        """Forecast one panel, which may be a whole universe.

        From a large panel, only the last bars that the model needs are sent; the forecast is the same, bit for bit. If
        the rest still exceeds the server's limits, it is split by symbols into several calls within one timeout, unless
        the model uses relations between symbols. The values equal those of a single call, except for the last float32
        digits if a part has fewer symbols than a forward pass.

        Args:
            bars: the panel, or an instance with all inputs and options.
            covariates: covariates of the panel, such as `CovariateSource.read([...]).for_model(...)`.
            timeout_s: timeout in seconds; None: the client's.

        Raises:
            QuantraError: the server rejected the request, with the same exceptions as `Forecaster`.
            UnavailableError: the server cannot be reached.
            DeadlineExceededError: the server did not respond in time.
        """
        return require_forecast(self.predict_many([to_instance(bars, covariates)], timeout_s=timeout_s)[0])

    def simulate(
        self,
        bars: InstanceLike,
        covariates: Covariates | None = None,
        *,
        paths: int = 1000,
        seed: int = 0,
        timeout_s: float | None = None,
    ) -> PricePaths:
        """Forecast one panel, and draw joint price paths in this process; see `Forecaster.simulate`.

        Raises:
            QuantraError: as `predict` and `predictor.price_paths.simulate_paths`.
        """
        instance = to_instance(bars, covariates)
        past = require_bars(instance, "paths")
        return simulate_paths(self.predict(instance, timeout_s=timeout_s), past, paths=paths, seed=seed)

    def predict_many(self, instances: Sequence[InstanceLike], *, timeout_s: float | None = None) -> tuple[Outcome, ...]:
        """Return the forecast or the error of each instance, in order. Large panels are sent as in `predict`.

        Raises:
            QuantraError: a whole call failed. If there were several calls, the error names the symbols of the failed
                one.
        """
        return self._run(self._planner.predict(instances), self._start_timeout(timeout_s))

    def predict_stream(
        self, instances: Iterable[InstanceLike], *, in_flight: int = DEFAULT_IN_FLIGHT
    ) -> Iterator[StreamResponse]:
        """Forecast many instances over one call; responses arrive in any order. Panels are sent with all their bars.

        The client's `timeout_s` applies to each instance.

        Args:
            instances: iterated in a separate thread, no faster than you read responses; may be endless.
            in_flight: most unanswered requests.

        Yields:
            The forecast or the error of each instance. If you stop reading, the remaining requests are cancelled.

        Raises:
            QuantraError: the whole call failed.
        """
        self._check_open()
        stream = RequestStream(self._target, self._model, self._timeout_s, in_flight)
        sender = RequestSender(stream, instances)
        try:
            call = self._stub.PredictStream(sender.requests(), metadata=self._headers)
        except ValueError as error:
            raise self._make_closed_error(error) from error
        with SilenceMonitor(stream, call.cancel) as monitor:
            try:
                stream.begin_wait()
                for response in call:
                    sender.release()
                    yield stream.decode_response(response)
                    stream.begin_wait()
            except grpc.RpcError as failure:
                if monitor.has_cancelled:
                    raise stream.make_timeout_error() from failure
                raise make_call_error(failure, self._target, self._timeout_s) from failure
            finally:
                sender.stop()
                call.cancel()
        sender.check()
        stream.check_complete()

    def open_session(
        self, bars: BarPanel | Instance, covariates: Covariates | None = None, *, session_id: str = ""
    ) -> BarSession:
        """Open a session: send a panel's history once, then push each day's bars. The server keeps the bars it needs.

        All sessions of a client share one stream and end with it.

        Args:
            bars: the history, or an instance with all inputs and options; the options apply to the whole session.
            covariates: as for `predict`; the static covariates apply to the whole session.
            session_id: name of the session on the stream; empty: a generated name.

        Raises:
            QuantraError: as for `predict`.
            DuplicateIdError: the stream has a session of this name.
            QueueFullError: the server has too many sessions.
        """
        requests = SessionRequests(session_id, self._timeout_s)
        stream = self._open_session_stream()
        opening = requests.open(self._model, to_instance(bars, covariates))
        try:
            response = stream.request(opening)
        except BaseException:  # without a response, the server may have opened it
            for request in requests.abandon(opening):
                stream.send(request)
            raise
        return BarSession(stream, requests, decode_first_forecast(response))

    def feature_importance(
        self,
        bars: InstanceLike,
        horizon: int = 5,
        quantile: float = 0.5,
        covariates: Covariates | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Attribution:
        """Attribute one quantile of one horizon to the inputs; raises as `predict`."""
        return self.explain(
            create_importance_query(bars, horizon, quantile, covariates), timeout_s=timeout_s
        ).attributions[0]

    def explain(self, query: ExplanationQuery, *, timeout_s: float | None = None) -> Explanation:
        """Explain a forecast; raises as `predict`. From a large panel, only the last bars are sent."""
        return self._run(self._planner.explain(query), self._start_timeout(timeout_s))

    def explain_global(
        self, query: GlobalExplanationQuery, *, timeout_s: float | None = None
    ) -> Iterator[GlobalImportance]:
        """Explain the forecasts of many instances. Yields interim results; the last one covers all instances.

        Raises:
            QuantraError: as `predict`, at any step.
        """
        deadline = self._start_timeout(timeout_s)
        request = global_importance.encode_query(*self._run(self._planner.cut_query(query), deadline))
        self._check_open()
        remaining_s = deadline.remaining_s(self._target)
        try:
            call = self._stub.ExplainGlobal(request, timeout=remaining_s, metadata=self._headers)
        except ValueError as error:
            raise self._make_closed_error(error) from error
        try:
            for progress in call:
                yield decode_response(self._target, global_importance.decode, progress)
        except grpc.RpcError as failure:
            raise make_call_error(failure, self._target, deadline.limit_s) from failure
        finally:
            call.cancel()  # the caller may stop reading early

    def forecasts(
        self,
        *,
        model: str = "",
        symbol: str = "",
        since: DateLike = 0,
        newest: int = 0,
        timeout_s: float | None = None,
    ) -> "pd.DataFrame":
        """Read the forecasts in the server's ledger: one row per forecast and horizon with its outcome; needs pandas.

        The columns are those of `Ledger.forecasts`, and those of the newest outcome, which are empty until it is known.

        Args:
            model: "NAME" or "NAME@VERSION"; empty: all models.
            symbol: only of this symbol.
            since: only with bars up to this day or later.
            newest: only the last forecasts that were recorded; 0: all.
            timeout_s: timeout in seconds; None: the client's.

        Raises:
            NoLedgerError: the server has no ledger.
            QuantraError: as `predict`.
        """
        self._check_open()
        deadline = self._start_timeout(timeout_s)
        request = ledger.request_forecasts(model, symbol, since, newest)
        try:
            parts = self._ledger_stub.ListForecasts(
                request, timeout=deadline.remaining_s(self._target), metadata=self._headers
            )
            messages = [forecast for part in parts for forecast in part.forecasts]
        except grpc.RpcError as failure:
            raise make_call_error(failure, self._target, deadline.limit_s) from failure
        except ValueError as error:
            raise self._make_closed_error(error) from error
        return make_frame(ledger.decode_forecasts(messages))

    def models(self, *, timeout_s: float | None = None) -> tuple[ModelInfo, ...]:
        """List all model versions on the server."""
        return self._call(UnaryCall.models(), self._start_timeout(timeout_s))

    def model(self, reference: str = "", *, timeout_s: float | None = None) -> ModelInfo:
        """Describe one model version; by default, the client's model."""
        return self._call(UnaryCall.model(reference or self._model), self._start_timeout(timeout_s))

    def _run(self, steps: CallSequence[ValueT], deadline: CallTimeout) -> ValueT:
        """Make the calls of `steps` in sequence, within one deadline."""
        try:
            call = next(steps)
            while True:
                try:
                    response = self._call(call, deadline)
                except QuantraError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(response)
        except StopIteration as stop:
            return stop.value

    def _call(self, call: UnaryCall[ValueT], deadline: CallTimeout) -> ValueT:
        self._check_open()
        remaining_s = deadline.remaining_s(self._target)
        try:
            response = call.method(self._stub)(call.request, timeout=remaining_s, metadata=self._headers)
        except grpc.RpcError as failure:
            raise make_call_error(failure, self._target, deadline.limit_s) from failure
        except ValueError as error:
            raise self._make_closed_error(
                error
            ) from error  # checked afterwards: another thread may close the channel at any time
        return decode_response(self._target, call.decode, response)

    def _open_session_stream(self) -> SessionStream:
        """Return the stream of all sessions; open a new one if none is active."""
        with self._sessions_lock:
            self._check_open()
            if self._sessions is None or self._sessions.is_over:
                try:
                    self._sessions = SessionStream(self._stub, self._target, self._headers)
                except ValueError as error:
                    raise self._make_closed_error(error) from error
            return self._sessions

    def _make_closed_error(self, error: ValueError) -> UnavailableError | ValueError:
        return make_closed_error(self._target) if self._is_closed else error
