"""Where Prometheus reads: GET /metrics over HTTP, on this machine alone, and nothing else.

It runs on the server's event loop, so that a connection that says nothing costs no thread; the page itself is made on
another one.
"""

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Final, Protocol, final

from predictor.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST: Final = "127.0.0.1"
LONGEST_S: Final = 5.0
"""How long one connection may take, from its first byte to the last of its answer."""
MOST_CONNECTIONS: Final = 32
"""At once; for one more, the oldest ends."""
MOST_HEAD_BYTES: Final = 8192
"""Of a request."""

_GET: Final = "GET"
_TYPE: Final = "text/plain; charset=utf-8"


class MetricsSource(Protocol):
    """What is read; see `Metrics`."""

    def page(self, accepted: str) -> tuple[bytes, str]:
        """The page and its content type."""
        ...


@final
class MetricsPort:
    """One port of this machine, on the running event loop: `bind`, `start`, `close` in this order.

    Args:
        pages: what is read.
        port: 0 = any free one.
    """

    def __init__(self, pages: MetricsSource, port: int) -> None:
        self._pages = pages
        self._port = port
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}
        """Oldest first."""
        self._making = asyncio.Lock()

    def bind(self) -> int:
        """Claim the port.

        Returns:
            It.

        Raises:
            ConfigurationError: it is in use, or needs more rights.
        """
        try:
            self._socket = socket.create_server((HOST, self._port))
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had: {error.strerror}"
            raise ConfigurationError(
                f"the port {self._port} for metrics {why}; choose another one (port 0 picks a free one)"
            ) from None
        return self._socket.getsockname()[1]

    async def start(self) -> None:
        """Answer from now on."""
        self._server = await asyncio.start_server(self._serve, sock=self._socket, limit=MOST_HEAD_BYTES)

    async def close(self) -> None:
        """Give the port back at once, in whatever state it is."""
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > MOST_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]  # now: others may come before its task hears of it
            oldest.transport.abort()
        try:
            async with asyncio.timeout(LONGEST_S):
                await self._answer(reader, writer)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            writer.transport.abort()  # whoever is slow, sends no request or has gone gets no answer
        finally:
            self._open.pop(writer, None)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, headers = _read(head)
        if path != "/metrics":
            writer.write(_response("404 Not Found", b"there is /metrics alone\n", _TYPE))
        elif method != _GET:
            writer.write(_response("405 Method Not Allowed", b"use GET\n", _TYPE, allow=_GET))
        else:
            async with self._making:
                body, content_type = await asyncio.to_thread(self._pages.page, headers.get("accept", ""))
            writer.write(_response("200 OK", body, content_type))


def _read(head: str) -> "tuple[str, str, Mapping[str, str]]":
    """Method, path and headers of a request; a line that is none is passed over."""
    first, *lines = head.split("\r\n")
    method, _, rest = first.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    pairs = (line.partition(":") for line in lines)
    return method, path, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _response(status: str, body: bytes, content_type: str, *, allow: str | None = None) -> bytes:
    head = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *([] if allow is None else [f"Allow: {allow}"]),
    ]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body
