"""A gRPC server at one address."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from predictor.server.address import Listening, SocketAddress
from predictor.server.admission import Admission, IncomingRequests
from predictor.server.binding import bind
from predictor.server.connection_shutdown import cut
from predictor.server.health_service import ServiceRegistrar, descriptor_pool
from predictor.server.monitoring import AccessLog, CallObservers
from predictor.server.servicer import CALLS, CallHandler, ServiceEndpoint, Servicer
from predictor.server.settings import ServerLimits
from predictor.server.token_guard import TokenGuard

_CLOSE_TIMEOUT_S: Final = 0.2
"""Time to send responses and for health watchers to disconnect after the last call in flight."""

_PING_INTERVAL_MS: Final = 900
"""Shortest interval between accepted pings; below 1 s, because pings once per second may come early."""


@final
class Listener:
    """A server at one address, on the running event loop.

    Call `bind`, `start` (responds that models are loading), `serve` (answers calls) and `drain` once each, in this
    order; `serve` may precede `start`. `close` works at any time.

    Args:
        address: Address to listen on.
        limits: Limits of calls and connections.
        offers: Services at this address.
        guard: Checks tokens; None: no tokens needed.
        credentials: TLS credentials; None: no TLS.
        observers: Observers of its calls; None: the access log.
        is_shared: As for `bind`.
    """

    def __init__(
        self,
        address: Listening,
        limits: ServerLimits,
        offers: Sequence[ServiceEndpoint] = CALLS,
        guard: TokenGuard | None = None,
        credentials: "grpc.ServerCredentials | None" = None,
        *,
        observers: CallObservers | None = None,
        is_shared: bool = False,
    ) -> None:
        self._services = tuple(offer.service.full_name for offer in offers)
        self._address = address
        self._credentials = credentials
        self._is_shared = is_shared
        self._limits = limits
        self._admission, self._arrivals = Admission(limits), IncomingRequests(limits)
        self._arrivals_of_grpc = IncomingRequests(limits)
        observers, guard = observers or CallObservers([AccessLog()]), guard or TokenGuard()
        self._servicers = [
            Servicer(offer, guard, observers, self._admission, self._arrivals, limits) for offer in offers
        ]
        self._health = health.aio.HealthServicer()  # pyright: ignore[reportAttributeAccessIssue] - the stubs lack it
        self._healthy: frozenset[str] = frozenset()
        self._server = grpc.aio.server(options=_options(limits, has_tls=credentials is not None, is_shared=is_shared))
        self._has_begun = False
        self._place: int | str = 0
        """Bound port or socket path."""
        self._timeout_tasks: list[asyncio.Task[None]] = []

    def bind(self) -> int:
        """Bind the address before models load, so that a conflict shows early; as `binding.bind`."""
        port = bind(self._server, self._address, self._credentials, is_shared=self._is_shared)
        self._place = str(self._address.path) if isinstance(self._address, SocketAddress) else port
        return port

    async def start(self) -> None:
        """Respond that models are loading: UNAVAILABLE to calls, NOT_SERVING to health checks."""
        self._server.add_generic_rpc_handlers([servicer.handler() for servicer in self._servicers])
        registrar = ServiceRegistrar(self._server, Admission(self._limits), self._arrivals_of_grpc)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, registrar)
        if self._address.is_loopback:  # reflection would help attackers
            names = (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflecting = reflection.aio.ReflectionServicer(names, pool=descriptor_pool())
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflecting, registrar)
        for name in self._health_names:
            if name not in self._healthy:
                await self._health.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._server.start()
        self._has_begun = True
        self._timeout_tasks = [
            asyncio.create_task(arrivals.end_slow_requests()) for arrivals in (self._arrivals, self._arrivals_of_grpc)
        ]

    async def serve(self, calls: CallHandler, models: Iterable[str]) -> None:
        """Answer calls; health becomes SERVING for the server, its services and these models."""
        for servicer in self._servicers:
            servicer.serve(calls)
        await self.set_health(models)

    async def set_health(self, models: Iterable[str]) -> None:
        """Set the health of these models to SERVING, and of removed ones to NOT_SERVING."""
        healthy = frozenset((*self._health_names, *models))
        for name in healthy - self._healthy:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        for name in self._healthy - healthy:
            await self._health.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
        self._healthy = healthy

    @property
    def _health_names(self) -> tuple[str, ...]:
        """Health names other than models: the server and its services."""
        return ("", *self._services)

    async def drain(self) -> None:
        """Report NOT_SERVING, reject new calls as UNAVAILABLE, let calls in flight finish, and close.

        Streams end after the responses to their pending requests.
        """
        await self._health.enter_graceful_shutdown()
        self._admission.close()
        for servicer in self._servicers:
            servicer.drain()
        try:
            await asyncio.wait_for(self._admission.idle(), self._limits.drain_s)
        except TimeoutError:
            pass
        else:
            await asyncio.sleep(_CLOSE_TIMEOUT_S)
        cut(self._place)
        await self._stop(None)

    async def _stop(self, grace_s: float | None) -> None:
        for task in self._timeout_tasks:
            task.cancel()
        await self._server.stop(grace_s)

    async def close(self) -> None:
        """Release the address immediately, in any state."""
        if not self._has_begun:
            await self._server.start()  # gRPC releases the address of a started server only
        await self._stop(None)


def _options(limits: ServerLimits, *, has_tls: bool, is_shared: bool) -> tuple[tuple[str, int], ...]:
    age = (("grpc.max_connection_age_ms", round(1000 * limits.age_s)),) if has_tls else ()
    return (
        *age,
        ("grpc.max_receive_message_length", limits.receive_bytes),
        ("grpc.max_send_message_length", limits.send_bytes),
        ("grpc.max_metadata_size", limits.metadata_bytes),
        ("grpc.absolute_max_metadata_size", limits.metadata_bytes),
        # Undocumented; the default of 1000 drops calls without a reason.
        ("grpc.server.max_pending_requests", limits.pending_calls),
        ("grpc.server.max_pending_requests_hard_limit", limits.pending_calls),
        # Accept keepalive pings once per second without open calls.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _PING_INTERVAL_MS),
        ("grpc.server_handshake_timeout_ms", round(1000 * limits.handshake_s)),
        ("grpc.max_connection_idle_ms", round(1000 * limits.idle_s)),
        ("grpc.keepalive_time_ms", round(1000 * limits.silence_s)),
        ("grpc.keepalive_timeout_ms", round(1000 * limits.silence_s)),
        ("grpc.http2.ping_timeout_ms", round(1000 * limits.silence_s)),  # default 60 s overrides keepalive_timeout_ms
        # Otherwise gRPC buffers megabytes of each request on a fast connection before it is read.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.so_reuseport", int(is_shared)),  # if not shared, a second server on the port must fail
    )
