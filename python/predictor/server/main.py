"""A server process from start to end."""

import logging
import os
import sys
from typing import NoReturn

from predictor.errors import QuantraError
from predictor.server.host import Host, one_line
from predictor.server.listen_addresses import announce
from predictor.server.logs import LogSettings
from predictor.server.process_tuning import run, tuned
from predictor.server.settings import ServerSettings
from predictor.server.shutdown_signal import ShutdownSignal, end_with_parent, stop_signals

_log = logging.getLogger(__name__)


def serve(settings: ServerSettings, log: LogSettings | None = None) -> int:
    """Serve until SIGTERM or SIGINT. The first line on stdout is JSON and means that calls are answered.

    Must be called on the main thread. Signal handlers, switch interval and what the garbage collector looks at are
    restored at the end. A signal while models are loading ends the process itself, with status 0, for nothing
    interrupts what loads them. So does the end of standard input with `parent_watch`, once calls in flight have ended.

    Args:
        settings: of the server.
        log: how further processes write their logs, where there are several; None: as `LogSettings()`. This one
            writes as its caller has chosen.

    Returns:
        0 after an orderly end, 1 if the server could not start; one line on stderr then says why.
    """
    try:
        with tuned():
            ends_at_once = run(_serve_alone(settings) if settings.processes == 1 else _supervise(settings, log))
    except QuantraError as error:
        sys.stderr.write(f"{one_line(error)}\n")
        return 1
    if ends_at_once:
        end_at_once()
    return 0


async def _supervise(settings: ServerSettings, log: LogSettings | None) -> bool:
    """Whether the process itself shall end."""
    from predictor.server.workers.supervisor import supervise

    return await supervise(settings, log or LogSettings())


async def _serve_alone(settings: ServerSettings) -> bool:
    """Whether the process itself shall end: models are still being loaded, or nobody is left to wait for it."""
    host, stopping = Host(settings), ShutdownSignal()
    with stop_signals(stopping, parent_watch=settings.parent_watch):
        try:
            if settings.parent_watch:
                end_with_parent(stopping)
            ports = host.bind()
            await host.start()
            if not await stopping.until(host.load()):
                _log.info("stopping before the models are loaded")
                return True
            await host.serve()
            announce(ports)
            await stopping.asked.wait()
            _log.info("stopping: calls in flight may finish")
            await stopping.drained(host.drain())
        finally:
            await host.close()
    return stopping.orphaned.is_set()


def end_at_once(status: int = 0) -> NoReturn:
    """End without what an orderly end waits for: threads that load, and the second that Python takes to undo torch."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
