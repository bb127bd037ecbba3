"""Limits on the number and bytes of open sessions, per stream and per process."""

import threading
from typing import Final, final

from predictor.errors import QueueFullError
from predictor.limits import ServiceLimits

_RETRY_AFTER_S: Final = 1.0
"""Longer than for calls, because sessions stay open longer."""


@final
class SessionRoom:
    """Counts sessions and bytes against limits, and against those of an outer room. Thread-safe.

    Args:
        most: Largest number of sessions.
        most_bytes: Largest number of bytes in total.
        where: Owner of the limits, for messages.
        within: The outer room.
    """

    def __init__(self, most: int, most_bytes: int, where: str, within: "SessionRoom | None" = None) -> None:
        self._most, self._most_bytes, self._where = most, most_bytes, where
        self._within = within
        self._lock = threading.Lock()
        self._sessions = self._bytes = 0

    @classmethod
    def of_process(cls, limits: ServiceLimits) -> "SessionRoom":
        """Create the room of the whole process."""
        return cls(limits.sessions, limits.session_bytes, "this server")

    def of_stream(self, limits: ServiceLimits) -> "SessionRoom":
        """Create a room for one stream within this one."""
        return SessionRoom(limits.sessions_per_stream, limits.session_bytes_per_stream, "this stream", self)

    @property
    def held(self) -> tuple[int, int]:
        """Number of open sessions and their bytes."""
        with self._lock:
            return self._sessions, self._bytes

    def enter(self) -> None:
        """Add a session.

        Raises:
            QueueFullError: A limit is reached; nothing has changed.
        """
        self.add(1, 0)

    def grow(self, size: int) -> None:
        """Add bytes, or free them if negative; raises as `enter`."""
        self.add(0, size)

    def leave(self, size: int) -> None:
        """Remove a session and its bytes."""
        self.add(-1, -size)

    def add(self, sessions: int, size: int) -> None:
        """Change both counts, here and in the outer room; raises as `enter`."""
        with self._lock:
            self._check(sessions, size)
            if self._within is not None:
                self._within.add(sessions, size)
            self._sessions += sessions
            self._bytes += size

    def _check(self, sessions: int, size: int) -> None:
        if sessions > 0 and self._sessions + sessions > self._most:
            what = f"sessions are open on {self._where}"
            raise QueueFullError.of(what, self._sessions, self._most, retry_after_s=_RETRY_AFTER_S)
        if size > 0 and self._bytes + size > self._most_bytes:
            what = f"bytes of sessions are held by {self._where}, {size} more are wanted"
            raise QueueFullError.of(what, self._bytes, self._most_bytes, retry_after_s=_RETRY_AFTER_S)
