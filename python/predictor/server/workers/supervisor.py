"""A server of several processes, from start to end."""

import logging
from dataclasses import replace

from predictor.server.address import Address
from predictor.server.announcement import announce
from predictor.server.host import ports_of
from predictor.server.logs import LogSettings
from predictor.server.settings import ServerSettings
from predictor.server.stopping import Stopping, stop_signals, watch_parent
from predictor.server.workers.door import Door
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
    with stop_signals(stopping), reserved(_port_of(settings)) as address:
        if settings.parent_watch:
            watch_parent(stopping)
        own = replace(settings, listen=address, admin_listen=None, processes=1, parent_watch=False)
        team = Team(Start(own, log), settings.processes)
        door = None if settings.admin_listen is None else Door(settings.admin_listen, settings)
        try:
            ports = ports_of(settings, address.port, None if door is None else door.bind(), None)
            if door is not None:
                await door.start()
            _log.info("starting %d workers", settings.processes)
            try:
                if await stopping.until(team.start()):
                    if door is not None:
                        await door.serve(team)
                    announce(ports)
                    await stopping.until(team.keep())
            finally:
                if stopping.asked.is_set():
                    _log.info("stopping: calls in flight may finish")
                if door is not None:
                    await stopping.drained(door.drain())
                await team.drain(stopping.orphaned)
        finally:
            await team.close()
            if door is not None:
                await door.close()
    return stopping.orphaned.is_set()


def _port_of(settings: ServerSettings) -> Address:
    assert isinstance(settings.listen, Address)  # noqa: S101 - the settings refuse others for several processes
    return settings.listen
