"""One incoming call: its headers (see the gRPC document PROTOCOL-HTTP2), messages, deadline and status."""

import binascii
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, final
from urllib.parse import quote

from grpc import StatusCode

from predictor.errors import MalformedRequestError, QueueFullError, RequestTooLargeError
from predictor.http2 import ErrorCode, Headers, encode_headers
from predictor.server.settings import ServerLimits

if TYPE_CHECKING:
    import asyncio

    from predictor.server.transport.connection import HttpConnection

Metadata: TypeAlias = Mapping[str, str | bytes]
"""Values by lower-case name; those of names that end with -bin are bytes."""
_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_MAX_TIMEOUT_LENGTH: Final = 9
"""At most 8 digits and a unit."""
_CONTENT_TYPE: Final = b"application/grpc"
_BINARY: Final = b"-bin"
_UNQUOTED: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
RESPONSE_HEADERS: Final = encode_headers(
    ((b":status", b"200"), (b"content-type", _CONTENT_TYPE), (b"grpc-accept-encoding", b"identity, gzip"))
)
"""The headers before the first message of a response."""
_TRAILERS_ONLY_HEADERS: Final = encode_headers(((b":status", b"200"), (b"content-type", _CONTENT_TYPE)))
OK_TRAILERS: Final = encode_headers(((b"grpc-status", b"0"),))
"""The trailers of a successful response, before its metadata."""
_STATUS: Final = {code: encode_headers(((b"grpc-status", str(code.value[0]).encode()),)) for code in StatusCode}


@final
@dataclass(frozen=True, slots=True)
class RequestHead:
    """The parsed headers of a call."""

    method: str
    """/SERVICE/METHOD."""
    metadata: tuple[tuple[str, str | bytes], ...]
    """All headers but the pseudo headers; a name may occur more than once."""
    timeout_s: float | None
    """Seconds that the caller waits; None: no deadline."""
    encoding: str
    """Compression of the messages that are marked as compressed."""


@final
class NotGrpcError(Exception):
    """The request is not a gRPC call.

    Attributes:
        status: HTTP status of the response.
    """

    def __init__(self, status: bytes) -> None:
        super().__init__(status.decode())
        self.status = status


def parse_head(headers: Headers) -> RequestHead:
    """Read the headers of a call.

    Raises:
        NotGrpcError: the method is not POST, or the content is not gRPC.
        ValueError: the timeout or a binary header is malformed.
    """
    values = dict(headers)
    if values[b":method"] != b"POST":
        raise NotGrpcError(b"405")
    content_type = values.get(b"content-type", b"")
    if not content_type.startswith(_CONTENT_TYPE) or content_type[len(_CONTENT_TYPE) :][:1] not in (b"", b"+", b";"):
        raise NotGrpcError(b"415")
    timeout = values.get(b"grpc-timeout")
    metadata = tuple(
        (name.decode("ascii", "replace"), text)
        for name, value in headers
        if name[:1] != b":"
        for text in (_decode_binary(name, value) if name.endswith(_BINARY) else (value.decode("ascii", "replace"),))
    )
    return RequestHead(
        method=values[b":path"].decode("ascii", "replace"),
        metadata=metadata,
        timeout_s=None if timeout is None else _decode_timeout(timeout),
        encoding=values.get(b"grpc-encoding", b"identity").decode("ascii", "replace"),
    )


def _decode_binary(name: bytes, value: bytes) -> list[bytes]:
    """Decode a binary header, in which proxies may join several values with commas."""
    try:
        return [b64decode(part + b"=" * (-len(part) % 4), validate=True) for part in value.split(b",")]
    except binascii.Error:
        raise ValueError(f"header {name[:80].decode('ascii', 'replace')} is not base64") from None


def _decode_timeout(timeout: bytes) -> float:
    digits, unit = timeout[:-1], _UNITS.get(timeout[-1:])
    if unit is None or not digits.isdigit() or len(timeout) > _MAX_TIMEOUT_LENGTH:
        raise ValueError("header grpc-timeout is not a number of at most 8 digits and a unit of H, M, S, m, u or n")
    return int(digits) * unit


def encode_trailers(code: StatusCode, message: str, metadata: Metadata, *, has_begun: bool) -> bytes:
    """Encode the end of a response; before the first message it includes the headers."""
    block = _STATUS[code] if has_begun else _TRAILERS_ONLY_HEADERS + _STATUS[code]
    if message:
        block += encode_headers(((b"grpc-message", quote(message, safe=_UNQUOTED, errors="replace").encode()),))
    return block + encode_metadata(metadata)


