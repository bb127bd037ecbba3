"""The supervisor's own ports: the admin service and the Prometheus metrics."""

import asyncio
from typing import final

from predictor._pb import prediction_pb2 as pb
from predictor.server.address import Address, Listening
from predictor.server.credential_rotation import CredentialRotation
from predictor.server.lifecycle_calls import LifecycleCalls, LoadLifecycle
from predictor.server.listen_addresses import ListenAddresses, ports_of
from predictor.server.listener import Listener
from predictor.server.monitoring import MetricsPort
from predictor.server.servicer import CHANGES, LIFECYCLE
from predictor.server.settings import ServerSettings
from predictor.server.workers.broadcast import AdminBroadcast
from predictor.server.workers.metric_totals import MetricTotals
from predictor.server.workers.pool import WorkerPool


@final
class SupervisorEndpoint:
    """The supervisor's own addresses, if any, on the running event loop.

    Call `bind`, `start`, `serve` and `drain` in this order; `close` works at any time.

    Args:
        settings: settings of the server.
        pool: workers that execute admin calls.
        load_lifecycle: as for `Host`.

    Raises:
        ConfigurationError: certificates or tokens are invalid.
    """

    def __init__(self, settings: ServerSettings, pool: WorkerPool, load_lifecycle: LoadLifecycle | None = None) -> None:
        self._settings = settings
        self._pool = pool
        self._rotation = CredentialRotation(settings)
        self._admin = None if settings.admin_listen is None else self._create_listener(settings.admin_listen)
        self._loop = asyncio.get_running_loop()
        self._lifecycle = LifecycleCalls(settings, load_lifecycle, self._serve_champion)
        totals = MetricTotals(pool, self._loop)
        self._metrics = None if settings.metrics_port is None else MetricsPort(totals, settings.metrics_port)
        self._rotation_task: asyncio.Task[None] | None = None

    def _create_listener(self, address: Listening) -> Listener:
        certificates = self._rotation.certificates if isinstance(address, Address) else None
        return Listener(address, self._settings.limits, CHANGES, self._rotation.guard, certificates)

    def bind(self, port: int) -> ListenAddresses:
        """Bind the addresses; return all addresses of the server, whose workers share `port`. Raises as `Host.bind`."""
        admin = None if self._admin is None else self._admin.bind()
        return ports_of(self._settings, port, admin, None if self._metrics is None else self._metrics.bind())

    async def start(self) -> None:
        """Start responding that models are loading, and serving the metrics."""
        if self._metrics is not None:
            await self._metrics.start()
        if self._admin is not None:
            await self._admin.start()
            self._rotation_task = asyncio.create_task(self._rotation.follow())

    async def serve(self) -> None:
        """Start executing admin calls."""
        if self._admin is not None:
            await self._admin.serve(AdminBroadcast(self._pool), (), {LIFECYCLE.full_name: self._lifecycle})

    @property
    def is_busy(self) -> bool:
        """Whether a comparison or promotion is in progress, which ends at its next step."""
        return self._lifecycle.is_busy

    def _serve_champion(self, name: str) -> None:
        change = self._pool.change("ReloadModel", pb.ReloadModelRequest(model=name).SerializeToString())
        asyncio.run_coroutine_threadsafe(change, self._loop).result()

    async def drain(self) -> None:
        """Reject new admin calls and let those in progress finish."""
        if self._admin is not None:
            await self._admin.drain()

    async def close(self) -> None:
        """Release everything immediately."""
        if self._rotation_task is not None:
            self._rotation_task.cancel()
        self._lifecycle.drain()
        if self._admin is not None:
            await self._admin.close()
        if self._metrics is not None:
            await self._metrics.close()
