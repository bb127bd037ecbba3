"""The supervisor's own address, where changes of the models are asked for."""

import asyncio
from typing import final

from predictor.server.address import Address, Listening
from predictor.server.listener import Listener
from predictor.server.rotation import Rotation
from predictor.server.servicer import ADMIN
from predictor.server.settings import ServerSettings
from predictor.server.workers.changes import Changes
from predictor.server.workers.team import Team


@final
class Door:
    """Answers the calls of the admin service for all workers: `bind`, `start`, `serve` and `drain` in this order.

    `close` ends it at any time.

    Args:
        address: where.
        settings: of the server, which say who may call.

    Raises:
        ConfigurationError: certificates or tokens cannot be used.
    """

    def __init__(self, address: Listening, settings: ServerSettings) -> None:
        self._rotation = Rotation(settings)
        credentials = self._rotation.credentials() if isinstance(address, Address) else None
        self._listener = Listener(address, settings.limits, ADMIN, self._rotation.guard, credentials)
        self._following: asyncio.Task[None] | None = None

    def bind(self) -> int:
        """Claim the address; as `Listener.bind`."""
        return self._listener.bind()

    async def start(self) -> None:
        """Answer that models are loading."""
        await self._listener.start()
        self._following = asyncio.create_task(self._rotation.follow())

    async def serve(self, team: Team) -> None:
        """Have the team carry out what is asked."""
        await self._listener.serve(Changes(team), ())

    async def drain(self) -> None:
        """Let changes finish, and take no more."""
        await self._listener.drain()

    async def close(self) -> None:
        """Give everything back at once."""
        if self._following is not None:
            self._following.cancel()
        await self._listener.close()
