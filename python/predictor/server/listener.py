"""A gRPC server around a service: it claims an address, serves, and drains."""

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
from predictor.server.health_service import ServiceRegistrar, described
from predictor.server.monitoring import AccessLog, CallObservers
from predictor.server.servicer import CALLS, CallHandler, ServiceEndpoint, Servicer
from predictor.server.settings import ServerLimits
from predictor.server.token_guard import TokenGuard

_CLOSE_S: Final = 0.2
"""How long answers may take to be sent, and health watchers to hang up, once no call is in flight."""

_PING_INTERVAL_MS: Final = 900
"""Pings at least so far apart are answered; a client that sends one a second has some that come a little early."""


@final
class Listener:
    """One address, on the running event loop.

    `bind` claims the address, `start` begins to answer that models are loading, `serve` to answer calls, `drain` ends
    it; each is called once, in this order, but `serve` may come before `start`. `close` ends it at any time.

    Args:
        address: where it listens.
        limits: of what it lets in.
        offers: the services whose calls it answers.
        guard: who may call what; None: everybody.
        credentials: for an address of the network; None: without TLS.
        watching: who is told of its calls; None = the log.
        is_shared: as `bind` has it.
    """

    def __init__(
        self,
        address: Listening,
        limits: ServerLimits,
        offers: Sequence[ServiceEndpoint] = CALLS,
        guard: TokenGuard | None = None,
        credentials: "grpc.ServerCredentials | None" = None,
        *,
        watching: CallObservers | None = None,
        is_shared: bool = False,
    ) -> None:
        self._services = tuple(offer.service.full_name for offer in offers)
        self._address = address
        self._credentials = credentials
        self._is_shared = is_shared
        self._limits = limits
        self._admission, self._arrivals = Admission(limits), IncomingRequests(limits)
        self._arrivals_of_grpc = IncomingRequests(limits)
        watching, guard = watching or CallObservers([AccessLog()]), guard or TokenGuard()
        self._servicers = [
            Servicer(offer, guard, watching, self._admission, self._arrivals, limits) for offer in offers
        ]
        self._health = health.aio.HealthServicer()  # pyright: ignore[reportAttributeAccessIssue] - the stubs lack it
        self._healthy: frozenset[str] = frozenset()
        self._server = grpc.aio.server(options=_options(limits, has_tls=credentials is not None, is_shared=is_shared))
        self._has_begun = False
        self._place: int | str = 0
        """Where callers connect, once it is claimed."""
        self._moving: list[asyncio.Task[None]] = []

    def bind(self) -> int:
        """Claim the address before models are loaded, so that a conflict shows at once; as `binding.bind`."""
        port = bind(self._server, self._address, self._credentials, is_shared=self._is_shared)
        self._place = str(self._address.path) if isinstance(self._address, SocketAddress) else port
        return port

    async def start(self) -> None:
        """Answer that models are loading: UNAVAILABLE to calls, NOT_SERVING to questions about health."""
        self._server.add_generic_rpc_handlers([servicer.handler() for servicer in self._servicers])
        adopting = ServiceRegistrar(self._server, Admission(self._limits), self._arrivals_of_grpc)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, adopting)
        if self._address.is_loopback:  # others need not learn what there is to attack
            names = (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflecting = reflection.aio.ReflectionServicer(names, pool=described())
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflecting, adopting)
        for name in self._whole:
            if name not in self._healthy:
                await self._health.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._server.start()
        self._has_begun = True
        self._moving = [
            asyncio.create_task(arrivals.keep_moving()) for arrivals in (self._arrivals, self._arrivals_of_grpc)
        ]

    async def serve(self, calls: CallHandler, models: Iterable[str]) -> None:
        """Answer calls; health says SERVING for the server, for each service's name and for each of these models."""
        for servicer in self._servicers:
            servicer.serve(calls)
        await self.tell_health(models)

    async def tell_health(self, models: Iterable[str]) -> None:
        """Say SERVING for these models, and NOT_SERVING for those that were served before."""
        healthy = frozenset((*self._whole, *models))
        for name in healthy - self._healthy:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        for name in self._healthy - healthy:
            await self._health.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
        self._healthy = healthy

    @property
    def _whole(self) -> tuple[str, ...]:
        """What health tells of beside models: the server and its services."""
        return ("", *self._services)

    async def drain(self) -> None:
        """Say NOT_SERVING, refuse new calls as UNAVAILABLE, let those in flight finish, and close.

        Streams end once what they have asked already is answered.
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
            await asyncio.sleep(_CLOSE_S)
        cut(self._place)
        await self._stop(None)

    async def _stop(self, grace_s: float | None) -> None:
        for moving in self._moving:
            moving.cancel()
        await self._server.stop(grace_s)

    async def close(self) -> None:
        """Give the address back at once, in whatever state the listener is."""
        if not self._has_begun:
            await self._server.start()  # gRPC frees the address of a server that has begun, and of no other
        await self._stop(None)


def _options(limits: ServerLimits, *, has_tls: bool, is_shared: bool) -> tuple[tuple[str, int], ...]:
    age = (("grpc.max_connection_age_ms", round(1000 * limits.age_s)),) if has_tls else ()
    return (
        *age,
        ("grpc.max_receive_message_length", limits.receive_bytes),
        ("grpc.max_send_message_length", limits.send_bytes),
        ("grpc.max_metadata_size", limits.metadata_bytes),
        ("grpc.absolute_max_metadata_size", limits.metadata_bytes),
        # Not documented by gRPC, whose default of 1000 drops calls without a reason; a test sends a burst.
        ("grpc.server.max_pending_requests", limits.pending_calls),
        ("grpc.server.max_pending_requests_hard_limit", limits.pending_calls),
        # Clients that ask each second whether the server is there, with no call under way, are not cut off for it.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _PING_INTERVAL_MS),
        ("grpc.server_handshake_timeout_ms", round(1000 * limits.handshake_s)),
        ("grpc.max_connection_idle_ms", round(1000 * limits.idle_s)),
        ("grpc.keepalive_time_ms", round(1000 * limits.silence_s)),
        ("grpc.keepalive_timeout_ms", round(1000 * limits.silence_s)),
        ("grpc.http2.ping_timeout_ms", round(1000 * limits.silence_s)),  # else a minute, whatever the line above says
        # Else a fast connection is granted megabytes of each request before anybody reads it.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.so_reuseport", int(is_shared)),  # else a second server on the port must fail, not take some calls
    )
