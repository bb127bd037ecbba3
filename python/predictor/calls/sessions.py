"""What PredictStream needs from the sessions that live on a stream."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar, final

from predictor._pb import prediction_pb2 as pb
from predictor.calls.requests import parsed
from predictor.forecast import Outcome
from predictor.instance import Cancellation
from predictor.service import PredictionRequest
from predictor.wire.limits import MAX_PARTS, check_text
from predictor.wire.request_counts import count_parts

RequestT = TypeVar("RequestT", pb.OpenSession, pb.PushBars, pb.CloseSession)


@final
@dataclass(frozen=True, slots=True, eq=False)
class SessionRequest:
    """What a session asks a model; its answer is that of the request."""

    model: str
    """Its reference."""
    asked: PredictionRequest
    """One instance. It is read when its turn comes, on the model's thread."""
    ended: "Callable[[Outcome], Said]"
    """Told once how it ended, on any thread, and says what the request is answered with: also where it was cancelled or
    came too late, or where the model is unknown or the queue full."""


Said = SessionRequest | pb.Ack | Outcome | Future["Said"]
"""What a session says to a request: a model has to be asked, or the answer; or later, when what came before is done."""


class Sessions(Protocol):
    """The sessions of one stream, which end with it.

    `open`, `push` and `close` are called one at a time, in the order of the stream's requests, on any thread; each
    raises a QuantraError that is the answer. Requests were counted before they were parsed. What takes longer than some
    hundred microseconds belongs into `SessionRequest.asked`. A future that they give is cancelled with its request.
    """

    def open(self, request: pb.OpenSession) -> Said:
        """Begin a session; raises DuplicateIdError if there is one of this id."""
        ...

    def push(self, request: pb.PushBars) -> Said:
        """Take bars; raises UnknownSessionError if there is no such session."""
        ...

    def close(self, request: pb.CloseSession) -> Said:
        """End a session; raises as `push`."""
        ...

    def end(self) -> None:
        """The stream has ended; called once, after the last of the others."""
        ...


@final
@dataclass(frozen=True, slots=True, eq=False)
class SessionStep:
    """A request to the sessions of a stream, which they take when its turn comes."""

    sessions: Sessions
    action: str
    """`open`, `push` or `close`."""
    body: bytes
    within: slice
    """Where the action lies in the bytes."""
    named: Callable[[str], None]
    """Told the session's id, as soon as it is known."""
    rows: int = 0

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return len(self.body)

    def step(self, now: datetime, deadline: Cancellation) -> Said:  # noqa: ARG002 - once begun, it is taken
        """As `take`."""
        return self.take()

    def take(self, most_parts: int = MAX_PARTS) -> Said:
        """What the sessions say to it.

        Raises:
            QuantraError: the answer.
            TooManyPartsError: it has more than `most_parts`, where that is less than a request may have.
        """
        match self.action:
            case "open":
                return self.sessions.open(self._read(pb.OpenSession, most_parts))
            case "push":
                return self.sessions.push(self._read(pb.PushBars, most_parts))
            case _:
                return self.sessions.close(self._read(pb.CloseSession, most_parts))

    def _read(self, kind: type[RequestT], most_parts: int) -> RequestT:
        count_parts(self.body, kind, most_parts, within=self.within)
        request = parsed(self.body[self.within], kind)
        check_text("session_id", request.session_id)
        self.named(request.session_id)
        return request
