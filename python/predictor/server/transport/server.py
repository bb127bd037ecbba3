"""A gRPC server: listens, accepts connections and looks after them."""

import asyncio
import itertools
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, final

from predictor.server.address import Listening, SocketAddress
from predictor.server.binding import BACKLOG, bind
from predictor.server.certificates import Certificates
from predictor.server.settings import ServerLimits
from predictor.server.transport.call import MethodHandler
from predictor.server.transport.connection import HttpConnection, OpenConnections

if TYPE_CHECKING:
    from pathlib import Path

_CHECKS_PER_LIMIT: Final = 4
_LONGEST_CHECK_S: Final = 1.0
_ACCEPT_S: Final = 0.01
"""Time in which the loop hands over the connections that it has just accepted: a few of its turns."""


@final
class HttpServer:
    """A gRPC server, on the running event loop.

    Args:
        limits: Limits of calls and connections.
        current: Returns the certificates of the next connection; None: no TLS.
        is_shared: Whether several processes share the port.
    """

    def __init__(self, limits: ServerLimits, current: Callable[[], Certificates] | None, *, is_shared: bool) -> None:
        self._limits, self._current, self._is_shared = limits, current, is_shared
        self._loop = asyncio.get_running_loop()
        self._handlers: dict[str, MethodHandler] = {}
        self._sockets: list[socket.socket] = []
        self._path: Path | None = None
        self._connections = OpenConnections(limits.connections)
        self._servers: list[asyncio.Server] = []
        self._check_task: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)

    def bind(self, address: Listening) -> int:
        """Bind the address and return the port; 0 for a Unix socket, which is removed at the end.

        Raises:
            ConfigurationError: It is in use, not permitted or not of this machine, or others can enter its folder.
        """
        self._sockets = bind(address, is_shared=self._is_shared)
        if isinstance(address, SocketAddress):
            self._path = address.path
            return 0
        return self._sockets[0].getsockname()[1]

    def add_handlers(self, service: str, handlers: Mapping[str, MethodHandler]) -> None:
        """Register the handlers of a service, by the names of its methods."""
        self._handlers |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    async def start(self) -> None:
        """Accept connections."""
        self._servers = [await self._serve(sock) for sock in self._sockets]
        self._check_task = self._loop.create_task(self._check_times())

    async def stop(self) -> None:
        """Stop listening, close every connection and release the address, in any state."""
        if self._check_task is not None:
            self._check_task.cancel()
        for server in self._servers:
            server.close()
        for sock in self._sockets:
            sock.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        await asyncio.sleep(_ACCEPT_S)
        await self._connections.close()

    async def _serve(self, sock: socket.socket) -> asyncio.Server:
        """Serve the connections to a listening socket."""
        if self._path is not None:
            return await self._loop.create_unix_server(self._create, sock=sock, backlog=BACKLOG)
        if self._current is None:
            return await self._loop.create_server(self._create, sock=sock, backlog=BACKLOG)
        tls = self._current().context
        tls.sni_callback = self._use_current  # called in each handshake, even without a server name
        timeout_s = self._limits.handshake_s
        return await self._loop.create_server(
            self._create, sock=sock, backlog=BACKLOG, ssl=tls, ssl_handshake_timeout=timeout_s
        )

    def _create(self) -> HttpConnection:
        name = None if self._path is None else f"unix:{next(self._numbers)}"
        return HttpConnection(self._handlers, self._limits, self._connections, name)

    def _use_current(self, tls: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Use the current certificates for a new connection."""
        if self._current is not None:
            tls.context = self._current().context

    async def _check_times(self) -> None:
        limits = self._limits
        shortest_s = min(limits.handshake_s, limits.idle_s, limits.silence_s, limits.age_s)
        while True:
            await asyncio.sleep(min(_LONGEST_CHECK_S, shortest_s / _CHECKS_PER_LIMIT))
            self._connections.check_times(ages=self._current is not None)
            self._connections.check_unread(limits.unread_bytes)
