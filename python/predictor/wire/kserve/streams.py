"""The messages of ModelStreamInfer around those of ModelInfer."""

from typing import Final

from predictor._pb import inference_pb2 as pb
from predictor.errors import QuantraError, answer_of
from predictor.wire.errors import MAX_INSTANCE_MESSAGE, shortened
from predictor.wire.limits import MAX_TEXT
from predictor.wire.tags import BYTES, LONG, FieldReader, TooManyPartsError

_ID: Final = pb.ModelInferRequest.ID_FIELD_NUMBER
_AROUND: Final = bytes([pb.ModelStreamInferResponse.INFER_RESPONSE_FIELD_NUMBER << 3 | BYTES])
"""The tag of the answer within the response."""
_LOOKED_AT: Final = 64
"""Fields within which a request says its id; encoders write it among the first."""


def request_id_of(request: bytes) -> str:
    """The id of a ModelInferRequest; empty where it has none, or is no request."""
    try:
        for _, number, form, at, end in FieldReader(request, _LOOKED_AT).between(0, len(request)):
            if number == _ID and form == BYTES:
                return request[at:end][: 4 * MAX_TEXT].decode("utf-8", "replace")[:MAX_TEXT]
            if number > _ID:
                return ""
    except (IndexError, TooManyPartsError):
        return ""
    return ""


def encode_response(answer: bytes) -> bytes:
    """The ModelStreamInferResponse around the bytes of a ModelInferResponse."""
    length, size = bytearray(), len(answer)
    while size >= LONG:
        length.append(size & (LONG - 1) | LONG)
        size >>= 7
    length.append(size)
    return b"".join((_AROUND, length, answer))


def encode_error(request_id: str, error: QuantraError) -> bytes:
    """The ModelStreamInferResponse that says why a request has no answer; its parameters are for programs."""
    answer = answer_of(error)
    told = {"status": answer.status.value, "reason": answer.reason}
    return pb.ModelStreamInferResponse(
        error_message=shortened(error.message, MAX_INSTANCE_MESSAGE),
        infer_response=pb.ModelInferResponse(
            id=request_id, parameters={name: pb.InferParameter(string_param=text) for name, text in told.items()}
        ),
    ).SerializeToString()
