"""Preemption of explanations by predictions.

Explanations pause between steps while predictions arrive: threads of one interpreter slow each other down, however
many cores there are.
"""

import time
from collections.abc import Callable
from typing import Final, final

from predictor.call_context import Deadline
from predictor.errors import DeadlineExceededError
from predictor.service.request_queue import RequestQueue

QUIET_S: Final = 0.01
"""Predictions closer together than this count as continuous activity."""
MAX_PAUSE_S: Final = 0.2
"""Longest pause of an explanation between two steps."""


@final
class PredictionActivity:
    """Whether predictions are in progress, or ended a moment ago.

    Args:
        predictions: Their queue.
        clock: As for the queue.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        predictions: RequestQueue,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._predictions = predictions
        self._clock, self._sleep = clock, sleep

    def wait_until_quiet(self) -> None:
        """Block until no prediction ran for QUIET_S, at most MAX_PAUSE_S."""
        ends_at_s = self._clock() + MAX_PAUSE_S
        while self._is_busy() and self._clock() < ends_at_s:
            self._sleep(QUIET_S / 4)

    def _is_busy(self) -> bool:
        return self._predictions.load.calls > 0 or self._clock() < self._predictions.last_release_at_s + QUIET_S


@final
class ExplanationDeadline:
    """The deadline of a step of an explanation, shortened to a time limit of the server that starts now.

    Its check lets predictions run first.
    """

    def __init__(self, deadline: Deadline, activity: PredictionActivity, max_s: float) -> None:
        self._deadline, self._activity = deadline, activity
        self._max_s = max_s
        self._ends_at_s = time.monotonic() + max_s

    def check(self) -> None:
        """Pause while predictions run; raises as `CallContext`, and at the limit of the server."""
        self._activity.wait_until_quiet()
        self._deadline.check()
        if time.monotonic() >= self._ends_at_s:
            raise DeadlineExceededError(
                f"the explanation took longer than this server's limit of {self._max_s:g} seconds; "
                "request fewer symbols or targets",
                metadata={"most_s": f"{self._max_s:g}"},
            )
