"""The sessions of a stream: subscriptions that receive pushed bars."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, final

from predictor._pb import prediction_pb2 as pb
from predictor.calls.futures import to_quantra_error
from predictor.calls.requests import check_reference
from predictor.catalog import ModelInfo
from predictor.errors import DuplicateIdError, MalformedRequestError, QuantraError, QueueFullError, UnknownSessionError
from predictor.forecast import Forecast, Outcome
from predictor.instance import Instance, ReadInstance
from predictor.limits import ServiceLimits
from predictor.service import LightFuture, PredictionRequest, PredictionService
from predictor.subscription import AcceptedPush, Push, Subscription, find_session_error, panel_of
from predictor.wire import instances, pushes

_SHOWN: Final = 80
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
    """One instance, decoded on the model's thread."""
    respond: "Callable[[Outcome], SessionReply]"
    """Maps the outcome to the response; called once, on any thread, also after cancellation or any other error."""


SessionReply = SessionRequest | pb.Ack | Outcome | Future["SessionReply"]
"""Reply of a session to a request: a prediction to run, the response, or a future of either."""


@final
class SessionRoom:
    """Counts sessions and bytes against limits, and against those of an outer room. Thread-safe.

    Args:
        most: Largest number of sessions.
        most_bytes: Largest number of bytes in total.
        where: Owner of the limits, for messages.
        within: The outer room.
    """

    def __init__(self, most: int, most_bytes: int, where: str, within: "SessionRoom | None" = None) -> None:
        self._most, self._most_bytes, self._where = most, most_bytes, where
        self._within = within
        self._lock = threading.Lock()
        self._sessions = self._bytes = 0

    @classmethod
    def of_process(cls, limits: ServiceLimits) -> "SessionRoom":
        """Create the room of the whole process."""
        return cls(limits.sessions, limits.session_bytes, "this server")

    def of_stream(self, limits: ServiceLimits) -> "SessionRoom":
        """Create a room for one stream within this one."""
        return SessionRoom(limits.sessions_per_stream, limits.session_bytes_per_stream, "this stream", self)

    @property
    def held(self) -> tuple[int, int]:
        """Number of open sessions and their bytes."""
        with self._lock:
            return self._sessions, self._bytes

    def add(self, *, sessions: int = 0, size: int = 0) -> None:
        """Add sessions and bytes, or free them if negative, here and in the outer room.

        Raises:
            QueueFullError: A limit is reached; nothing has changed.
        """
        with self._lock:
            self._check(sessions, size)
            if self._within is not None:
                self._within.add(sessions=sessions, size=size)
            self._sessions += sessions
            self._bytes += size

    def _check(self, sessions: int, size: int) -> None:
        if sessions > 0 and self._sessions + sessions > self._most:
            what = f"sessions are open on {self._where}"
            raise QueueFullError.of(what, self._sessions, self._most, retry_after_s=_RETRY_AFTER_S)
        if size > 0 and self._bytes + size > self._most_bytes:
            what = f"bytes of sessions are held by {self._where}, {size} more are wanted"
            raise QueueFullError.of(what, self._bytes, self._most_bytes, retry_after_s=_RETRY_AFTER_S)


SessionStep = Callable[[], SessionReply]
"""Handles one request of a session; raises QuantraError."""


