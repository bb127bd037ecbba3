"""A minimal HTTP/2 (RFC 9113) client that misbehaves: it sends half a request, or reads no response.

Headers are sent and read as literals without Huffman codes; the settings switch off the dynamic table. A
Huffman-coded value is read as empty.
"""

import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Self, final

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_TABLE_SIZE, _INITIAL_WINDOW = 1, 4
_CANCEL: Final = 8
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FIRST_WINDOW: Final = 65_535
WHOLE_WINDOW: Final = 16 << 20
"""A window larger than any response."""
_MAX_FRAME: Final = 16_384
_STATUS_NAMES: Final = range(8, 15)
"""Entries of HPACK's static table whose name is :status."""
_STATIC_STATUS: Final = {8: "200", 9: "204", 10: "206", 11: "304", 12: "400", 13: "404", 14: "500"}


def frame(kind: int, content: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    """One frame."""
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def message(body: bytes, *, compressed: bool = False) -> bytes:
    """A length-prefixed gRPC message; the compressed flag does not change its bytes."""
    return bytes([compressed]) + len(body).to_bytes(4, "big") + body


def encoded(headers: dict[str, str]) -> bytes:
    """A header block of unindexed literals."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())


def _text(text: str) -> bytes:
    data = text.encode()
    return _number(len(data), 7) + data


def _number(value: int, bits: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    value, out = value - most, bytearray([most])
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def decoded(block: bytes) -> dict[str, str]:
    """Names and values of a header block; of indexed fields only :status."""
    found: dict[str, str] = {}
    at = 0
    while at < len(block):
        first = block[at]
        if first & 0x80:
            index, at = _read_number(block, at, 7)
            if index in _STATIC_STATUS:
                found[":status"] = _STATIC_STATUS[index]
        elif first & 0xE0 == 0x20:  # the size of the table
            _, at = _read_number(block, at, 5)
        else:
            index, at = _read_number(block, at, 6 if first & 0x40 else 4)
            name, at = _read_text(block, at) if index == 0 else (_static_name(index), at)
            found[name], at = _read_text(block, at)
    return found


def _static_name(index: int) -> str:
    return ":status" if index in _STATUS_NAMES else f"header {index}"


def _read_number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value, at, shift = block[at] & most, at + 1, 0
    if value < most:
        return value, at
    while True:
        value += (block[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if block[at - 1] < 0x80:
            return value, at


def _read_text(block: bytes, at: int) -> tuple[str, int]:
    is_huffman = block[at] & 0x80
    length, at = _read_number(block, at, 7)
    return "" if is_huffman else block[at : at + length].decode("ascii", "replace"), at + length


@final
@dataclass(slots=True)
class Stream:
    """State of one call."""

    number: int
    window: int
    headers: dict[str, str] = field(default_factory=dict)
    answer: bytearray = field(default_factory=bytearray)
    ended: str = ""
    """"" while open, "closed", "reset" with a code, or "goodbye" if the whole connection ended."""

    @property
    def status(self) -> str:
        """The status of the call; empty if none came."""
        return self.headers.get("grpc-status", "")


@final
class Connection:
    """One connection, one thread.

    Args:
        port: Of 127.0.0.1.
        window: How much of each answer the server may send before it is asked for more; no more is ever asked for.
        timeout_s: How long the server may leave the client waiting for a frame, or not take one.
        tls: By whom it knows the server; None: nothing is encrypted.
        headers: Of each call, beside its own.

    Raises:
        OSError: no connection, or it ended.
        TimeoutError: the server took too long.
    """

    def __init__(
        self,
        port: int,
        *,
        window: int = WHOLE_WINDOW,
        timeout_s: float = 10.0,
        tls: ssl.SSLContext | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        bare = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket = bare if tls is None else tls.wrap_socket(bare, server_hostname="127.0.0.1")
        self._headers = {":scheme": "http" if tls is None else "https", **headers}
        self._answers = self._socket.makefile("rb")
        self._streams: dict[int, Stream] = {}
        self._window, self._stream_window = _FIRST_WINDOW, _FIRST_WINDOW
        self._block = bytearray()
        settings = struct.pack(">HIHI", _TABLE_SIZE, 0, _INITIAL_WINDOW, window)
        whole = frame(WINDOW_UPDATE, ((1 << 31) - 1 - _FIRST_WINDOW).to_bytes(4, "big"))
        self._socket.sendall(_PREFACE + frame(SETTINGS, settings) + whole)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, path: str, **further: str) -> Stream:
        """Start a call; in names of further headers, _ stands for -."""
        number = 2 * len(self._streams) + 1
        stream = self._streams[number] = Stream(number, self._stream_window)
        headers = {":method": "POST", ":path": path, ":authority": "127.0.0.1", **self._headers}
        named = {name.replace("_", "-"): value for name, value in further.items()}
        block = encoded({**headers, "te": "trailers", "content-type": "application/grpc", **named})
        self._socket.sendall(frame(HEADERS, block, flags=END_HEADERS, stream=number))
        return stream

    def call_together(self, path: str, content: bytes, count: int) -> list[Stream]:
        """Send many complete calls with the same content before reading anything; they must fit the first window."""
        streams = [self.call(path) for _ in range(count)]
        room = self._window - count * len(content)
        whole = (frame(DATA, content, flags=END_STREAM, stream=stream.number) for stream in streams)
        self._socket.sendall(b"".join(whole))
        self._window = room
        return streams

    def send(self, stream: Stream, content: bytes, *, last: bool = False) -> bool:
        """Send content within flow control; False if the server ended the call before all was sent."""
        rest = memoryview(content)
        while rest and not stream.ended:
            room = min(self._window, stream.window, _MAX_FRAME, len(rest))
            if room <= 0:
                self.read()
                continue
            self._socket.sendall(frame(DATA, bytes(rest[:room]), stream=stream.number))
            self._window, stream.window, rest = self._window - room, stream.window - room, rest[room:]
        if last and not stream.ended:
            self._socket.sendall(frame(DATA, flags=END_STREAM, stream=stream.number))
        return not rest

    def read_until_answered(self, stream: Stream) -> None:
        """Read until the response of a call has begun."""
        while not stream.headers:
            self.read()

    def finish(self, stream: Stream) -> Stream:
        while not stream.ended:
            self.read()
        return stream

    def read(self) -> int:
        """Read one frame and return its kind."""
        head = self._answers.read(9)
        if len(head) < 9:
            raise ConnectionError("the server closed the connection")
        kind, flags = head[3], head[4]
        content = self._answers.read(int.from_bytes(head[:3], "big"))
        stream = self._streams.get(int.from_bytes(head[5:], "big") & 0x7FFFFFFF)
        if stream is None:
            self._of_all(kind, flags, content)
        else:
            self._of_one(stream, kind, flags, content)
        return kind

    def _of_all(self, kind: int, flags: int, content: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            self._apply(dict(struct.iter_unpack(">HI", content)))
            self._socket.sendall(frame(SETTINGS, flags=ACK))
        elif kind == PING and not flags & ACK:
            self._socket.sendall(frame(PING, content, flags=ACK))
        elif kind == WINDOW_UPDATE:
            self._window += int.from_bytes(content, "big")
        elif kind == GOAWAY:
            last = int.from_bytes(content[:4], "big")
            for stream in self._streams.values():
                if stream.number > last:
                    stream.ended = stream.ended or "goodbye"

    def _apply(self, settings: dict[int, int]) -> None:
        window = settings.get(_INITIAL_WINDOW, self._stream_window)
        for stream in self._streams.values():
            stream.window += window - self._stream_window
        self._stream_window = window

    def _of_one(self, stream: Stream, kind: int, flags: int, content: bytes) -> None:
        if kind == WINDOW_UPDATE:
            stream.window += int.from_bytes(content, "big")
        elif kind == RST_STREAM:
            stream.ended = stream.ended or f"reset {int.from_bytes(content, 'big')}"
        elif kind == DATA:
            stream.answer += _unpadded(content, flags)
        elif kind in {HEADERS, CONTINUATION}:
            self._block += _unpadded(content, flags) if kind == HEADERS else content
            if flags & END_HEADERS:
                stream.headers.update(decoded(bytes(self._block)))
                self._block.clear()
        if kind in {DATA, HEADERS} and flags & END_STREAM:
            stream.ended = stream.ended or "closed"

    def cancel(self, stream: Stream) -> None:
        """Cancel a call."""
        self._socket.sendall(frame(RST_STREAM, _CANCEL.to_bytes(4, "big"), stream=stream.number))

    def reset(self) -> None:
        """Disconnect with a TCP reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._answers.close()
        self._socket.close()


def _unpadded(content: bytes, flags: int) -> bytes:
    skipped = content[0] if flags & _PADDED else None
    body = content if skipped is None else content[1 : len(content) - skipped]
    return body[5:] if flags & _PRIORITY else body
