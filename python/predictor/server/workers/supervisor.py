"""The main function of a supervisor process."""

import logging
from dataclasses import replace

from predictor.server.address import Address
from predictor.server.binding import reserved
from predictor.server.lifecycle_calls import LoadLifecycle
from predictor.server.listen_addresses import ListenAddresses, announce
from predictor.server.logs import LogSettings
from predictor.server.settings import ServerSettings
from predictor.server.shutdown_signal import ShutdownSignal, end_with_parent, stop_signals
from predictor.server.workers.endpoint import SupervisorEndpoint
from predictor.server.workers.messages import LoadModels
from predictor.server.workers.pool import WorkerPool

_log = logging.getLogger(__name__)


async def supervise(settings: ServerSettings, log: LogSettings, load_lifecycle: LoadLifecycle | None = None) -> bool:
    """Serve with `settings.processes` workers until a shutdown request.

    Returns:
        Whether this process must exit immediately: its parent has exited, or versions are being compared.

    Raises:
        ConfigurationError: an address is in use, or workers cannot serve.
    """
    shutdown = ShutdownSignal()
    with stop_signals(shutdown, parent_watch=settings.parent_watch), reserved(_address_of(settings)) as address:
        if settings.parent_watch:
            end_with_parent(shutdown)
        own = replace(settings, listen=address, admin_listen=None, processes=1, parent_watch=False)
        pool = WorkerPool(LoadModels(own, log), settings.processes)
        endpoint = SupervisorEndpoint(settings, pool, load_lifecycle)
        try:
            await _serve(pool, endpoint, endpoint.bind(address.port), shutdown)
        finally:
            await pool.close()
            await endpoint.close()
    return shutdown.orphaned.is_set() or endpoint.is_busy


async def _serve(
    pool: WorkerPool, endpoint: SupervisorEndpoint, ports: ListenAddresses, shutdown: ShutdownSignal
) -> None:
    await endpoint.start()
    _log.info("starting the workers")
    try:
        if await shutdown.until(pool.start()):
            await endpoint.serve()
            announce(ports)
            await shutdown.until(pool.keep())
    finally:
        if shutdown.requested.is_set():
            _log.info("stopping: calls in flight may finish")
        await shutdown.drained(endpoint.drain())
        await pool.drain(shutdown.orphaned)


def _address_of(settings: ServerSettings) -> Address:
    assert isinstance(settings.listen, Address)  # noqa: S101 - checked by the settings
    return settings.listen
