"""The sessions of a stream: subscriptions that receive pushed bars."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, final

from predictor._pb import prediction_pb2 as pb
from predictor.calls.futures import make_quantra_error
from predictor.catalog import ModelInfo
from predictor.errors import DuplicateIdError, MalformedRequestError, QuantraError, QueueFullError, UnknownSessionError
from predictor.forecast import Forecast, Outcome
from predictor.instance import Instance, InstanceOrError
from predictor.limits import ServiceLimits
from predictor.service import LazyRequest, LightFuture, PredictionRequest, PredictionService
from predictor.subscription import AcceptedPush, Push, Subscription, make_session_error, require_panel
from predictor.wire import instances
from predictor.wire.limits import check_reference

_MAX_SHOWN_ID: Final = 80
_CALL: Final = "PredictStream"
_RETRY_AFTER_S: Final = 1.0
"""Longer than for calls, because sessions stay open longer."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class SessionRequest:
    """A prediction that a session needs to answer a request."""

    model: str
    """Reference of the model."""
    request: PredictionRequest
    """One instance."""
    respond: "Callable[[Outcome], SessionStepResult]"
    """Maps the outcome to the response; called once, on any thread, also after cancellation or any other error."""


SessionStepResult = SessionRequest | pb.Ack | Outcome | Future["SessionStepResult"]
"""What a session's step returns: the response, a prediction to run first, or a future of either."""


class SessionLoad(NamedTuple):
    """Open sessions."""

    sessions: int
    size: int
    """Their bytes."""


@final
class SessionQuota:
    """Counts sessions and bytes against limits, and against those of an outer quota. Thread-safe.

    Args:
        max_sessions: Largest number of sessions.
        max_bytes: Largest number of bytes in total.
        owner: Owner of the limits, for messages.
        outer: The outer quota.
    """

    def __init__(self, max_sessions: int, max_bytes: int, owner: str, outer: "SessionQuota | None" = None) -> None:
        self._max_sessions, self._max_bytes, self._owner = max_sessions, max_bytes, owner
        self._outer = outer
        self._lock = threading.Lock()
        self._sessions = self._bytes = 0

    @classmethod
    def of_process(cls, limits: ServiceLimits) -> "SessionQuota":
        """Create the quota of the whole process."""
        return cls(limits.sessions, limits.session_bytes, "this server")

    def create_stream_quota(self, limits: ServiceLimits) -> "SessionQuota":
        """Create a quota for one stream within this one."""
        return SessionQuota(limits.sessions_per_stream, limits.session_bytes_per_stream, "this stream", self)

    @property
    def load(self) -> SessionLoad:
        """The open sessions."""
        with self._lock:
            return SessionLoad(self._sessions, self._bytes)

    def add(self, *, sessions: int = 0, size: int = 0) -> None:
        """Add sessions and bytes, or free them if negative, here and in the outer quota.

        Raises:
            QueueFullError: A limit is reached; nothing has changed.
        """
        with self._lock:
            if sessions > 0 and self._sessions + sessions > self._max_sessions:
                items = f"sessions are open on {self._owner}"
                raise QueueFullError.of(items, self._sessions, self._max_sessions, retry_after_s=_RETRY_AFTER_S)
            if size > 0 and self._bytes + size > self._max_bytes:
                items = f"bytes of sessions are held by {self._owner}, {size} more are wanted"
                raise QueueFullError.of(items, self._bytes, self._max_bytes, retry_after_s=_RETRY_AFTER_S)
            if self._outer is not None:
                self._outer.add(sessions=sessions, size=size)
            self._sessions += sessions
            self._bytes += size


SessionStep = Callable[[], SessionStepResult]
"""Handles one request of a session; raises QuantraError."""


