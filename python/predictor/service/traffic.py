"""How explanations give way to predictions: they pause between their steps while predictions come.

Two threads of one interpreter hold each other up, whatever the cores.
"""

import math
import time
from collections.abc import Callable
from typing import Final, final

from predictor.errors import DeadlineExceededError
from predictor.instance import Cancellation

QUIET_S: Final = 0.01
"""Predictions closer together than this count as one stream."""
LONGEST_PAUSE_S: Final = 0.05
"""An explanation takes its next step after this time, however many predictions come."""


@final
class Traffic:
    """When a prediction was last asked for, so that other work can pause meanwhile."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._last_s = -math.inf

    def note(self) -> None:
        """A prediction was asked for."""
        self._last_s = self._clock()

    def pause(self) -> None:
        """Wait until predictions have stopped coming, at most LONGEST_PAUSE_S."""
        longest_s = self._clock() + LONGEST_PAUSE_S
        while self._clock() < min(self._last_s + QUIET_S, longest_s):
            self._sleep(QUIET_S / 4)


@final
class Yielding:
    """A deadline at which predictions pass first."""

    def __init__(self, deadline: Cancellation, traffic: Traffic) -> None:
        self._deadline = deadline
        self._traffic = traffic

    def check(self) -> None:
        """Pause for predictions; raises as `Deadline.check`."""
        self._traffic.pause()
        self._deadline.check()


@final
class Limited:
    """A deadline, and a time limit of the server's own that counts from now."""

    def __init__(self, deadline: Cancellation, longest_s: float) -> None:
        self._deadline = deadline
        self._longest_s = longest_s
        self._ends_at_s = time.monotonic() + longest_s

    def check(self) -> None:
        """Raises as `Deadline.check`, and DeadlineExceededError once the server's own limit is over."""
        self._deadline.check()
        if time.monotonic() >= self._ends_at_s:
            raise DeadlineExceededError(
                f"one explanation may take {self._longest_s:g} seconds here; ask for fewer symbols or targets",
                metadata={"most_s": f"{self._longest_s:g}"},
            )
