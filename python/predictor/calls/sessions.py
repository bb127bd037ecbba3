"""The interface between PredictStream and the sessions of a stream."""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

from predictor._pb import prediction_pb2 as pb
from predictor.forecast import Outcome
from predictor.service import PredictionRequest

if TYPE_CHECKING:
    from collections.abc import Callable


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
