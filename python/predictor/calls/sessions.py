"""The interface between PredictStream and the sessions of a stream."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, TypeVar, final

from predictor._pb import prediction_pb2 as pb
from predictor.forecast import Outcome
from predictor.service import PredictionRequest
from predictor.wire.limits import MAX_PARTS, check_text
from predictor.wire.request_counts import count_parts, parse

RequestT = TypeVar("RequestT", pb.OpenSession, pb.PushBars, pb.CloseSession)


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


class Sessions(Protocol):
    """The sessions of one stream; they end with it.

    `open`, `push` and `close` are called one at a time, in request order, on any thread. A QuantraError that they raise
    is the response. Work longer than some hundred microseconds belongs in `SessionRequest.request`. A future
    that they return is cancelled with its request.
    """

    def open(self, request: pb.OpenSession) -> SessionReply:
        """Open a session; raises DuplicateIdError if the id is in use."""
        ...

    def push(self, request: pb.PushBars) -> SessionReply:
        """Push bars; raises UnknownSessionError if the session is not open."""
        ...

    def close(self, request: pb.CloseSession) -> SessionReply:
        """Close a session; raises as `push`."""
        ...

    def end(self) -> None:
        """End all sessions with the stream; called once, last."""
        ...


@final
@dataclass(frozen=True, slots=True, eq=False)
class SessionStep:
    """A request to the sessions of a stream."""

    sessions: Sessions
    action: str
    """`open`, `push` or `close`."""
    body: bytes
    within: slice
    """Position of the action's message in the body."""
    set_session_id: Callable[[str], None]
    """Receives the session's id once it is decoded."""

    def take(self, most_parts: int = MAX_PARTS) -> SessionReply:
        """Pass the request to the sessions.

        Raises:
            QuantraError: The response is this error.
            TooManyPartsError: The request has more than `most_parts`, if that is less than the protocol allows.
        """
        match self.action:
            case "open":
                return self.sessions.open(self._decode(pb.OpenSession, most_parts))
            case "push":
                return self.sessions.push(self._decode(pb.PushBars, most_parts))
            case _:
                return self.sessions.close(self._decode(pb.CloseSession, most_parts))

    def _decode(self, kind: type[RequestT], most_parts: int) -> RequestT:
        count_parts(self.body, kind, most_parts, within=self.within)
        request = parse(self.body[self.within], kind)
        check_text("session_id", request.session_id)
        self.set_session_id(request.session_id)
        return request