@final
class RequestSequencer:
    """Runs the requests of one session in sequence. Thread-safe.

    A request is finished when its step returns. If the step returns a SessionRequest, call `advance` after the
    prediction instead.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[SessionStep, Future[SessionReply]]] = deque()
        self._is_busy = self._is_advancing = False

    def run(self, step: SessionStep) -> SessionReply:
        """Run the step, or return a future if others are first; raises what the step raises."""
        with self._lock:
            if self._is_busy or self._is_advancing or self._waiting:
                future: Future[SessionReply] = LightFuture()
                self._waiting.append((step, future))
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
            self._run_queued(*queued)

    def _run(self, step: SessionStep) -> SessionReply:
        needs_prediction = False
        try:
            reply = step()
            needs_prediction = isinstance(reply, SessionRequest)
            return reply
        finally:
            if not needs_prediction:
                self.advance()

    def _take_next(self) -> "tuple[SessionStep, Future[SessionReply]] | None":
        with self._lock:
            if self._is_busy or not self._waiting:
                self._is_advancing = False
                return None
            self._is_busy = True
            return self._waiting.popleft()

    def _run_queued(self, step: SessionStep, future: "Future[SessionReply]") -> None:
        if not future.set_running_or_notify_cancel():
            self.advance()
            return
        try:
            reply = self._run(step)
        except Exception as error:  # noqa: BLE001 - a callback's edge: the error is the caller's answer
            future.set_exception(to_quantra_error(_CALL, error))
        else:
            future.set_result(reply)


@final
class OpeningInstance:
    """The instance that opens a session, decoded on the model's thread."""

    def __init__(self, message: pb.Instance) -> None:
        self._message = message
        self.rows = len(message.bars.symbols)
        self.size = message.ByteSize()
        self.read: Instance | None = None
        """The decoded instance, if a session can start with it."""

    def instances(self) -> Sequence[ReadInstance]:
        """Decode the instance, or give its error."""
        read = instances.decode_or_error(self._message)
        self._message = pb.Instance()
        if isinstance(read, QuantraError):
            return [read]
        try:
            panel_of(read)
        except QuantraError as error:
            return [error]
        self.read = read
        return [read]


@final
class PushedInstance:
    """A session's bars after a push, assembled on the model's thread."""

    def __init__(self, after: Subscription, size: int) -> None:
        self._after = after
        self.rows = len(after.symbols)
        self.size = size

    def instances(self) -> Sequence[ReadInstance]:
        """Assemble the instance."""
        return [self._after.instance()]


@final
class LiveSession:
    """One session. It handles requests in sequence and returns a future for those that must wait. Thread-safe.

    Args:
        name: Id of the session.
        model: Reference of its model.
        models: Looks up references.
        room: Room of its stream; the session has entered it.
        left: Called once when the session ends.
    """

    def __init__(
        self, name: str, model: str, models: PredictionService, room: SessionRoom, left: Callable[[], None]
    ) -> None:
        self._name, self._model = name, model
        self._models = models
        self._room = room
        self._left = left
        self._lock = threading.Lock()
        self._sequencer = RequestSequencer()
        self._is_over = False
        self._subscription: Subscription | None = None
        self._size = 0

    def open(self, message: pb.Instance) -> SessionReply:
        """Start the subscription with an instance."""
        return self._sequencer.run(lambda: self._start(OpeningInstance(message)))

    def push(self, request: pb.PushBars) -> SessionReply:
        """Push bars."""
        return self._sequencer.run(lambda: self._apply_push(pushes.decode(request), request.ByteSize()))

    def close(self) -> SessionReply:
        """Close after the earlier requests."""
        return self._sequencer.run(self._close_open)

    def end(self) -> None:
        """End immediately, because the stream has ended or opening failed."""
        with self._lock:
            if self._is_over:
                return
            self._is_over, self._subscription, size = True, None, self._size
            self._size = 0
        self._room.add(sessions=-1, size=-size)
        self._left()

    def _start(self, opening: OpeningInstance) -> SessionReply:
        return SessionRequest(self._model, opening, lambda outcome: self._finish_start(opening, outcome))

    def _finish_start(self, opening: OpeningInstance, outcome: Outcome) -> SessionReply:
        """Keep the session if it got a forecast and has room; else end it."""
        try:
            if opening.read is not None and isinstance(outcome, Forecast):
                if (error := find_session_error(outcome, panel_of(opening.read))) is not None:
                    raise error
                self._keep(Subscription.of(opening.read, self._find_model().bars_needed))
        except QuantraError as error:
            outcome = error
        finally:
            if self._subscription is None:
                self.end()
            self._sequencer.advance()
        return outcome

    def _apply_push(self, push: Push, size: int) -> SessionReply:
        model = self._find_model()
        pushed = self._require_subscription().pushed(push, model.bars_needed)
        if not pushed.needs_model:
            self._keep(pushed.after)
            return pb.Ack(waiting_for=pushed.after.waits_for)
        request = PushedInstance(pushed.after, size)
        return SessionRequest(
            self._model, request, lambda outcome: self._finish_push(push, size, pushed, model, outcome)
        )

    def _finish_push(
        self, push: Push, size: int, pushed: AcceptedPush, model: ModelInfo, outcome: Outcome
    ) -> SessionReply:
        """Return the response to a push; keep the push unless this is an error."""
        needs_prediction = False
        try:
            if self._has_changed(model, outcome):
                again = self._apply_push(push, size)
                needs_prediction = isinstance(again, SessionRequest)
                return again
            answer = pushed.answer(outcome)
            if not isinstance(answer, QuantraError):
                self._keep(pushed.after)
            return pb.Ack(waiting_for=pushed.after.waits_for) if answer is None else answer
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

    def _close_open(self) -> SessionReply:
        self._require_subscription()
        self.end()
        return pb.Ack()

    def _keep(self, subscription: Subscription) -> None:
        """Replace the subscription. Raises QueueFullError at a limit, UnknownSessionError after the end."""
        size = subscription.size
        with self._lock:
            if self._is_over:
                raise _unknown_session(self._name)
            self._room.add(size=size - self._size)
            self._subscription, self._size = subscription, size

    def _require_subscription(self) -> Subscription:
        subscription = self._subscription
        if subscription is None:
            raise _unknown_session(self._name)
        return subscription

    def _find_model(self) -> ModelInfo:
        return self._models.model(self._model)


