"""A gRPC server: listens, accepts connections and looks after them."""

import asyncio
import errno
import itertools
import logging
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

from predictor.errors import ConfigurationError
from predictor.server.address import Address, Listening, SocketAddress
from predictor.server.binding import check_socket, explain_bind_error
from predictor.server.certificates import Certificates
from predictor.server.settings import ServerLimits
from predictor.server.transport.call import CallHandler
from predictor.server.transport.connection import HttpConnection

if TYPE_CHECKING:
    from pathlib import Path

_CHECKS_PER_LIMIT: Final = 4
_LONGEST_CHECK_S: Final = 1.0
_BACKLOG: Final = 4096
_PAUSE_S: Final = 0.1
"""Pause after a connection could not be accepted, because descriptors are used up."""

_log = logging.getLogger(__name__)


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
        self._accepted: set[socket.socket] = set()
        """Sockets that are not connections yet."""
        self._connections: set[HttpConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
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

    def start(self) -> None:
        """Accept connections."""
        for sock in self._sockets:
            self._start_task(self._accept(sock))
        self._start_task(self._check_times())

    async def stop(self) -> None:
        """Stop listening, close every connection and release the address, in any state."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for sock in (*self._sockets, *self._accepted):
            sock.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self._sockets.clear()
        connections = [*self._connections]
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.lost.wait() for connection in connections))

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                sock, _ = await self._loop.sock_accept(listening)
            except OSError as error:
                if error.errno != errno.ECONNABORTED:
                    _log.warning("a connection waits: %s", error.strerror)
                    await asyncio.sleep(_PAUSE_S)
                continue
            self._accepted.add(sock)
            self._start_task(self._connect(sock))

    async def _connect(self, sock: socket.socket) -> None:
        name = f"unix:{next(self._numbers)}" if self._path is not None else None

        def create() -> HttpConnection:
            self._accepted.discard(sock)  # its transport closes it from now on
            return HttpConnection(self._handlers, self._limits, self._connections, name)

        tls = None if self._current is None else self._current().context
        timeout_s = None if tls is None else self._limits.handshake_s
        with suppress(OSError):  # the peer has gone or does not speak TLS
            await self._loop.connect_accepted_socket(create, sock, ssl=tls, ssl_handshake_timeout=timeout_s)

    async def _check_times(self) -> None:
        limits = self._limits
        shortest_s = min(limits.handshake_s, limits.idle_s, limits.silence_s, limits.age_s)
        while True:
            await asyncio.sleep(min(_LONGEST_CHECK_S, shortest_s / _CHECKS_PER_LIMIT))
            for connection in [*self._connections]:
                connection.check_times(ages=self._current is not None)

    def _start_task(self, work: Any) -> None:
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


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
