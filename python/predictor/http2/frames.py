"""Frames of HTTP/2 as bytes, and the errors that they can cause (RFC 9113, sections 4, 6 and 7)."""

import struct
from enum import IntEnum
from typing import Final, final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What every client sends first (section 3.4)."""
HEADER_SIZE: Final = 9
MAX_WINDOW: Final = (1 << 31) - 1
STREAM_BITS: Final = (1 << 31) - 1
"""The highest bit of a stream number is reserved and ignored (section 4.1)."""
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 0x1, 0x1, 0x4, 0x8, 0x20

pack_header: Final = struct.Struct(">HBBBI").pack
unpack_header: Final = struct.Struct(">HBBBI").unpack_from
"""Length without its last byte, the last byte of the length, kind, flags, stream."""


class ErrorCode(IntEnum):
    """Why a stream or the connection ended (section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


@final
class ConnectionFault(Exception):  # noqa: N818  (the protocol's word "error" would suggest a fault of ours)
    """The peer broke the protocol or exhausted a limit, so that the connection must end (section 5.4.1)."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


@final
class StreamFault(Exception):  # noqa: N818
    """The peer broke the protocol on one stream, which must end (section 5.4.2)."""

    def __init__(self, stream: int, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.stream, self.code = stream, code


def encode_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Encode one frame."""
    return pack_header(len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


def encode_number(number: int) -> bytes:
    """Encode the four bytes of an error code, window increment or stream number."""
    return number.to_bytes(4, "big")


def decode_number(data: bytes) -> int:
    """Read the 31 bits of a window increment or stream number."""
    return int.from_bytes(data[:4], "big") & STREAM_BITS


def remove_padding(payload: bytes) -> bytes:
    """Read the content of a padded frame.

    Raises:
        ConnectionFault: the padding is as long as the frame (section 6.1), or its length is missing.
    """
    if not payload:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a padded frame has no length of its padding")
    if payload[0] >= len(payload):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]


def check_length(payload: bytes, length: int) -> None:
    """Check the length of a frame whose kind fixes it; raises ConnectionFault if it differs (section 4.2)."""
    if len(payload) != length:
        reason = f"a frame has {len(payload)} bytes, but its kind always has {length}"
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, reason)
