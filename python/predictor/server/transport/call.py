"""One incoming call: its messages, its deadline and its status."""

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Callable
from inspect import isasyncgen
from typing import TYPE_CHECKING, Any, Final, Never, final

import grpc
import grpc.aio

from predictor.errors import MalformedRequestError, RequestTooLargeError
from predictor.server.transport.headers import RESPONSE, Metadata, RequestHead, encode_trailers

if TYPE_CHECKING:
    from predictor.server.transport.connection import HttpConnection

_PREFIX: Final = 5
"""Bytes before each message: whether it is compressed, and its length."""
_GZIP: Final = 31
"""zlib's window bits for gzip."""

_log = logging.getLogger(__name__)


class _AbortedError(Exception):
    """Ends the handler of an aborted call."""


@final
class IncomingCall:
    """One call on the event loop; has the methods of `grpc.aio.ServicerContext` that the handlers use.

    A request's bytes wait at the peer until it is read: the peer may send 64 KiB before.

    Args:
        connection: The connection of the call.
        stream: Its stream.
        head: Its headers.
        most_bytes: Largest message, also after decompression.
    """

    def __init__(self, connection: "HttpConnection", stream: int, head: RequestHead, most_bytes: int) -> None:
        self._connection, self._stream, self._head, self._most_bytes = connection, stream, head, most_bytes
        self._loop = connection.loop
        self._buffer: bytes | bytearray = b""
        self._unacknowledged = 0
        self._has_all = False
        self._arrival: asyncio.Future[None] | None = None
        self._code, self._details = grpc.StatusCode.OK, ""
        self._has_begun = self._is_over = False
        self._trailing: Metadata = ()
        self._done_callbacks: list[Callable[[Any], None]] = []
        self._serialize: Callable[[Any], bytes] | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expires_at_s = None if head.timeout_s is None else self._loop.time() + head.timeout_s

    def start(self, handler: Any) -> None:
        """Run a handler of grpc with streaming requests."""
        self._serialize = handler.response_serializer
        if self._expires_at_s is not None:
            self._timer = self._loop.call_at(self._expires_at_s, self._expire)
        self._task = self._loop.create_task(self._run(handler))

    # --- what the connection reports

    def arrived(self, data: bytes, *, has_all: bool) -> None:
        """Take a part of the request; `has_all` says that it is the last."""
        if not self._buffer:
            self._buffer = data
        else:
            if isinstance(self._buffer, bytes):
                self._buffer = bytearray(self._buffer)
            self._buffer += data
        self._unacknowledged += len(data)
        self._has_all = has_all
        if self._arrival is not None:
            if has_all or self._is_complete():
                _wake(self._arrival)
            else:
                self._acknowledge()

    def cancel(self) -> None:
        """The peer has cancelled the call or disconnected."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()

    # --- what handlers use

    def peer(self) -> str:
        """Return the address of the caller."""
        return self._connection.peer

    def invocation_metadata(self) -> Metadata:
        """Return the headers of the call."""
        return self._head.metadata

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline; None without one."""
        return None if self._expires_at_s is None else max(0.0, self._expires_at_s - self._loop.time())

    def trailing_metadata(self) -> Metadata:
        """Return what `set_trailing_metadata` has set."""
        return self._trailing

    def set_trailing_metadata(self, trailing_metadata: Metadata) -> None:
        """Set the metadata that ends the response."""
        self._trailing = trailing_metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the status that ends the response of a handler that returns."""
        self._code = code

    def set_details(self, details: str) -> None:
        """Set the message of the status."""
        self._details = details

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback` with this call when it has ended."""
        self._done_callbacks.append(callback)

    async def read(self) -> Any:
        """Read the next message, or `grpc.aio.EOF`.

        Raises:
            RequestTooLargeError: It is too large.
            MalformedRequestError: It cannot be decompressed.
        """
        while not self._is_complete():
            if self._has_all:
                return grpc.aio.EOF
            self._acknowledge()
            self._arrival = self._loop.create_future()
            try:
                await self._arrival
            finally:
                self._arrival = None
        buffer = self._buffer
        size = int.from_bytes(buffer[1:_PREFIX], "big")
        if size > self._most_bytes:
            raise _too_large(size, self._most_bytes)
        end = _PREFIX + size
        message, is_compressed = bytes(buffer[_PREFIX:end]), buffer[0]
        self._buffer = buffer[end:]
        self._acknowledge()
        return self._decompressed(message) if is_compressed else message

    async def write(self, message: Any) -> None:
        """Send a message; waits while the caller does not read."""
        await self._connection.has_room(self._stream)
        self._send(message)
        await self._connection.has_room(self._stream)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> Never:
        """End the call with this status, and its handler with an exception."""
        self._trailing = trailing_metadata or self._trailing
        self._finish(code, details)
        raise _AbortedError

    # --- how it runs

    async def _run(self, handler: Any) -> None:
        try:
            if handler.response_streaming:
                answer = handler.stream_stream(None, self)
                if isasyncgen(answer):
                    await self._write_all(answer)
                else:
                    await answer
            else:
                answer = await handler.stream_unary(None, self)
                await self._connection.has_room(self._stream)
                self._send(answer)
            self._finish(self._code, self._details)
        except _AbortedError:
            pass
        except asyncio.CancelledError:
            self._finish(grpc.StatusCode.CANCELLED, "the call was cancelled")
        except Exception:  # noqa: BLE001 - task boundary: the caller gets a status
            _log.exception("a handler failed")
            self._finish(grpc.StatusCode.UNKNOWN, "internal error")
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._connection.forget(self._stream)
            for callback in self._done_callbacks:
                callback(self)

    async def _write_all(self, messages: AsyncIterator[Any]) -> None:
        async for message in messages:
            await self.write(message)

    def _send(self, message: Any) -> None:
        if self._is_over:
            return
        body: bytes = message if self._serialize is None else self._serialize(message)
        if not self._has_begun:
            self._has_begun = True
            self._connection.send_headers(self._stream, RESPONSE)
        self._connection.send_data(self._stream, b"\0" + len(body).to_bytes(4, "big") + body)

    def _finish(self, code: grpc.StatusCode, details: str = "") -> None:
        if self._is_over:
            return
        self._is_over = True
        trailers = encode_trailers(code, details, self._trailing, has_begun=self._has_begun)
        self._connection.send_headers(self._stream, trailers, end=True)

    def _expire(self) -> None:
        self._finish(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        if self._task is not None:
            self._task.cancel()

    def _acknowledge(self) -> None:
        if self._unacknowledged:
            self._connection.acknowledge(self._stream, self._unacknowledged)
            self._unacknowledged = 0

    def _is_complete(self) -> bool:
        """Whether the buffer starts with a whole message, or with the length of one that is too large."""
        if len(self._buffer) < _PREFIX:
            return False
        size = int.from_bytes(self._buffer[1:_PREFIX], "big")
        return size > self._most_bytes or len(self._buffer) >= _PREFIX + size

    def _decompressed(self, message: bytes) -> bytes:
        decompressor = zlib.decompressobj(_GZIP)
        try:
            content = decompressor.decompress(message, self._most_bytes + 1)
        except zlib.error as error:
            raise MalformedRequestError(f"the request cannot be decompressed: {error}; send it uncompressed") from None
        if len(content) > self._most_bytes:
            raise _too_large(len(content), self._most_bytes)
        if not decompressor.eof:
            raise MalformedRequestError("the compressed request is cut off; send it again")
        return content


def _too_large(size: int, most: int) -> RequestTooLargeError:
    return RequestTooLargeError(
        f"the request has {size} bytes, at most {most}; send fewer instances, symbols or sessions",
        metadata={"have": str(size), "most": str(most)},
    )


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
