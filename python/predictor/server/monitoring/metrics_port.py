"""HTTP server for Prometheus: GET /metrics on localhost only.

It runs on the server's event loop, so that idle connections need no threads. A separate thread renders the metrics.
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
"""Longest duration of a connection in seconds."""
MOST_CONNECTIONS: Final = 32
"""Most open connections; a further one closes the oldest."""
MOST_HEAD_BYTES: Final = 8192
"""Largest request."""

_GET: Final = "GET"
_TYPE: Final = "text/plain; charset=utf-8"


class MetricsSource(Protocol):
    """Source of the metrics; see `Metrics` and `MetricTotals`."""

    def page(self, accepted: str) -> tuple[bytes, str]:
        """Return the metrics and their content type."""
        ...


@final
class MetricsPort:
    """A local port, on the running event loop. Call `bind`, `start` and `close` in this order.

    Args:
        source: source of the metrics.
        port: port number; 0: any free port.
    """

    def __init__(self, source: MetricsSource, port: int) -> None:
        self._source = source
        self._port = port
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}
        """Oldest first."""
        self._rendering = asyncio.Lock()

    def bind(self) -> int:
        """Bind the port and return its number.

        Raises:
            ConfigurationError: the port is in use or not permitted.
        """
        try:
            self._socket = socket.create_server((HOST, self._port))
        except OSError as error:
            problem = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be bound: {error.strerror}"
            raise ConfigurationError(
                f"the metrics port {self._port} {problem}; choose another one (port 0 picks a free one)"
            ) from None
        return self._socket.getsockname()[1]

    async def start(self) -> None:
        """Start responding."""
        self._server = await asyncio.start_server(self._serve, sock=self._socket, limit=MOST_HEAD_BYTES)

    async def close(self) -> None:
        """Release the port immediately, in any state."""
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
            del self._open[oldest]  # immediately: its task may react only after further connections
            oldest.transport.abort()
        try:
            async with asyncio.timeout(LONGEST_S):
                await self._answer(reader, writer)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            writer.transport.abort()  # too slow, malformed or disconnected: no response
        finally:
            self._open.pop(writer, None)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, headers = _parse(head)
        if path != "/metrics":
            writer.write(_response("404 Not Found", b"not found; use /metrics\n", _TYPE))
        elif method != _GET:
            writer.write(_response("405 Method Not Allowed", b"use GET\n", _TYPE, allow=_GET))
        else:
            async with self._rendering:
                body, content_type = await asyncio.to_thread(self._source.page, headers.get("accept", ""))
            writer.write(_response("200 OK", body, content_type))


def _parse(head: str) -> "tuple[str, str, Mapping[str, str]]":
    """Parse the method, path and headers of a request; skips malformed lines."""
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
