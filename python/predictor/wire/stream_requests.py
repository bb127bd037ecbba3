"""The requests of PredictStream: who asks, until when, and where what is asked lies in the bytes."""

from dataclasses import dataclass
from typing import Final, final

from google.protobuf.message import DecodeError

from predictor._pb import prediction_pb2 as pb
from predictor.errors import MalformedRequestError
from predictor.wire.counting import no_message, parsed_if_plain, top_fields

_MOST_FIELDS: Final = 64
"""Three are ours; a newer client may send a few more."""
_ACTIONS: Final = {
    field.number: field.name for field in pb.PredictStreamRequest.DESCRIPTOR.oneofs_by_name["action"].fields
}


@final
@dataclass(frozen=True, slots=True)
class StreamRequest:
    """One request; what it asks is not read yet."""

    request_id: str
    timeout_s: float
    """0 = as long as the call lasts."""
    actions: tuple[tuple[str, slice], ...]
    """What it asks, such as `predict`, and where that lies; one in a request that is right."""
    plain: pb.StreamPredict | None = None
    """All that it asks, if it is a small request for a prediction."""

    def action(self) -> tuple[str, slice]:
        """The one action.

        Raises:
            MalformedRequestError: there is none, or several.
        """
        if len(self.actions) != 1:
            raise MalformedRequestError(
                f"a request has one action ({', '.join(_ACTIONS.values())}), this one has {len(self.actions)}",
                metadata={"field": "action", "have": str(len(self.actions))},
            )
        return self.actions[0]


def instance_of(body: bytes) -> tuple[pb.Instance]:
    """The instance of a small request for a prediction, once more."""
    return (pb.PredictStreamRequest.FromString(body).predict.instance,)


def read_request(body: bytes) -> StreamRequest:
    """Read all of a request but its action, unless it is small.

    Raises:
        MalformedRequestError: the bytes are no request, so that nobody can be told by id.
    """
    plain = parsed_if_plain(body, pb.PredictStreamRequest)
    if plain is not None and plain.predict.HasField("instance"):
        return StreamRequest(plain.request_id, plain.timeout_s, (), plain.predict)
    actions, pieces = list[tuple[str, slice]](), list[bytes]()
    for field in top_fields(body, pb.PredictStreamRequest, _MOST_FIELDS):
        if field.number in _ACTIONS and field.content is not None:
            actions.append((_ACTIONS[field.number], field.content))
        else:
            pieces.append(body[field.whole])
    try:
        head = pb.PredictStreamRequest.FromString(b"".join(pieces))
    except DecodeError:
        raise no_message(pb.PredictStreamRequest, len(body)) from None
    return StreamRequest(head.request_id, head.timeout_s, tuple(actions))
