"""A gRPC server: listens, accepts connections and looks after them."""

import asyncio
import itertools
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, final

from predictor.errors import ConfigurationError
from predictor.server.address import Address, Listening, SocketAddress
from predictor.server.binding import check_socket, explain_bind_error
from predictor.server.certificates import Certificates
from predictor.server.settings import ServerLimits
from predictor.server.transport.call import CallHandler
from predictor.server.transport.connection import HttpConnection, OpenConnections

if TYPE_CHECKING:
    from pathlib import Path

_CHECKS_PER_LIMIT: Final = 4
_LONGEST_CHECK_S: Final = 1.0
_BACKLOG: Final = 4096
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
        self._handlers: dict[str, CallHandler] = {}
        self._sockets: list[socket.socket] = []
        self._path: Path | None = None
        self._connections = OpenConnections()
        self._servers: list[asyncio.Server] = []
        self._check_task: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)

    def bind(self, address: Listening) -> int:
        """Bind the address and return the port; 0 for a Unix socket, which is removed at the end.

        Raises:
            ConfigurationError: It is in use, not permitted or not of this machine, or others can enter its folder.
        """
        if isinstance(address, SocketAddress):
            check_socket(address)
        try:
            self._sockets = _bound_sockets(address, is_shared=self._is_shared)
        except OSError as error:
            if isinstance(address, Address):
                raise ConfigurationError(explain_bind_error(address, error)) from None
            raise ConfigurationError(f"cannot listen on {address}: {error.strerror}; choose another address") from None
        if isinstance(address, SocketAddress):
            self._path = address.path
            return 0
        return self._sockets[0].getsockname()[1]

    def add_handlers(self, service: str, handlers: Mapping[str, CallHandler]) -> None:
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
            return await self._loop.create_unix_server(self._create, sock=sock, backlog=_BACKLOG)
        if self._current is None:
            return await self._loop.create_server(self._create, sock=sock, backlog=_BACKLOG)
        tls = self._current().context
        tls.sni_callback = self._use_current  # called in each handshake, even without a server name
        timeout_s = self._limits.handshake_s
        return await self._loop.create_server(
            self._create, sock=sock, backlog=_BACKLOG, ssl=tls, ssl_handshake_timeout=timeout_s
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


def _bound_sockets(address: Listening, *, is_shared: bool) -> list[socket.socket]:
    """Bind sockets to an address, and listen, so that no other process takes it.

    Args:
        address: The address; a host name may have several.
        is_shared: Whether other processes may bind the same port.

    Raises:
        OSError: It cannot be bound.
    """
    if isinstance(address, SocketAddress):
        address.path.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.bind(str(address.path))
        sock.listen(_BACKLOG)
        return [sock]
    sockets: list[socket.socket] = []
    try:
        for family, host in _hosts(address):
            port = address.port or (sockets[0].getsockname()[1] if sockets else 0)
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            sockets.append(sock)
            _set_options(sock, family, is_shared=is_shared)
            sock.bind((host, port))
            sock.listen(_BACKLOG)
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _hosts(address: Address) -> list[tuple[socket.AddressFamily, str]]:
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(place[0])) for family, _, _, _, place in found))


def _set_options(sock: socket.socket, family: socket.AddressFamily, *, is_shared: bool) -> None:
    if os.name == "posix":  # on Windows the option would permit a port in use
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
