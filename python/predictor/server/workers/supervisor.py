"""A server of several processes, from start to end."""

import logging
from dataclasses import replace

from predictor.server.announcement import announce
from predictor.server.host import Ports
from predictor.server.listener import Listener
from predictor.server.logs import LogSettings
from predictor.server.servicer import ADMIN
from predictor.server.settings import ServerSettings
from predictor.server.stopping import Stopping, stop_signals, watch_parent
from predictor.server.workers.changes import Changes
from predictor.server.workers.messages import Start
from predictor.server.workers.port import reserved
from predictor.server.workers.team import Team

_log = logging.getLogger(__name__)


async def supervise(settings: ServerSettings, log: LogSettings) -> bool:
    """Serve with `settings.processes` workers until this process is told to end.

    Returns:
        Whether whoever started it is gone.

    Raises:
        ConfigurationError: an address is in use, or workers cannot serve.
    """
    stopping = Stopping()
    with stop_signals(stopping), reserved(settings.listen) as address:
        if settings.parent_watch:
            watch_parent(stopping)
        own = replace(settings, listen=address, admin_listen=None, processes=1, parent_watch=False)
        team = Team(Start(own, log), settings.processes)
        admin = None if settings.admin_listen is None else Listener(settings.admin_listen, settings.limits, ADMIN)
        try:
            ports = Ports(address.port, None if admin is None else admin.bind())
            if admin is not None:
                await admin.start()
            _log.info("starting %d workers", settings.processes)
            try:
                if await stopping.until(team.start()):
                    if admin is not None:
                        await admin.serve(Changes(team), ())
                    announce(ports)
                    await stopping.until(team.keep())
            finally:
                if stopping.asked.is_set():
                    _log.info("stopping: calls in flight may finish")
                if admin is not None:
                    await stopping.drained(admin.drain())
                await team.drain(stopping.orphaned)
        finally:
            await team.close()
            if admin is not None:
                await admin.close()
    return stopping.orphaned.is_set()
