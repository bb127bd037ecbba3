"""The bytes of a client of one HTTP/2 connection without sockets, and a reader of what the server's end answers."""

from dataclasses import dataclass
from typing import Final

from raw_http2 import CONTINUATION, DATA, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, encoded, frame

from predictor.http2 import ConnectionEnded, ConnectionLimits, ErrorCode, Event, Http2StateMachine

PRIORITY, PUSH_PROMISE, UNKNOWN = 2, 5, 0xBE
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 0x1, 0x1, 0x4, 0x8, 0x20
GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS)
FIELDS: Final = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/package.Service/Method",
    ":authority": "localhost",
    "te": "trailers",
    "content-type": "application/grpc",
}
BLOCK: Final = encoded(FIELDS)
WHOLE_HEADERS: Final = END_HEADERS | END_STREAM

__all__ = [
    "ACK", "BLOCK", "CONTINUATION", "DATA", "END_HEADERS", "END_STREAM", "FIELDS", "GOAWAY", "GREETING", "HEADERS",
    "PADDED", "PING", "PRIORITIZED", "PRIORITY", "PUSH_PROMISE", "RST_STREAM", "SETTINGS", "UNKNOWN", "WHOLE_HEADERS",
    "WINDOW_UPDATE", "Frame", "call", "data", "encoded", "ending", "frame", "frames", "greeted", "headers", "number",
    "resets", "settings",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame that the server sent."""

    kind: int
    flags: int
    stream: int
    content: bytes = b""


def frames(output: bytes) -> list[Frame]:
    """All frames of the output, which has no partial one."""
    found: list[Frame] = []
    at = 0
    while at < len(output):
        length = int.from_bytes(output[at : at + 3], "big")
        stream = int.from_bytes(output[at + 5 : at + 9], "big")
        found.append(Frame(output[at + 3], output[at + 4], stream, output[at + 9 : at + 9 + length]))
        assert len(found[-1].content) == length
        at += 9 + length
    return found


def greeted(limits: ConnectionLimits | None = None, first: bytes = GREETING) -> Http2StateMachine:
    """A connection after the first settings, whose output was fetched."""
    connection = Http2StateMachine(limits or ConnectionLimits())
    assert connection.receive(first) == []
    connection.data_to_send()
    return connection


def number(value: int) -> bytes:
    """Content of RST_STREAM and WINDOW_UPDATE."""
    return value.to_bytes(4, "big")


def settings(name: int, value: int) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, name.to_bytes(2, "big") + number(value))


def headers(stream: int, block: bytes = BLOCK, *, flags: int = END_HEADERS) -> bytes:
    """The headers of a request."""
    return frame(HEADERS, block, flags=flags, stream=stream)


def data(stream: int, body: bytes = b"", *, end: bool = False) -> bytes:
    """A part of a request's body."""
    return frame(DATA, body, flags=END_STREAM if end else 0, stream=stream)


def call(stream: int, body: bytes = b"body") -> bytes:
    """A whole request."""
    return headers(stream) + data(stream, body, end=True)


def ending(events: list[Event]) -> ErrorCode:
    """The code with which the connection ended; nothing else may follow."""
    ended = events[-1]
    assert isinstance(ended, ConnectionEnded)
    assert not any(isinstance(event, ConnectionEnded) for event in events[:-1])
    return ErrorCode(ended.code)


def resets(connection: Http2StateMachine) -> list[tuple[int, ErrorCode]]:
    """Streams that the output resets, and why."""
    sent = frames(connection.data_to_send())
    return [(one.stream, ErrorCode(int.from_bytes(one.content, "big"))) for one in sent if one.kind == RST_STREAM]
