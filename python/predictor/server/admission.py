"""Which calls may come in: a bound on those in flight, and an end when the server stops."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import final

from predictor.errors import QueueFullError, UnavailableError


@final
class Admission:
    """Counts calls in flight on one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_flight = 0
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def call(self) -> Generator[None]:
        """One call, from its arrival to its answer.

        Raises:
            UnavailableError: the server is stopping.
            QueueFullError: as many calls as may be are in flight.
        """
        if self._is_closed:
            raise UnavailableError("the server is stopping; ask again in a moment, or another server")
        if self._in_flight >= self._most:
            raise QueueFullError(
                f"{self._in_flight} calls are in flight already, at most {self._most}; ask again in a moment",
                metadata={"have": str(self._in_flight), "most": str(self._most)},
            )
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()

    def close(self) -> None:
        """Let no further call in."""
        self._is_closed = True

    async def idle(self) -> None:
        """Wait until no call is in flight."""
        await self._idle.wait()
