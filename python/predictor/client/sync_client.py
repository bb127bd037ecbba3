"""The client that waits for its answers."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Self, TypeVar, final

import grpc

from predictor._pb.prediction_pb2_grpc import PredictionServiceStub
from predictor.bars import BarPanel
from predictor.catalog import ModelInfo
from predictor.client.calls import (
    DEFAULT_TIMEOUT_S,
    CallTimeout,
    Steps,
    UnaryCall,
    checked_timeout,
    closed,
    error_of,
    read,
)
from predictor.client.connection import ChannelOptions, ClientCredentials, connecting, target_of
from predictor.client.panels import PanelPlanner
from predictor.client.sessions import BarSession, SessionRequests, SessionStream, forecast_of
from predictor.client.streams import DEFAULT_IN_FLIGHT, RequestSender, RequestStream, SilenceMonitor, StreamResponse
from predictor.covariates import Covariates
from predictor.errors import QuantraError, UnavailableError
from predictor.forecast import Attribution, Explanation, Forecast, Outcome, forecast_or_raise
from predictor.global_importance import GlobalImportance, GlobalQuery
from predictor.instance import Instance, Query, Question, importance_query, instance_of
from predictor.wire import global_importance

ValueT = TypeVar("ValueT")


@final
class QuantraClient:
    """Asks a server and waits for its answers; safe to use from many threads.

    Args:
        target: "HOST:PORT" or "unix:PATH"; http:// may stand before it, and https:// where there is `credentials.ca`.
        model: "NAME", "NAME@VERSION" or "NAME@ALIAS"; empty = the only model that the server has.
        timeout_s: Seconds that one call may take: above 0, at most LONGEST_TIMEOUT_S. Each method takes another one.
        credentials: what vouches for the server and for the client; None: plain text, and QUANTRA_TOKEN if it is set.
        channel: the caller's own, in place of credentials; then the target is for messages alone, no token is added,
            and to close the client leaves it open.

    Raises:
        ConfigurationError: the timeout is out of range, both credentials and a channel are given, or see
            `ClientCredentials`.
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
        target = target if channel is not None else target_of(target, credentials)
        self._target = target
        self._model = model
        self._timeout_s = checked_timeout(timeout_s)
        self._planning = PanelPlanner(model)
        self._closed = False
        how = connecting(target, credentials, has_channel=channel is not None)
        self._headers = how.headers
        self._is_own = channel is None
        self._channel = _opened(target, how) if channel is None else channel
        self._stub = PredictionServiceStub(self._channel)
        self._opening = threading.Lock()
        self._sessions: SessionStream | None = None

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; calls under way end as CallCancelledError, later ones as UnavailableError.

        A channel of the caller's stays open, and so do calls under way.
        """
        self._closed = True
        if self._is_own:
            self._channel.close()
        if self._sessions is not None:
            self._sessions.close()

    def predict(
        self, bars: Question, covariates: Covariates | None = None, *, timeout_s: float | None = None
    ) -> Forecast:
        """The forecast for one panel, which may be a whole universe.

        Of a large panel the last bars that the model needs are sent alone, which give the forecast of all to the last
        bit. What is still larger than the server takes goes in several calls, one after the other within one timeout,
        unless the model looks across symbols. Their values are those of one call, but for float32's last digits where a
        part has fewer symbols than a forward pass.

        Args:
            bars: the panel, or an instance that holds all that there is to say.
            covariates: what the model reads beside a panel, such as `CovariateSource.read([...]).for_model(...)`.
            timeout_s: seconds that this call may take; None: as many as the client's.

        Raises:
            QuantraError: the server refused, as in-process; UnavailableError or DeadlineExceededError if it is silent.
        """
        return forecast_or_raise(self.predict_many([instance_of(bars, covariates)], timeout_s=timeout_s)[0])

    def predict_many(self, instances: Sequence[Question], *, timeout_s: float | None = None) -> tuple[Outcome, ...]:
        """Each instance's forecast, or the error that it alone has, in order; large panels are sent as by `predict`.

        Raises:
            QuantraError: the whole call failed; where it took several, the error names the symbols of the one.
        """
        return self._answer(self._planning.predict(instances), self._until(timeout_s))

    def predict_stream(
        self, questions: Iterable[Question], *, in_flight: int = DEFAULT_IN_FLIGHT
    ) -> Iterator[StreamResponse]:
        """Forecasts for many questions over one call, each as soon as it is there, in any order; all bars are sent.

        Args:
            questions: taken one by one, on a thread of their own, and no faster than answers are read; may go on for
                as long as one likes.
            in_flight: how many may be asked and not answered.

        Yields:
            Each question's forecast or error. Whoever stops to read cancels the rest.

        Raises:
            QuantraError: the whole call failed. `timeout_s` counts for each question.
        """
        asking = RequestStream(self._target, self._model, self._timeout_s, in_flight)
        sending = RequestSender(asking, questions)
        try:
            call = self._stub.PredictStream(sending.requests(), metadata=self._headers)
        except ValueError as error:
            raise self._closed_or(error) from error
        with SilenceMonitor(asking, call.cancel) as watching:
            try:
                asking.reads()
                for response in call:
                    sending.make_room()
                    yield asking.answered(response)
                    asking.reads()
            except grpc.RpcError as failure:
                silence = asking.silence() if watching.has_ended_it else None
                raise silence or error_of(failure, self._target, self._timeout_s) from failure
            finally:
                sending.stop()
                call.cancel()
        sending.check()
        asking.check_whole()

    def open_session(
        self, bars: BarPanel | Instance, covariates: Covariates | None = None, *, session_id: str = ""
    ) -> BarSession:
        """Send a panel's history once, and then push each day's bars: the server keeps what forecasts depend on.

        All sessions of a client share one stream, and end with it.

        Args:
            bars: the history, or an instance that holds all that there is to say; how it is read stays so.
            covariates: as for `predict`; the static ones stay so.
            session_id: names the session on the stream, for whoever looks; empty = any name.

        Raises:
            QuantraError: as `predict`; DuplicateIdError: there is a session of this name; QueueFullError: too many.
        """
        requests = SessionRequests(session_id, self._timeout_s)
        stream = self._session_stream()
        response = stream.ask(requests.open(self._model, instance_of(bars, covariates)))
        return BarSession(stream, requests, forecast_of(response))

    def feature_importance(
        self,
        bars: Question,
        horizon: int = 5,
        quantile: float = 0.5,
        covariates: Covariates | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Attribution:
        """How much each input moved one quantile of one horizon; raises as `predict`."""
        return self.explain(importance_query(bars, horizon, quantile, covariates), timeout_s=timeout_s).attributions[0]

    def explain(self, query: Query, *, timeout_s: float | None = None) -> Explanation:
        """The reasons behind a forecast; raises as `predict`. Of a large panel the last bars are sent alone."""
        return self._answer(self._planning.explain(query), self._until(timeout_s))

    def explain_global(self, query: GlobalQuery, *, timeout_s: float | None = None) -> Iterator[GlobalImportance]:
        """What moves the forecasts of many instances: what is known after some of them, the last time after all.

        Raises:
            QuantraError: as `predict`, at any step.
        """
        until = self._until(timeout_s)
        request = global_importance.encode_query(*self._answer(self._planning.cut_query(query), until))
        call = self._stub.ExplainGlobal(request, timeout=until.left_s(self._target), metadata=self._headers)
        try:
            for known in call:
                yield global_importance.decode(known)
        except grpc.RpcError as failure:
            raise error_of(failure, self._target, until.limit_s) from failure
        finally:
            call.cancel()  # whoever stops to read has no use for the rest

    def models(self, *, timeout_s: float | None = None) -> tuple[ModelInfo, ...]:
        """Every version that the server has."""
        return self._ask(UnaryCall.models(), self._until(timeout_s))

    def model(self, reference: str = "", *, timeout_s: float | None = None) -> ModelInfo:
        """One version; the client's own model if none is named."""
        return self._ask(UnaryCall.model(reference or self._model), self._until(timeout_s))

    def _answer(self, steps: Steps[ValueT], until: CallTimeout) -> ValueT:
        """Make the calls of some steps, one after the other, until the end of one deadline."""
        try:
            call = next(steps)
            while True:
                try:
                    answer = self._ask(call, until)
                except QuantraError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as done:
            return done.value

    def _ask(self, call: UnaryCall[ValueT], until: CallTimeout) -> ValueT:
        if self._closed:
            raise closed(self._target)
        left_s = until.left_s(self._target)
        try:
            answer = call.method(self._stub)(call.request, timeout=left_s, metadata=self._headers)
        except grpc.RpcError as failure:
            raise error_of(failure, self._target, until.limit_s) from failure
        except ValueError as error:
            raise self._closed_or(error) from error  # asked here and not before: another thread may close at any time
        return read(self._target, call, answer)

    def _session_stream(self) -> SessionStream:
        """The stream of all sessions; another one, if there is none or it has ended."""
        with self._opening:
            if self._sessions is None or self._sessions.is_over:
                try:
                    self._sessions = SessionStream(self._stub, self._target, self._headers)
                except ValueError as error:
                    raise self._closed_or(error) from error
            return self._sessions

    def _closed_or(self, error: ValueError) -> UnavailableError | ValueError:
        return closed(self._target) if self._closed else error

    def _until(self, timeout_s: float | None) -> CallTimeout:
        return CallTimeout.after(self._timeout_s if timeout_s is None else checked_timeout(timeout_s))


def _opened(target: str, how: ChannelOptions) -> grpc.Channel:
    if how.credentials is None:
        return grpc.insecure_channel(target, options=how.options)
    return grpc.secure_channel(target, how.credentials, options=how.options)
