"""When a checkpoint is due."""

from collections.abc import Callable
from typing import final


@final
class Schedule:
    """Asks for a checkpoint after so many windows or so many seconds, whichever comes first.

    Args:
        every_windows: Windows from one to the next; None for no such rule.
        every_seconds: Seconds from one to the next; None for no such rule.
        clock: The time in seconds, which never goes back.
    """

    def __init__(self, *, every_windows: int | None, every_seconds: float | None, clock: Callable[[], float]) -> None:
        self._windows = every_windows
        self._seconds = every_seconds
        self._clock = clock
        self._since = clock()

    def is_due(self, windows: int) -> bool:
        """Whether one is due, `windows` being done since the start of the training."""
        if self._windows is not None and windows % self._windows == 0:
            return True
        return self._seconds is not None and self._clock() - self._since >= self._seconds

    def restart(self) -> None:
        """Count the seconds from now."""
        self._since = self._clock()
