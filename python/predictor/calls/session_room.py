"""How many sessions are open, and how many bytes they hold, within the bounds of a stream and of the process."""

import threading
from typing import Final, final

from predictor.errors import QueueFullError
from predictor.limits import ServiceLimits

_RETRY_AFTER_S: Final = 1.0
"""Sessions stay longer than calls."""


@final
class SessionRoom:
    """Room for sessions, part of a larger one or the largest. Thread-safe.

    Args:
        most: sessions.
        most_bytes: of all together.
        where: what has these bounds, for messages.
        within: the larger room.
    """

    def __init__(self, most: int, most_bytes: int, where: str, within: "SessionRoom | None" = None) -> None:
        self._most, self._most_bytes, self._where = most, most_bytes, where
        self._within = within
        self._lock = threading.Lock()
        self._sessions = self._bytes = 0

    @classmethod
    def of_process(cls, limits: ServiceLimits) -> "SessionRoom":
        """The largest."""
        return cls(limits.sessions, limits.session_bytes, "this server")

    def of_stream(self, limits: ServiceLimits) -> "SessionRoom":
        """That of one stream in this one."""
        return SessionRoom(limits.sessions_per_stream, limits.session_bytes_per_stream, "this stream", self)

    @property
    def held(self) -> tuple[int, int]:
        """Sessions that are open, and the bytes that they hold."""
        with self._lock:
            return self._sessions, self._bytes

    def enter(self) -> None:
        """One more session.

        Raises:
            QueueFullError: there are as many as may be, and nothing has changed.
        """
        self.add(1, 0)

    def grow(self, size: int) -> None:
        """So many bytes more, or fewer, where the number is negative; raises as `enter`."""
        self.add(0, size)

    def leave(self, size: int) -> None:
        """One session fewer, with its bytes."""
        self.add(-1, -size)

    def add(self, sessions: int, size: int) -> None:
        """More of both, or fewer, here and in the larger room; raises as `enter`."""
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