@final
class RequestSequencer:
    """Runs the requests of one session in sequence. Thread-safe.

    A request is finished when its step returns. If the step returns a SessionRequest, call `advance` after the
    prediction instead.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting_steps: deque[tuple[SessionStep, Future[SessionStepResult]]] = deque()
        self._is_busy = self._is_advancing = False

    def run(self, step: SessionStep) -> SessionStepResult:
        """Run the step, or return a future if others are first; raises what the step raises."""
        with self._lock:
            if self._is_busy or self._is_advancing or self._waiting_steps:
                future: Future[SessionStepResult] = LightFuture()
                self._waiting_steps.append((step, future))
                return future
            self._is_busy = True
        return self._run(step)

    def advance(self) -> None:
        """Finish the current request and run the next until one needs a prediction; a nested call returns."""
        with self._lock:
            self._is_busy = False
            if self._is_advancing:
                return
            self._is_advancing = True
        while (queued := self._take_next()) is not None:
            step, future = queued
            if not future.set_running_or_notify_cancel():
                self.advance()
                continue
            try:
                result = self._run(step)
            except Exception as error:  # noqa: BLE001 - a callback's edge: the error is the caller's answer
                future.set_exception(make_quantra_error(_CALL, error))
            else:
                future.set_result(result)

    def _run(self, step: SessionStep) -> SessionStepResult:
        needs_prediction = False
        try:
            result = step()
            needs_prediction = isinstance(result, SessionRequest)
            return result
        finally:
            if not needs_prediction:
                self.advance()

    def _take_next(self) -> "tuple[SessionStep, Future[SessionStepResult]] | None":
        with self._lock:
            if self._is_busy or not self._waiting_steps:
                self._is_advancing = False
                return None
            self._is_busy = True
            return self._waiting_steps.popleft()


@final
class LiveSession:
    """One session. It handles requests in sequence and returns a future for those that must wait. Thread-safe.

    Args:
        name: Id of the session.
        model: Reference of its model.
        service: Looks up references.
        quota: Quota of its stream, which counts the session.
        on_end: Called once when the session ends.
    """

    def __init__(
        self, name: str, model: str, service: PredictionService, quota: SessionQuota, on_end: Callable[[], None]
    ) -> None:
        self._name, self._model = name, model
        self._service = service
        self._quota = quota
        self._on_end = on_end
        self._lock = threading.Lock()
        self._sequencer = RequestSequencer()
        self._is_over = False
        self._first_instance: Instance | None = None
        """The instance that opens the session, until its forecast."""
        self._subscription: Subscription | None = None
        self._size = 0

    def open(self, message: pb.Instance) -> SessionStepResult:
        """Start the subscription with an instance."""
        request = LazyRequest(partial(self._decode, message), len(message.bars.symbols), message.ByteSize())
        return self._sequencer.run(lambda: SessionRequest(self._model, request, self._finish_open))

    def push(self, request: pb.PushBars) -> SessionStepResult:
        """Push bars."""
        return self._sequencer.run(lambda: self._apply_push(instances.decode_push(request), request.ByteSize()))

    def close(self) -> SessionStepResult:
        """Close after the earlier requests."""
        return self._sequencer.run(self._close_open)

    def end(self) -> None:
        """End immediately, because the stream has ended or opening failed."""
        with self._lock:
            if self._is_over:
                return
            self._is_over, self._subscription, size = True, None, self._size
            self._size = 0
        self._quota.add(sessions=-1, size=-size)
        self._on_end()

    def _decode(self, message: pb.Instance) -> Sequence[InstanceOrError]:
        """Decode the instance that opens the session, on the model's thread."""
        instance = instances.decode_or_error(message)
        if isinstance(instance, Instance):
            try:
                require_panel(instance)
            except QuantraError as error:
                return [error]
            self._first_instance = instance
        return [instance]

    def _finish_open(self, outcome: Outcome) -> SessionStepResult:
        """Keep the session if it got a forecast and fits the quota; else end it."""
        instance, self._first_instance = self._first_instance, None
        try:
            if instance is not None and isinstance(outcome, Forecast):
                if (error := make_session_error(outcome, require_panel(instance))) is not None:
                    raise error
                self._replace_subscription(Subscription.of(instance, self._find_model().bars_needed))
        except QuantraError as error:
            outcome = error
        finally:
            if self._subscription is None:
                self.end()
            self._sequencer.advance()
        return outcome

    def _apply_push(self, push: Push, size: int) -> SessionStepResult:
        model = self._find_model()
        accepted_push = self._require_subscription().pushed(push, model.bars_needed)
        after = accepted_push.after
        if not accepted_push.needs_model:
            self._replace_subscription(after)
            return pb.Ack(waiting_for=after.waits_for)
        request: PredictionRequest = LazyRequest(lambda: [after.instance()], len(after.symbols), size)
        return SessionRequest(
            self._model, request, lambda outcome: self._finish_push(push, size, accepted_push, model, outcome)
        )

    def _finish_push(
        self, push: Push, size: int, accepted_push: AcceptedPush, model: ModelInfo, outcome: Outcome
    ) -> SessionStepResult:
        """Return the response to a push; keep the push unless this is an error."""
        needs_prediction = False
        try:
            if self._has_changed(model, outcome):
                retried = self._apply_push(push, size)
                needs_prediction = isinstance(retried, SessionRequest)
                return retried
            response = accepted_push.answer(outcome)
            if not isinstance(response, QuantraError):
                self._replace_subscription(accepted_push.after)
            return pb.Ack(waiting_for=accepted_push.after.waits_for) if response is None else response
        except QuantraError as error:
            return error.without_frames()
        finally:
            if not needs_prediction:
                self._sequencer.advance()

    def _has_changed(self, model: ModelInfo, outcome: Outcome) -> bool:
        """Whether the model changed between counting the bars and the forecast."""
        if isinstance(outcome, Forecast) and (outcome.version, outcome.weights_hash) == _identify(model)[:2]:
            return False
        return _identify(self._find_model()) != _identify(model)

    def _close_open(self) -> SessionStepResult:
        self._require_subscription()
        self.end()
        return pb.Ack()

    def _replace_subscription(self, subscription: Subscription) -> None:
        """Replace the subscription. Raises QueueFullError at a limit, UnknownSessionError after the end."""
        size = subscription.size
        with self._lock:
            if self._is_over:
                raise _make_unknown_session_error(self._name)
            self._quota.add(size=size - self._size)
            self._subscription, self._size = subscription, size

    def _require_subscription(self) -> Subscription:
        subscription = self._subscription
        if subscription is None:
            raise _make_unknown_session_error(self._name)
        return subscription

    def _find_model(self) -> ModelInfo:
        return self._service.model(self._model)