def encode_metadata(metadata: Metadata) -> bytes:
    """Encode the metadata of a response."""
    fields: list[tuple[bytes, bytes]] = []
    for key, value in metadata.items():
        fields.append((key.encode(), b64encode(value).rstrip(b"=") if isinstance(value, bytes) else value.encode()))
    return encode_headers(fields)


_PREFIX: Final = 5
"""Bytes before each message: whether it is compressed, and its length."""
_UNCOMPRESSED: Final = b"\0"
"""Marks a message that is not compressed."""
_GZIP: Final = 31
"""zlib's window bits for gzip."""
_NO_METADATA: Final[Metadata] = {}


@final
class IncomingCall:
    """One call, on the event loop. It is over after `respond`, `end`, its deadline or its cancellation by the peer.

    The peer may send 64 KiB of the request before it is read.

    Args:
        connection: The connection of the call.
        stream: Its stream.
        head: Its headers.
        limits: Limits of the server; `receive_bytes` is the largest message, also after decompression.
    """

    def __init__(self, connection: "HttpConnection", stream: int, head: RequestHead, limits: ServerLimits) -> None:
        self.head, self.peer = head, connection.peer
        self.is_over = False
        self.trailing_metadata: Metadata = _NO_METADATA
        """Metadata that ends the response."""
        self.on_cancel: Callable[[], object] | None = None
        """Called if it is over without `respond` or `end`."""
        self.on_end: Callable[[], object] | None = None
        """Called when it is over."""
        self._connection, self._stream, self._limits = connection, stream, limits
        self._max_bytes = limits.receive_bytes
        self._buffer: bytes | bytearray = b""
        self._unacknowledged = 0
        self._has_all = self._has_begun = False
        self._when_arrived: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._expires_at_s: float | None = None
        if head.timeout_s is not None:
            self._expires_at_s = connection.loop.time() + head.timeout_s
            self._timer = connection.loop.call_later(head.timeout_s, self._expire)

    # --- for the connection

    def receive(self, data: bytes, *, has_all: bool) -> None:
        """Take a part of the request; `has_all` says that it is the last."""
        if not self._buffer:
            self._buffer = data
        else:
            if isinstance(self._buffer, bytes):
                self._buffer = bytearray(self._buffer)
            self._buffer += data
        self._unacknowledged += len(data)
        self._has_all = has_all
        if self._when_arrived is not None:
            if not has_all and not self._has_message:
                self._acknowledge()
            else:
                callback, self._when_arrived = self._when_arrived, None
                callback()

    def cancel(self) -> None:
        """End it without a response: the peer has cancelled it or disconnected."""
        if not self.is_over:
            self._stop()
            self._close()

    # --- for its handler

    @property
    def time_left_s(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self._expires_at_s is None else self._expires_at_s - self._connection.loop.time()

    def limit_request(self, max_bytes: int) -> None:
        """Accept only messages of at most `max_bytes`."""
        self._max_bytes = min(self._max_bytes, max_bytes)

    def run(self, work: Coroutine[object, object, None]) -> None:
        """Run a task, which is cancelled if the call is."""
        self._task = self._connection.loop.create_task(work)

    def take_request(self) -> bytes | None:
        """Return the first message if the whole request has arrived; see `read`."""
        return self._take() if self._has_all else None

    async def read(self) -> bytes | None:
        """Wait for the next message; None after the last.

        Raises:
            RequestTooLargeError: It is too large.
            MalformedRequestError: It is cut off, or cannot be decompressed.
        """
        arrived: asyncio.Future[None] = self._connection.loop.create_future()
        message = self.take_next(partial(_wake, arrived))
        if message is not None or self._has_all:
            return message
        await arrived
        return self._take()

    def take_next(self, when_arrived: Callable[[], None]) -> bytes | None:
        """Return the next message, if it has arrived; otherwise call `when_arrived` once, when it has or at the end.

        Raises:
            RequestTooLargeError, MalformedRequestError: As `read`.
        """
        message = self._take()
        if message is None and not self._has_all:
            self._acknowledge()
            self._when_arrived = when_arrived
        return message

    @property
    def has_all_requests(self) -> bool:
        """Whether the caller has sent its last message and all were taken."""
        return self._has_all and not self._buffer

    def check_response(self, message: bytes) -> None:
        """Check that a response may be sent.

        Raises:
            RequestTooLargeError: It is larger than clients accept.
            QueueFullError: The caller leaves too many responses of its connection unread.
        """
        max_size, max_unread = self._limits.send_bytes, self._limits.unread_bytes_per_peer
        if len(message) > max_size:
            raise RequestTooLargeError(
                f"the response has {len(message)} bytes, at most {max_size}; request fewer symbols or targets, or less "
                "detail",
                metadata={"have": str(len(message)), "most": str(max_size)},
            )
        unread = self._connection.http.pending_bytes
        if unread > max_unread:
            raise QueueFullError.of("bytes of responses are unread on this connection", unread, max_unread)

    @property
    def can_send(self) -> bool:
        """Whether the caller reads what was sent."""
        return self._connection.can_send(self._stream)

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the caller may have read what was sent, or is gone."""
        self._connection.when_writable(callback)

    def send(self, message: bytes) -> None:
        """Send a message now; ignored after the end of the call."""
        if self.is_over:
            return
        if not self._has_begun:
            self._has_begun = True
            self._connection.http.send_headers(self._stream, RESPONSE_HEADERS)
        self._connection.http.send_data(self._stream, _UNCOMPRESSED + len(message).to_bytes(4, "big") + message)
        self._connection.flush_soon()

    async def write(self, message: bytes) -> None:
        """Send a message as fast as the caller reads."""
        await self._wait_until_writable()
        self.send(message)
        await self._wait_until_writable()

    def respond(self, message: bytes) -> None:
        """Send the only message, and end the call with OK."""
        if not self.is_over:
            framed = _UNCOMPRESSED + len(message).to_bytes(4, "big") + message
            trailers = OK_TRAILERS + encode_metadata(self.trailing_metadata)
            self._connection.http.send_response(self._stream, RESPONSE_HEADERS, framed, trailers)
            self._connection.flush_soon()
            self._close()

    def end(self, code: StatusCode = StatusCode.OK, details: str = "") -> None:
        """End the call with a status."""
        if not self.is_over:
            trailers = encode_trailers(code, details, self.trailing_metadata, has_begun=self._has_begun)
            self._connection.http.send_headers(self._stream, trailers, end=True)
            self._connection.flush_soon()
            self._close()

    # --- private

    async def _wait_until_writable(self) -> None:
        while not self.can_send:
            writable: asyncio.Future[None] = self._connection.loop.create_future()
            self.when_writable(partial(_wake, writable))
            await writable

    def _expire(self) -> None:
        self._stop()
        http = self._connection.http
        if http.count_waiting_bytes(self._stream):
            http.reset(self._stream, ErrorCode.CANCEL)
            self._connection.flush_soon()
        self.end(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def _close(self) -> None:
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._connection.forget(self._stream)
        if self.on_end is not None:
            self.on_end()
        self.on_end = self.on_cancel = self._when_arrived = self._task = None  # they refer to this call
        self._buffer = b""

    def _stop(self) -> None:
        """Stop the work on it."""
        if self._task is not None:
            self._task.cancel()
        if self.on_cancel is not None:
            self.on_cancel()

    def _acknowledge(self) -> None:
        if self._unacknowledged:
            self._connection.http.acknowledge(self._stream, self._unacknowledged)
            self._connection.flush_soon()
            self._unacknowledged = 0

    @property
    def _has_message(self) -> bool:
        """Whether the buffer starts with a whole message, or with the length of one that is too large."""
        buffer = self._buffer
        if len(buffer) < _PREFIX:
            return False
        size = int.from_bytes(buffer[1:_PREFIX], "big")
        return size > self._max_bytes or len(buffer) >= _PREFIX + size

    def _take(self) -> bytes | None:
        """Remove the first message from the buffer; None if it has not arrived. Raises as `read`."""
        buffer = self._buffer
        if not self._has_message:
            if buffer and self._has_all:
                raise MalformedRequestError("the request ends within a message; send it again")
            return None
        size = int.from_bytes(buffer[1:_PREFIX], "big")
        if size > self._max_bytes:
            raise _make_request_size_error(size, self._max_bytes)
        end = _PREFIX + size
        message, is_compressed = bytes(memoryview(buffer)[_PREFIX:end]), buffer[0]
        self._buffer = buffer[end:]
        return self._decompress(message) if is_compressed else message

    def _decompress(self, message: bytes) -> bytes:
        decompressor = zlib.decompressobj(_GZIP)
        try:
            content = decompressor.decompress(message, self._max_bytes + 1)
        except zlib.error as error:
            raise MalformedRequestError(f"the request cannot be decompressed: {error}; send it uncompressed") from None
        if len(content) > self._max_bytes:
            raise _make_request_size_error(len(content), self._max_bytes)
        if not decompressor.eof:
            raise MalformedRequestError("the compressed request is cut off; send it again")
        return content


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


MethodHandler: TypeAlias = Callable[[IncomingCall], None]
"""Starts the work on a call; must not raise."""


def _make_request_size_error(size: int, max_bytes: int) -> RequestTooLargeError:
    return RequestTooLargeError(
        f"the request has {size} bytes, at most {max_bytes}; send a smaller request, with fewer symbols or sessions",
        metadata={"have": str(size), "most": str(max_bytes)},
    )
