"""The sessions of a stream: subscriptions that receive pushed bars."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from predictor._pb import prediction_pb2 as pb
from predictor.calls.request_sequencer import RequestSequencer
from predictor.calls.requests import checked_reference
from predictor.calls.service import CallService
from predictor.calls.session_room import SessionRoom
from predictor.calls.sessions import SessionReply, SessionRequest
from predictor.catalog import ModelInfo
from predictor.errors import DuplicateIdError, MalformedRequestError, QuantraError, UnknownSessionError
from predictor.forecast import Forecast, Outcome
from predictor.instance import Instance, ReadInstance
from predictor.subscription import AcceptedPush, Push, Subscription, find_session_error, panel_of
from predictor.wire import instances, pushes

_SHOWN: Final = 80
_CALL: Final = "PredictStream"


@final
@dataclass(frozen=True, slots=True)
class SessionModel:
    """Version and weights of a model, and how many bars it needs."""

    version: int
    weights_hash: str
    bars_needed: int

    @classmethod
    def of(cls, info: ModelInfo) -> "SessionModel":
        """From a model's info."""
        return cls(info.version, info.weights_hash, info.bars_needed)

    def produced(self, outcome: Outcome) -> bool:
        """Whether these weights produced the forecast."""
        return isinstance(outcome, Forecast) and (outcome.version, outcome.weights_hash) == (
            self.version,
            self.weights_hash,
        )


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

    def __init__(self, name: str, model: str, models: CallService, room: SessionRoom, left: Callable[[], None]) -> None:
        self._name, self._model = name, model
        self._models = models
        self._room = room
        self._left = left
        self._lock = threading.Lock()
        self._sequencer = RequestSequencer(_CALL)
        self._is_over = False
        self._subscription: Subscription | None = None
        self._size = 0

    def open(self, message: pb.Instance) -> SessionReply:
        """Start the subscription with an instance."""
        return self._sequencer.run(lambda: self._opening(OpeningInstance(message)))

    def push(self, request: pb.PushBars) -> SessionReply:
        """Push bars."""
        return self._sequencer.run(lambda: self._pushing(pushes.decode(request), request.ByteSize()))

    def close(self) -> SessionReply:
        """Close after the earlier requests."""
        return self._sequencer.run(self._closing)

    def end(self) -> None:
        """End immediately, because the stream has ended or opening failed."""
        with self._lock:
            if self._is_over:
                return
            self._is_over, self._subscription, size = True, None, self._size
            self._size = 0
        self._room.leave(size)
        self._left()

    def _opening(self, opening: OpeningInstance) -> SessionReply:
        return SessionRequest(self._model, opening, lambda outcome: self._opened(opening, outcome))

    def _opened(self, opening: OpeningInstance, outcome: Outcome) -> SessionReply:
        """Keep the session if it got a forecast and has room; else end it."""
        try:
            if opening.read is not None and isinstance(outcome, Forecast):
                if (error := find_session_error(outcome, panel_of(opening.read))) is not None:
                    raise error
                self._keep(Subscription.of(opening.read, self._current_model().bars_needed))
        except QuantraError as error:
            outcome = error
        finally:
            if self._subscription is None:
                self.end()
            self._sequencer.advance()
        return outcome

    def _pushing(self, push: Push, size: int) -> SessionReply:
        model = self._current_model()
        pushed = self._open_subscription().pushed(push, model.bars_needed)
        if not pushed.needs_model:
            self._keep(pushed.after)
            return pb.Ack(waiting_for=pushed.after.waits_for)
        request = PushedInstance(pushed.after, size)
        return SessionRequest(self._model, request, lambda outcome: self._answered(push, size, pushed, model, outcome))

    def _answered(
        self, push: Push, size: int, pushed: AcceptedPush, model: SessionModel, outcome: Outcome
    ) -> SessionReply:
        """Return the response to a push; keep the push unless this is an error."""
        needs_prediction = False
        try:
            if self._has_changed(model, outcome):
                again = self._pushing(push, size)
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

    def _has_changed(self, model: SessionModel, outcome: Outcome) -> bool:
        """Whether the model changed between counting the bars and the forecast."""
        return not model.produced(outcome) and self._current_model() != model

    def _closing(self) -> SessionReply:
        self._open_subscription()
        self.end()
        return pb.Ack()

    def _keep(self, subscription: Subscription) -> None:
        """Replace the subscription. Raises QueueFullError at a limit, UnknownSessionError after the end."""
        size = subscription.size
        with self._lock:
            if self._is_over:
                raise unknown(self._name)
            self._room.grow(size - self._size)
            self._subscription, self._size = subscription, size

    def _open_subscription(self) -> Subscription:
        subscription = self._subscription
        if subscription is None:
            raise unknown(self._name)
        return subscription

    def _current_model(self) -> SessionModel:
        return SessionModel.of(self._models.model(self._model))


def unknown(name: str) -> UnknownSessionError:
    """Return the error for a session that is not open."""
    return UnknownSessionError(
        f"session {name[:_SHOWN]!r} is not open on this stream; open it with its history first",
        metadata={"session_id": name[:_SHOWN]},
    )


@final
class LiveSessions:
    """The sessions of one stream; see `Sessions`.

    Args:
        models: Looks up references.
        room: Room of the stream.
    """

    def __init__(self, models: CallService, room: SessionRoom) -> None:
        self._models = models
        self._room = room
        self._lock = threading.Lock()
        self._sessions: dict[str, LiveSession] = {}

    def open(self, request: pb.OpenSession) -> SessionReply:
        """See `Sessions.open`. Raises MalformedRequestError without an id, QueueFullError if too many are open."""
        name, model = request.session_id, checked_reference(request.model)
        if not name:
            raise MalformedRequestError("session_id is empty; set a unique id", metadata={"field": "session_id"})
        self._models.model(model)
        with self._lock:
            if name in self._sessions:
                raise DuplicateIdError(
                    f"session {name[:_SHOWN]!r} is already open; close it first, or choose another id",
                    metadata={"session_id": name[:_SHOWN]},
                )
            self._room.enter()
            session = LiveSession(name, model, self._models, self._room, lambda: self._leave(name))
            self._sessions[name] = session
        return session.open(request.instance)

    def push(self, request: pb.PushBars) -> SessionReply:
        """See `Sessions.push`."""
        return self._session(request.session_id).push(request)

    def close(self, request: pb.CloseSession) -> SessionReply:
        """See `Sessions.close`."""
        return self._session(request.session_id).close()

    def end(self) -> None:
        """See `Sessions.end`."""
        with self._lock:
            sessions = [*self._sessions.values()]
        for session in sessions:
            session.end()

    def _session(self, name: str) -> LiveSession:
        with self._lock:
            session = self._sessions.get(name)
        if session is None:
            raise unknown(name)
        return session

    def _leave(self, name: str) -> None:
        with self._lock:
            self._sessions.pop(name, None)