def _identify(model: ModelInfo) -> tuple[int, str, int]:
    """Return the version, the weights and the number of bars that it needs."""
    return model.version, model.weights_hash, model.bars_needed


def _make_unknown_session_error(name: str) -> UnknownSessionError:
    """Return the error for a session that is not open."""
    return UnknownSessionError(
        f"session {name[:_MAX_SHOWN_ID]!r} is not open on this stream; open it with its history first",
        metadata={"session_id": name[:_MAX_SHOWN_ID]},
    )


@final
class LiveSessions:
    """The sessions of one stream; they end with it.

    `open`, `push` and `close` are called one at a time, in request order, on any thread. A QuantraError that they raise
    is the response. Work longer than some hundred microseconds belongs in `SessionRequest.request`. A future
    that they return is cancelled with its request.
    """

    def __init__(self, service: PredictionService, quota: SessionQuota) -> None:
        self._service = service
        self._quota = quota
        self._lock = threading.Lock()
        self._sessions: dict[str, LiveSession] = {}

    def open(self, request: pb.OpenSession) -> SessionStepResult:
        """Open a session.

        Raises:
            MalformedRequestError: It has no id.
            DuplicateIdError: The id is in use.
            QueueFullError: Too many sessions are open.
        """
        name, model = request.session_id, check_reference(request.model)
        if not name:
            raise MalformedRequestError("session_id is empty; set a unique id", metadata={"field": "session_id"})
        self._service.model(model)
        with self._lock:
            if name in self._sessions:
                raise DuplicateIdError(
                    f"session {name[:_MAX_SHOWN_ID]!r} is already open; close it first, or choose another id",
                    metadata={"session_id": name[:_MAX_SHOWN_ID]},
                )
            self._quota.add(sessions=1)
            session = LiveSession(name, model, self._service, self._quota, lambda: self._forget(name))
            self._sessions[name] = session
        return session.open(request.instance)

    def push(self, request: pb.PushBars) -> SessionStepResult:
        """Push bars; raises UnknownSessionError if the session is not open."""
        return self._find_session(request.session_id).push(request)

    def close(self, request: pb.CloseSession) -> SessionStepResult:
        """Close a session; raises as `push`."""
        return self._find_session(request.session_id).close()

    def end(self) -> None:
        """End all sessions with the stream; called once, last."""
        with self._lock:
            sessions = [*self._sessions.values()]
        for session in sessions:
            session.end()

    def _find_session(self, name: str) -> LiveSession:
        with self._lock:
            session = self._sessions.get(name)
        if session is None:
            raise _make_unknown_session_error(name)
        return session

    def _forget(self, name: str) -> None:
        with self._lock:
            self._sessions.pop(name, None)
