"""The main function of a server process."""

import logging
import sys

from predictor.errors import QuantraError
from predictor.server.host import Host, join_lines
from predictor.server.lifecycle_calls import LoadLifecycle
from predictor.server.logs import LogSettings
from predictor.server.process import ShutdownSignal, end_with_parent, exit_now, handle_signals, run, tune_process
from predictor.server.settings import ServerSettings

_log = logging.getLogger(__name__)


def serve(settings: ServerSettings, log: LogSettings | None = None, load_lifecycle: LoadLifecycle | None = None) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP. The first line on stdout is JSON and means that the server is ready.

    Call it on the main thread. It restores signal handlers, switch interval and garbage collector settings at the end.
    A signal during loading exits the process with status 0, because loading cannot be interrupted. With
    `parent_watch`, the end of standard input exits the process after the calls in flight.

    Args:
        settings: Settings of the server.
        log: Log settings of worker processes; None: `LogSettings()`. This process keeps its own logging.
        load_lifecycle: Creates the lifecycle of the models for LifecycleService; None: its calls are rejected.

    Returns:
        0 after a clean shutdown, 1 if the server could not start, with the reason on stderr.
    """
    try:
        with tune_process():
            if settings.processes == 1:
                must_exit = run(_serve_here(settings, load_lifecycle))
            else:
                from predictor.server.workers.supervisor import supervise

                must_exit = run(supervise(settings, log or LogSettings(), load_lifecycle))
    except QuantraError as error:
        sys.stderr.write(f"{join_lines(error)}\n")
        return 1
    if must_exit:
        exit_now()
    return 0


async def _serve_here(settings: ServerSettings, load_lifecycle: LoadLifecycle | None) -> bool:
    """Run in this process.

    Returns:
        True if the process must exit without cleanup, because models are loading or compared, or the parent is gone.
    """
    host, shutdown = Host(settings, load_lifecycle=load_lifecycle), ShutdownSignal()
    with handle_signals(shutdown, parent_watch=settings.parent_watch):
        try:
            if settings.parent_watch:
                end_with_parent(shutdown)
            addresses = host.bind()
            await host.start()
            if not await shutdown.run(host.load()):
                _log.info("stopping before the models are loaded")
                return True
            host.serve()
            addresses.announce()
            await shutdown.requested.wait()
            _log.info("stopping: calls in flight may finish")
            await shutdown.drain(host.drain())
        finally:
            await host.close()
    return shutdown.orphaned.is_set() or host.is_busy
