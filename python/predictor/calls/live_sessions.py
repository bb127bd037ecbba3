"""The sessions of a stream: subscriptions that bars are pushed to, each taking one request after the other."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, final

from predictor._pb import prediction_pb2 as pb
from predictor.calls.requests import checked_reference
from predictor.calls.sequencing import RequestSequencer
from predictor.calls.session_room import SessionRoom
from predictor.calls.sessions import Said, SessionRequest
from predictor.catalog import ModelInfo
from predictor.errors import DuplicateIdError, MalformedRequestError, QuantraError, UnknownSessionError
from predictor.forecast import Forecast, Outcome
from predictor.instance import Instance, ReadInstance
from predictor.subscription import AcceptedPush, Push, Subscription, panel_of
from predictor.wire import instances, pushes

_SHOWN: Final = 80
_CALL: Final = "PredictStream"


class SessionModels(Protocol):
    """What sessions ask about models; see predictor.service.PredictionService."""

    def model(self, reference: str) -> ModelInfo:
        """What a reference means now; raises ModelNotFoundError or VersionNotFoundError."""
        ...


@final
@dataclass(frozen=True, slots=True)
class SessionModel:
    """The weights that a reference means, and how many bars they read."""

    version: int
    weights_hash: str
    bars_needed: int

    @classmethod
    def of(cls, info: ModelInfo) -> "SessionModel":
        """That of a model."""
        return cls(info.version, info.weights_hash, info.bars_needed)

    def made(self, outcome: Outcome) -> bool:
        """Whether a forecast is from these weights."""
        return isinstance(outcome, Forecast) and (outcome.version, outcome.weights_hash) == (
            self.version,
            self.weights_hash,
        )


@final
class OpeningInstance:
    """The instance of a session that is being opened; it is read when its turn comes."""

    def __init__(self, message: pb.Instance) -> None:
        self._message = message
        self.rows = len(message.bars.symbols)
        self.size = message.ByteSize()
        self.read: Instance | None = None
        """The instance, once it was read and is one that a session can begin with."""

    def instances(self) -> Sequence[ReadInstance]:
        """The instance, or what is wrong with it."""
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
    """The bars of a session with those that were pushed; they are put together when their turn comes."""

    def __init__(self, after: Subscription, size: int) -> None:
        self._after = after
        self.rows = len(after.symbols)
        self.size = size

    def instances(self) -> Sequence[ReadInstance]:
        """The instance."""
        return [self._after.instance()]


@final
class LiveSession:
    """One session, which takes one request after the other; who comes early gets a future. Thread-safe.

    Args:
        name: its id.
        model: the reference of the model that it asks.
        models: what references mean.
        room: of its stream; it has entered.
        left: called once when it is over.
    """

    def __init__(
        self, name: str, model: str, models: SessionModels, room: SessionRoom, left: Callable[[], None]
    ) -> None:
        self._name, self._model = name, model
        self._models = models
        self._room = room
        self._left = left
        self._lock = threading.Lock()
        self._turns = RequestSequencer(_CALL)
        self._is_over = False
        self._subscription: Subscription | None = None
        self._size = 0

    def open(self, message: pb.Instance) -> Said:
        """Subscribe with an instance."""
        return self._turns.take(lambda: self._opening(OpeningInstance(message)))

    def push(self, request: pb.PushBars) -> Said:
        """Take bars."""
        return self._turns.take(lambda: self._pushing(pushes.decode(request), request.ByteSize()))

    def close(self) -> Said:
        """End after what was asked before."""
        return self._turns.take(self._closing)

    def end(self) -> None:
        """End at once: nobody is there any more."""
        with self._lock:
            if self._is_over:
                return
            self._is_over, self._subscription, size = True, None, self._size
            self._size = 0
        self._room.leave(size)
        self._left()

    def _opening(self, asked: OpeningInstance) -> Said:
        return SessionRequest(self._model, asked, lambda outcome: self._opened(asked, outcome))

    def _opened(self, asked: OpeningInstance, outcome: Outcome) -> Said:
        """The forecast, if the session may stay; else it is over, and was never there."""
        try:
            if asked.read is not None and isinstance(outcome, Forecast):
                self._keep(Subscription.of(asked.read, self._answerer().bars_needed))
        except QuantraError as error:
            outcome = error
        finally:
            if self._subscription is None:
                self.end()
            self._turns.go_on()
        return outcome

    def _pushing(self, push: Push, size: int) -> Said:
        answerer = self._answerer()
        pushed = self._open_subscription().pushed(push, answerer.bars_needed)
        if not pushed.asks:
            self._keep(pushed.after)
            return pb.Ack(waiting_for=pushed.after.waits_for)
        asked = PushedInstance(pushed.after, size)
        return SessionRequest(self._model, asked, lambda outcome: self._answered(push, size, pushed, answerer, outcome))

    def _answered(self, push: Push, size: int, pushed: AcceptedPush, asked: SessionModel, outcome: Outcome) -> Said:
        """The answer to a push, which is taken unless that is an error."""
        is_asked = False
        try:
            if self._has_changed(asked, outcome):
                again = self._pushing(push, size)
                is_asked = isinstance(again, SessionRequest)
                return again
            answer = pushed.answer(outcome)
            if not isinstance(answer, QuantraError):
                self._keep(pushed.after)
            return pb.Ack(waiting_for=pushed.after.waits_for) if answer is None else answer
        except QuantraError as error:
            return error
        finally:
            if not is_asked:
                self._turns.go_on()

    def _has_changed(self, asked: SessionModel, outcome: Outcome) -> bool:
        """Whether another version answered than the one whose bars were counted."""
        return not asked.made(outcome) and self._answerer() != asked

    def _closing(self) -> Said:
        self._open_subscription()
        self.end()
        return pb.Ack()

    def _keep(self, subscription: Subscription) -> None:
        """Go on with this one. Raises QueueFullError if there is no room, UnknownSessionError if it is over."""
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

    def _answerer(self) -> SessionModel:
        return SessionModel.of(self._models.model(self._model))


def unknown(name: str) -> UnknownSessionError:
    """The error about a session that is not open."""
    return UnknownSessionError(
        f"session {name[:_SHOWN]!r} is not open on this stream; open it with its history first",
        metadata={"session_id": name[:_SHOWN]},
    )


@final
class LiveSessions:
    """The sessions of one stream; see `Sessions`.

    Args:
        models: what references mean.
        room: of the stream.
    """

    def __init__(self, models: SessionModels, room: SessionRoom) -> None:
        self._models = models
        self._room = room
        self._lock = threading.Lock()
        self._sessions: dict[str, LiveSession] = {}

    def open(self, request: pb.OpenSession) -> Said:
        """As `Sessions.open`; raises MalformedRequestError without an id, QueueFullError if too many are open."""
        name, model = request.session_id, checked_reference(request.model)
        if not name:
            raise MalformedRequestError("session_id is empty; name the session", metadata={"field": "session_id"})
        self._models.model(model)
        with self._lock:
            if name in self._sessions:
                raise DuplicateIdError(
                    f"session {name[:_SHOWN]!r} is open already; close it first, or give this one another id",
                    metadata={"session_id": name[:_SHOWN]},
                )
            self._room.enter()
            session = LiveSession(name, model, self._models, self._room, lambda: self._leave(name))
            self._sessions[name] = session
        return session.open(request.instance)

    def push(self, request: pb.PushBars) -> Said:
        """As `Sessions.push`."""
        return self._open_one(request.session_id).push(request)

    def close(self, request: pb.CloseSession) -> Said:
        """As `Sessions.close`."""
        return self._open_one(request.session_id).close()

    def end(self) -> None:
        """As `Sessions.end`."""
        with self._lock:
            sessions = [*self._sessions.values()]
        for session in sessions:
            session.end()

    def _open_one(self, name: str) -> LiveSession:
        with self._lock:
            session = self._sessions.get(name)
        if session is None:
            raise unknown(name)
        return session

    def _leave(self, name: str) -> None:
        with self._lock:
            self._sessions.pop(name, None)
