"""Frames and settings of HTTP/2 as bytes, their errors, and the limits of a connection (RFC 9113, sections 4 to 7)."""

import struct
from dataclasses import dataclass
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


DEFAULT_WINDOW: Final = 65_535
"""Of a stream and of the connection until a peer announces another (section 6.9.2)."""
DEFAULT_FRAME: Final = 16_384
_MAX_FRAME: Final = (1 << 24) - 1
_MAX_OWN_FRAME: Final = 1 << 20
_ENABLE_PUSH, _STREAMS, _WINDOW, _FRAME, _HEADER_LIST, _CONNECT_PROTOCOL = 2, 3, 4, 5, 6, 8
_MAX_SETTINGS: Final = 32
"""Settings of one frame; RFC 9113 and its extensions define fewer than ten."""


@final
@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of what one peer can make the connection accept and store.

    Raises:
        ValueError: a limit is outside its range.
    """

    streams: int = 1000
    """Open streams. A further one is refused with REFUSED_STREAM."""
    stream_window: int = 65_536
    """Bytes of a request's body that may arrive before they are acknowledged; at least 65,535, which peers may send
    before they know the limit."""
    connection_window: int = 1 << 24
    """The same for all streams together."""
    frame: int = 1 << 16
    """Bytes of one frame; 16,384 to 1,048,576."""
    header_list: int = 16_384
    """Decoded bytes of the headers of a request, with 32 more for each; a larger list is refused. A list or an encoded
    block of twice the size ends the connection."""
    resets: int = 100
    """Streams that the peer may reset, or make the server reset, on a new connection. Every two responses allow one
    more, up to ten times as many."""
    unsent: int = 1 << 22
    """Bytes of output that was not fetched or waits for a window. The connection ends beyond the limit."""

    def __post_init__(self) -> None:
        ranges = {
            "streams": (1, MAX_WINDOW),
            "stream_window": (DEFAULT_WINDOW, MAX_WINDOW),
            "connection_window": (DEFAULT_WINDOW, MAX_WINDOW),
            "frame": (DEFAULT_FRAME, _MAX_OWN_FRAME),
            "header_list": (1, MAX_WINDOW),
            "resets": (1, MAX_WINDOW),
            "unsent": (1, MAX_WINDOW),
        }
        for name, (low, high) in ranges.items():
            value: int = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"the connection's limit of {name} is {value}, but must be {low} to {high}")

    def encode_settings(self) -> bytes:
        """Encode what a SETTINGS frame announces of the limits."""
        pairs = ((_STREAMS, self.streams), (_WINDOW, self.stream_window), (_FRAME, self.frame))
        return b"".join(struct.pack(">HI", *pair) for pair in (*pairs, (_HEADER_LIST, self.header_list)))


@final
@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Changed settings of the peer; None if unchanged. Others do not matter to a server that compresses no headers."""

    window: int | None
    frame: int | None


def decode_settings(payload: bytes) -> PeerSettings:
    """Read the payload of a SETTINGS frame.

    Raises:
        ConnectionFault: it is malformed, a value is not allowed (section 6.5.2), or there are more than 32.
    """
    if len(payload) % 6:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"{len(payload)} bytes of settings are not a multiple of 6")
    if len(payload) > _MAX_SETTINGS * 6:
        raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"a frame has {len(payload) // 6} settings")
    window = frame = None
    for name, value in struct.iter_unpack(">HI", payload):
        if name in {_ENABLE_PUSH, _CONNECT_PROTOCOL} and value > 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"setting {name} is {value}, but must be 0 or 1")
        if name == _WINDOW:
            if value > MAX_WINDOW:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, f"the initial window is {value}")
            window = value
        elif name == _FRAME:
            if not DEFAULT_FRAME <= value <= _MAX_FRAME:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"the largest frame is {value}")
            frame = value
    return PeerSettings(window, frame)


@final
@dataclass(slots=True)
class Budget:
    """Number of costly frames that a peer may still send; useful work raises it again, up to `max_level`."""

    level: int
    max_level: int
    reason: str

    def spend(self, cost: int = 1) -> None:
        """Pay for a frame; raises ConnectionFault if too little is left."""
        self.level = min(self.level, self.max_level) - cost
        if self.level < 0:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, self.reason)