def _identify(model: ModelInfo) -> tuple[int, str, int]:
    """Return the version, the weights and the number of bars that it needs."""
    return model.version, model.weights_hash, model.bars_needed


def _unknown_session(name: str) -> UnknownSessionError:
    """Return the error for a session that is not open."""
    return UnknownSessionError(
        f"session {name[:_SHOWN]!r} is not open on this stream; open it with its history first",
        metadata={"session_id": name[:_SHOWN]},
    )


@final
class LiveSessions:
    """The sessions of one stream; they end with it.

    `open`, `push` and `close` are called one at a time, in request order, on any thread. A QuantraError that they raise
    is the response. Work longer than some hundred microseconds belongs in `SessionRequest.request`. A future
    that they return is cancelled with its request.
    """

    def __init__(self, models: PredictionService, room: SessionRoom) -> None:
        self._models = models
        self._room = room
        self._lock = threading.Lock()
        self._sessions: dict[str, LiveSession] = {}

    def open(self, request: pb.OpenSession) -> SessionReply:
        """Open a session.

        Raises:
            MalformedRequestError: It has no id.
            DuplicateIdError: The id is in use.
            QueueFullError: Too many sessions are open.
        """
        name, model = request.session_id, check_reference(request.model)
        if not name:
            raise MalformedRequestError("session_id is empty; set a unique id", metadata={"field": "session_id"})
        self._models.model(model)
        with self._lock:
            if name in self._sessions:
                raise DuplicateIdError(
                    f"session {name[:_SHOWN]!r} is already open; close it first, or choose another id",
                    metadata={"session_id": name[:_SHOWN]},
                )
            self._room.add(sessions=1)
            session = LiveSession(name, model, self._models, self._room, lambda: self._leave(name))
            self._sessions[name] = session
        return session.open(request.instance)

    def push(self, request: pb.PushBars) -> SessionReply:
        """Push bars; raises UnknownSessionError if the session is not open."""
        return self._find_session(request.session_id).push(request)

    def close(self, request: pb.CloseSession) -> SessionReply:
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
            raise _unknown_session(name)
        return session

    def _leave(self, name: str) -> None:
        with self._lock:
            self._sessions.pop(name, None)
