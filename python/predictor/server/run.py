"""A server process from start to end."""

import asyncio
import logging
import os
import sys
from typing import NoReturn

from predictor.errors import QuantraError
from predictor.server.announcement import announce
from predictor.server.host import Host, one_line
from predictor.server.logs import LogSettings
from predictor.server.settings import ServerSettings
from predictor.server.stopping import Stopping, stop_signals, watch_parent
from predictor.server.tuning import tuned

_log = logging.getLogger(__name__)


def serve(settings: ServerSettings, log: LogSettings | None = None) -> int:
    """Serve until SIGTERM or SIGINT. The first line on stdout is JSON and means that calls are answered.

    Must be called on the main thread. Signal handlers, switch interval and what the garbage collector looks at are
    restored at the end. A signal while models are loading ends the process itself, with status 0, for nothing
    interrupts what loads them. So does the end of standard input with `parent_watch`.

    Args:
        settings: of the server.
        log: how further processes write their logs, where there are several; None: as `LogSettings()`. This one
            writes as its caller has chosen.

    Returns:
        0 after an orderly end, 1 if the server could not start; one line on stderr then says why.
    """
    try:
        with tuned():
            is_loading = asyncio.run(_serve_alone(settings) if settings.processes == 1 else _supervise(settings, log))
    except QuantraError as error:
        sys.stderr.write(f"{one_line(error)}\n")
        return 1
    if is_loading:
        end_at_once()
    return 0


async def _supervise(settings: ServerSettings, log: LogSettings | None) -> bool:
    """Never whether models were loading: workers do that."""
    from predictor.server.workers.supervisor import supervise

    await supervise(settings, log or LogSettings())
    return False


async def _serve_alone(settings: ServerSettings) -> bool:
    """Whether it was asked to end while models were loading."""
    host, stopping = Host(settings), Stopping()
    with stop_signals(stopping):
        try:
            if settings.parent_watch:
                watch_parent(stopping)
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
    return False


def end_at_once() -> NoReturn:
    """End although a thread is loading: ending in order would wait for it, and nothing of it is worth keeping."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
