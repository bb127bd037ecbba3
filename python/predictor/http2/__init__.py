"""The server's end of an HTTP/2 connection, without I/O (RFC 9113)."""

from predictor.http2.connection import Http2StateMachine
from predictor.http2.events import (
    ConnectionEnded,
    DataReceived,
    Event,
    Headers,
    PingAnswered,
    RequestReceived,
    StreamReset,
    StreamSent,
)
from predictor.http2.frames import ConnectionLimits, ErrorCode
from predictor.http2.header_blocks import encode_headers

__all__ = [
    "ConnectionEnded",
    "ConnectionLimits",
    "DataReceived",
    "ErrorCode",
    "Event",
    "Headers",
    "Http2StateMachine",
    "PingAnswered",
    "RequestReceived",
    "StreamReset",
    "StreamSent",
    "encode_headers",
]
