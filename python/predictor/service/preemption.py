"""How explanations give way to predictions: they pause between their steps while predictions come.

Two threads of one interpreter hold each other up, whatever the cores.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Final, final

from predictor.errors import DeadlineExceededError
from predictor.instance import Cancellation

QUIET_S: Final = 0.01
"""Predictions closer together than this count as one stream."""
LONGEST_PAUSE_S: Final = 0.2
"""An explanation takes its next step after this time, however many predictions come."""


@final
class PredictionActivity:
    """How many predictions are under way and when the last one ended, so that other work can pause meanwhile."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._under_way = 0
        self._last_s = -math.inf

    def begin(self) -> None:
        """A prediction was asked for."""
        with self._lock:
            self._under_way += 1

    def end(self) -> None:
        """It has its answer, or needs none."""
        with self._lock:
            self._under_way -= 1
            self._last_s = self._clock()

    def pause(self) -> None:
        """Wait until no prediction is under way and none has been for a while, at most LONGEST_PAUSE_S."""
        longest_s = self._clock() + LONGEST_PAUSE_S
        while self._is_busy() and self._clock() < longest_s:
            self._sleep(QUIET_S / 4)

    def _is_busy(self) -> bool:
        return self._under_way > 0 or self._clock() < self._last_s + QUIET_S


@final
class PreemptibleDeadline:
    """A deadline at which predictions pass first."""

    def __init__(self, deadline: Cancellation, traffic: PredictionActivity) -> None:
        self._deadline = deadline
        self._traffic = traffic

    def check(self) -> None:
        """Pause for predictions; raises as `Deadline.check`."""
        self._traffic.pause()
        self._deadline.check()


@final
class BoundedDeadline:
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
