"""Conversion of errors: to `Error` for an instance, to google.rpc.Status for a call.

Both carry the same facts. A call's error travels in HTTP/2 trailers, which many peers limit to 8 KiB, so its texts are
shortened. The server's log holds the full text, and GetModel holds the full list of features.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status as StatusMessage

from predictor._pb import prediction_pb2 as pb
from predictor.errors import QuantraError, QueueFullError, RequestTooLargeError, get_error_status, restore_error

DOMAIN: Final = "quantra"
"""Domain in google.rpc.ErrorInfo."""
DETAILS_KEY: Final = "grpc-status-details-bin"
"""Trailer that carries google.rpc.Status."""
PUSHBACK_KEY: Final = "grpc-retry-pushback-ms"
"""Trailer that clients with a retry policy obey."""
MAX_CALL_MESSAGE: Final = 1024  # bytes; up to three times as many in the trailers, because of escaping
MAX_INSTANCE_MESSAGE: Final = 8192  # bytes; sent in the body, so the limit of trailers does not apply
_MAX_VALUE: Final = 128  # bytes per value of a call's metadata
_MAX_VALUES: Final = 8


def encode(error: QuantraError) -> pb.Error:
    """Encode the error of an instance."""
    answer = get_error_status(error)
    return pb.Error(
        code=Code.Value(answer.status.value),
        message=shortened(error.message, MAX_INSTANCE_MESSAGE),
        reason=answer.reason,
        metadata={key: shortened(value, MAX_INSTANCE_MESSAGE) for key, value in error.metadata.items()},
    )


def decode(message: pb.Error) -> QuantraError:
    """Decode the error of an instance."""
    return restore_error(message.reason, message.message, dict(message.metadata))


def encode_each(refusals: Mapping[str, QuantraError]) -> list[pb.SymbolError]:
    """Encode the errors of symbols."""
    return [pb.SymbolError(symbol=symbol, error=encode(error)) for symbol, error in refusals.items()]


def decode_each(messages: Iterable[pb.SymbolError]) -> dict[str, QuantraError]:
    """Decode the errors of symbols."""
    return {message.symbol: decode(message.error) for message in messages}


def encode_details(error: QuantraError) -> bytes:
    """Encode a call's error as google.rpc.Status: code, message, ErrorInfo (reason, metadata), RetryInfo if any."""
    answer = get_error_status(error)
    metadata = {key: shortened(value, _MAX_VALUE) for key, value in islice(error.metadata.items(), _MAX_VALUES)}
    status = StatusMessage(code=Code.Value(answer.status.value), message=shortened(error.message, MAX_CALL_MESSAGE))
    status.details.add().Pack(ErrorInfo(reason=answer.reason, domain=DOMAIN, metadata=metadata))
    if isinstance(error, QueueFullError):
        delay = Duration()
        delay.FromMilliseconds(round(1000 * error.retry_after_s))
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    return status.SerializeToString()


def pushback_ms(error: QuantraError) -> int | None:
    """Return the retry delay in milliseconds; -1: do not retry; None: the client's own policy decides.

    It distinguishes the two errors with status RESOURCE_EXHAUSTED: a full queue drains, but a request that is too large
    stays too large.
    """
    if isinstance(error, QueueFullError):
        return round(1000 * error.retry_after_s)
    return -1 if isinstance(error, RequestTooLargeError) else None


def decode_details(data: bytes) -> QuantraError | None:
    """Decode the error of a call; None if the details are not from Quantra."""
    info = ErrorInfo()
    try:
        status = StatusMessage.FromString(data)
        has_info = any(detail.Unpack(info) for detail in status.details)
    except DecodeError:
        return None
    if not has_info or info.domain != DOMAIN:
        return None
    return restore_error(info.reason, status.message, dict(info.metadata))


def shortened(text: str, max_bytes: int) -> str:
    """Cut a text to about `max_bytes` bytes of UTF-8 and append its length in characters."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data.decode()
    return f"{data[:max_bytes].decode('utf-8', 'ignore')}... ({len(text)} characters)"
