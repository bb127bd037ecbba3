"""Errors on the wire: as an instance's `Error`, and as a call's google.rpc.Status.

The two carry the same facts. A call's error travels in HTTP/2 trailers, which peers refuse beyond 8 KiB, so its
texts are kept short; the server's log and, for names of features, GetModel hold what does not fit.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status as StatusMessage

from predictor._pb import prediction_pb2 as pb
from predictor.errors import QuantraError, QueueFullError, RequestTooLargeError, answer_of, from_reason

DOMAIN: Final = "quantra"
"""The domain of the reasons, in google.rpc.ErrorInfo."""
DETAILS_KEY: Final = "grpc-status-details-bin"
"""The trailer that carries google.rpc.Status."""
PUSHBACK_KEY: Final = "grpc-retry-pushback-ms"
"""The trailer that clients with a retry policy obey."""

MAX_CALL_MESSAGE: Final = 1024  # bytes; three times that in the trailers if every character must be escaped
MAX_INSTANCE_MESSAGE: Final = 8192  # bytes; a body is no trailer
_MAX_VALUE: Final = 128  # bytes of one value of a call's metadata
_MAX_VALUES: Final = 8


def encode(error: QuantraError) -> pb.Error:
    """The message of an error that one instance of several has."""
    answer = answer_of(error)
    return pb.Error(
        code=Code.Value(answer.status.value),
        message=shortened(error.message, MAX_INSTANCE_MESSAGE),
        reason=answer.reason,
        metadata={key: shortened(value, MAX_INSTANCE_MESSAGE) for key, value in error.metadata.items()},
    )


def decode(message: pb.Error) -> QuantraError:
    """The error that one instance has."""
    return from_reason(message.reason, message.message, dict(message.metadata))


def encode_each(refusals: Mapping[str, QuantraError]) -> list[pb.SymbolError]:
    """The messages of the errors that symbols have."""
    return [pb.SymbolError(symbol=symbol, error=encode(error)) for symbol, error in refusals.items()]


def decode_each(messages: Iterable[pb.SymbolError]) -> dict[str, QuantraError]:
    """The error of each symbol."""
    return {one.symbol: decode(one.error) for one in messages}


def encode_details(error: QuantraError) -> bytes:
    """The google.rpc.Status of a call's error: code, message, ErrorInfo with reason and metadata, perhaps RetryInfo."""
    answer = answer_of(error)
    facts = {key: shortened(value, _MAX_VALUE) for key, value in islice(error.metadata.items(), _MAX_VALUES)}
    info = ErrorInfo(reason=answer.reason, domain=DOMAIN, metadata=facts)
    status = StatusMessage(
        code=Code.Value(answer.status.value),
        message=shortened(error.message, MAX_CALL_MESSAGE),
        details=[_packed(detail) for detail in (info, *_retry_info(error))],
    )
    return status.SerializeToString()


def _retry_info(error: QuantraError) -> tuple[RetryInfo, ...]:
    if not isinstance(error, QueueFullError):
        return ()
    after = Duration()
    after.FromMilliseconds(round(1000 * error.retry_after_s))
    return (RetryInfo(retry_delay=after),)


def _packed(detail: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(detail)
    return packed


def pushback_ms(error: QuantraError) -> int | None:
    """When a client may repeat the call: so many milliseconds later; -1 = never; None = as its own policy says.

    The two errors of RESOURCE_EXHAUSTED differ in it: more room comes with time, a smaller request does not.
    """
    if isinstance(error, QueueFullError):
        return round(1000 * error.retry_after_s)
    return -1 if isinstance(error, RequestTooLargeError) else None


def decode_details(data: bytes) -> QuantraError | None:
    """The error of a call; None if the details are not Quantra's."""
    info = ErrorInfo()
    try:
        status = StatusMessage.FromString(data)
        known = any(detail.Unpack(info) for detail in status.details)
    except DecodeError:
        return None
    if not known or info.domain != DOMAIN:
        return None
    return from_reason(info.reason, status.message, dict(info.metadata))


def shortened(text: str, most: int) -> str:
    """The text, cut to about `most` bytes of UTF-8 with a note of its length."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return data.decode()
    return f"{data[:most].decode('utf-8', 'ignore')}... ({len(text)} characters)"
