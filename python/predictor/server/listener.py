"""A gRPC server at one address: its sockets and connections, its services and their health."""

import asyncio
import itertools
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, final

from predictor.server.addresses import BACKLOG, Address, ListenAddress, UnixAddress, bind
from predictor.server.admission import Admission, RequestReceiver
from predictor.server.credentials import Certificates, make_current_context
from predictor.server.health_service import HEALTH, REFLECTION, GrpcServices
from predictor.server.observed_calls import AccessLog, CallObservers
from predictor.server.servicer import PUBLIC_ENDPOINTS, CallHandler, ServiceEndpoint, Servicer
from predictor.server.settings import ServerLimits
from predictor.server.tokens import TokenGuard
from predictor.server.transport.call import MethodHandler
from predictor.server.transport.connection import HttpConnection, OpenConnections

_CLOSE_TIMEOUT_S: Final = 0.2
"""Time to send responses and for health watchers to disconnect after the last call in flight."""
_CHECKS_PER_LIMIT: Final = 4
_MAX_CHECK_S: Final = 1.0
_ACCEPT_S: Final = 0.01
"""Time in which the loop hands over the connections that it has just accepted: a few of its turns."""


@final
class Listener:
    """A server at one address, on the running event loop.

    Call `bind`, `start` (responds that models are loading), `serve` (answers calls) and `drain` once each, in this
    order; `serve` may precede `start`. `close` works at any time.

    Args:
        address: Address to listen on.
        limits: Limits of calls and connections.
        endpoints: Services at this address.
        guard: Checks tokens; None: no tokens needed.
        certificates: Returns the certificates of the next connection; None: no TLS. A Unix socket never has TLS.
        observers: Observers of its calls; None: the access log.
        is_shared: Whether several processes share the port, which must be reserved.
    """

    def __init__(
        self,
        address: ListenAddress,
        limits: ServerLimits,
        endpoints: Sequence[ServiceEndpoint] = PUBLIC_ENDPOINTS,
        guard: TokenGuard | None = None,
        certificates: Callable[[], Certificates] | None = None,
        *,
        observers: CallObservers | None = None,
        is_shared: bool = False,
    ) -> None:
        self._address, self._limits, self._is_shared = address, limits, is_shared
        self._certificates = certificates if isinstance(address, Address) else None
        self._loop = asyncio.get_running_loop()
        self._names = tuple(endpoint.service.full_name for endpoint in endpoints)
        self._admission, self._receiver = Admission(limits), RequestReceiver(limits)
        observers, guard = observers or CallObservers([AccessLog()]), guard or TokenGuard()
        self._servicers = [
            Servicer(endpoint, guard, observers, self._admission, self._receiver, limits) for endpoint in endpoints
        ]
        self._grpc = GrpcServices(limits)
        self._healthy: frozenset[str] = frozenset()
        self._handlers: dict[str, MethodHandler] = {}
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._connections = OpenConnections(limits.connections)
        self._numbers = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []

    def bind(self) -> ListenAddress:
        """Bind the address before models load, so that a conflict shows early.

        Returns:
            The address, with the chosen port if it was 0.

        Raises:
            ConfigurationError: It is in use, not permitted or not of this machine, or others can enter its folder.
        """
        self._sockets = bind(self._address, is_shared=self._is_shared)
        if isinstance(self._address, UnixAddress):
            return self._address
        return replace(self._address, port=self._sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Respond that models are loading: UNAVAILABLE to calls, NOT_SERVING to health checks."""
        for servicer in self._servicers:
            self._add_handlers(servicer.name, servicer.create_handlers())
        self._add_handlers(HEALTH, self._grpc.create_health_handlers())
        if self._address.is_loopback:  # reflection would help attackers
            self._add_handlers(REFLECTION, self._grpc.create_reflection_handlers(self._names))
        self._grpc.set_health({"", *self._names} - self._healthy, serving=False)
        self._servers = [await self._accept(sock) for sock in self._sockets]
        coroutines = (self._check_connections(), self._receiver.end_slow_requests())
        self._tasks = [self._loop.create_task(coroutine) for coroutine in coroutines]

    def serve(self, calls: CallHandler, models: Iterable[str], others: Mapping[str, CallHandler] | None = None) -> None:
        """Answer calls; health becomes SERVING for the server, its services and these models.

        Args:
            calls: The calls of all services that have none in `others`.
            models: Names of the models.
            others: The calls of further services, by their full names.
        """
        for servicer in self._servicers:
            servicer.serve((others or {}).get(servicer.name, calls))
        self.set_health(models)

    def set_health(self, models: Iterable[str]) -> None:
        """Set the health of these models to SERVING, and of removed ones to NOT_SERVING."""
        healthy = frozenset(("", *self._names, *models))
        self._grpc.set_health(healthy - self._healthy, serving=True)
        self._grpc.set_health(self._healthy - healthy, serving=False)
        self._healthy = healthy

    async def drain(self) -> None:
        """Report NOT_SERVING, reject new calls as UNAVAILABLE, let calls in flight finish, and close.

        Streams end after the responses to their pending requests.
        """
        self._grpc.drain()
        self._admission.close()
        for servicer in self._servicers:
            servicer.drain()
        try:
            await asyncio.wait_for(self._admission.idle(), self._limits.drain_s)
        except TimeoutError:
            pass
        else:
            await asyncio.sleep(_CLOSE_TIMEOUT_S)
        await self.close()

    async def close(self) -> None:
        """Close every connection and release the address immediately, in any state."""
        for task in self._tasks:
            task.cancel()
        for server in self._servers:
            server.close()
        for sock in self._sockets:
            sock.close()
        if self._sockets and isinstance(self._address, UnixAddress):
            self._address.path.unlink(missing_ok=True)
        await asyncio.sleep(_ACCEPT_S)
        await self._connections.close()

    def _add_handlers(self, service: str, handlers: Mapping[str, MethodHandler]) -> None:
        self._handlers |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    async def _accept(self, sock: socket.socket) -> asyncio.Server:
        """Accept connections to a listening socket."""
        if isinstance(self._address, UnixAddress):
            return await self._loop.create_unix_server(self._create_connection, sock=sock, backlog=BACKLOG)
        if self._certificates is None:
            return await self._loop.create_server(self._create_connection, sock=sock, backlog=BACKLOG)
        context, timeout_s = make_current_context(self._certificates), self._limits.handshake_s
        return await self._loop.create_server(
            self._create_connection, sock=sock, backlog=BACKLOG, ssl=context, ssl_handshake_timeout=timeout_s
        )

    def _create_connection(self) -> HttpConnection:
        name = f"unix:{next(self._numbers)}" if isinstance(self._address, UnixAddress) else None
        return HttpConnection(self._handlers, self._limits, self._connections, name)

    async def _check_connections(self) -> None:
        limits = self._limits
        shortest_s = min(limits.handshake_s, limits.idle_s, limits.silence_s, limits.age_s)
        while True:
            await asyncio.sleep(min(_MAX_CHECK_S, shortest_s / _CHECKS_PER_LIMIT))
            self._connections.check_times(limit_age=self._certificates is not None)
            self._connections.limit_unread(limits.unread_bytes)
