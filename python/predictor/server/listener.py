"""A gRPC server at one address."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, final

from predictor.server.address import Listening
from predictor.server.admission import Admission, IncomingRequests
from predictor.server.health_service import HEALTH, REFLECTION, GrpcServices
from predictor.server.monitoring import AccessLog, CallObservers
from predictor.server.servicer import CALLS, CallHandler, ServiceEndpoint, Servicer
from predictor.server.settings import ServerLimits
from predictor.server.token_guard import TokenGuard
from predictor.server.transport import HttpServer

if TYPE_CHECKING:
    from predictor.server.certificates import Certificates

_CLOSE_TIMEOUT_S: Final = 0.2
"""Time to send responses and for health watchers to disconnect after the last call in flight."""


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
        certificates: Returns the certificates; None: no TLS.
        observers: Observers of its calls; None: the access log.
        is_shared: Whether several processes share the port, which must be reserved.
    """

    def __init__(
        self,
        address: Listening,
        limits: ServerLimits,
        offers: Sequence[ServiceEndpoint] = CALLS,
        guard: TokenGuard | None = None,
        certificates: "Callable[[], Certificates] | None" = None,
        *,
        observers: CallObservers | None = None,
        is_shared: bool = False,
    ) -> None:
        self._services = tuple(offer.service.full_name for offer in offers)
        self._address = address
        self._limits = limits
        self._admission, self._arrivals = Admission(limits), IncomingRequests(limits)
        observers, guard = observers or CallObservers([AccessLog()]), guard or TokenGuard()
        self._servicers = [
            Servicer(offer, guard, observers, self._admission, self._arrivals, limits) for offer in offers
        ]
        self._grpc = GrpcServices(limits)
        self._healthy: frozenset[str] = frozenset()
        self._server = HttpServer(limits, certificates, is_shared=is_shared)
        self._timeout_task: asyncio.Task[None] | None = None

    def bind(self) -> int:
        """Bind the address before models load, so that a conflict shows early; as `HttpServer.bind`."""
        return self._server.bind(self._address)

    async def start(self) -> None:
        """Respond that models are loading: UNAVAILABLE to calls, NOT_SERVING to health checks."""
        for servicer in self._servicers:
            self._server.add_handlers(servicer.name, servicer.handlers())
        self._server.add_handlers(HEALTH, self._grpc.health_handlers())
        if self._address.is_loopback:  # reflection would help attackers
            self._server.add_handlers(REFLECTION, self._grpc.reflection_handlers(self._services))
        self._grpc.set_health(frozenset(self._health_names) - self._healthy, serving=False)
        await self._server.start()
        self._timeout_task = asyncio.create_task(self._arrivals.end_slow_requests())

    async def serve(
        self, calls: CallHandler, models: Iterable[str], others: Mapping[str, CallHandler] | None = None
    ) -> None:
        """Answer calls; health becomes SERVING for the server, its services and these models.

        Args:
            calls: The calls of all services that have none in `others`.
            models: Names of the models.
            others: The calls of further services, by their full names.
        """
        for servicer in self._servicers:
            servicer.serve((others or {}).get(servicer.name, calls))
        await self.set_health(models)

    async def set_health(self, models: Iterable[str]) -> None:
        """Set the health of these models to SERVING, and of removed ones to NOT_SERVING."""
        healthy = frozenset((*self._health_names, *models))
        self._grpc.set_health(healthy - self._healthy, serving=True)
        self._grpc.set_health(self._healthy - healthy, serving=False)
        self._healthy = healthy

    @property
    def _health_names(self) -> tuple[str, ...]:
        """Health names other than models: the server and its services."""
        return ("", *self._services)

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
        """Release the address immediately, in any state."""
        if self._timeout_task is not None:
            self._timeout_task.cancel()
        await self._server.stop()
