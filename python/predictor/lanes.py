"""Threads that do one kind of work each, and how explanations let predictions pass."""

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar, final

from predictor.deadline import Deadline
from predictor.errors import QueueFullError, UnavailableError

ResultT = TypeVar("ResultT")

LOW_PRIORITY = 19
"""The nice value of the thread that explains."""

QUIET_S: Final = 0.01
"""Predictions that come one after the other come closer together than this."""
LONGEST_PAUSE_S: Final = 0.05
"""An explanation takes its next step after this time, however many predictions come."""


class Lane:
    """One thread that does its work in order, and refuses more than it can hold."""

    def __init__(self, name: str, capacity: int, *, gives_way: bool = False) -> None:
        begin = _give_way if gives_way else None
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name, initializer=begin)
        self._places = threading.BoundedSemaphore(capacity)
        self._name, self._capacity = name, capacity

    def submit(self, work: Callable[[], ResultT]) -> Future[ResultT]:
        """Do `work` after all that waits already.

        Raises:
            QueueFullError: too much waits.
            UnavailableError: the lane is closed.
        """
        if not self._places.acquire(blocking=False):
            raise QueueFullError(f"{self._capacity} calls wait for {self._name} already; try again later")
        try:
            future = self._executor.submit(work)
        except RuntimeError as error:
            self._places.release()
            raise UnavailableError("the service is stopping; call again when it is back") from error
        future.add_done_callback(lambda _: self._places.release())
        return future

    def refuse(self) -> None:
        """Accept no more."""
        self._executor.shutdown(wait=False)

    def close(self) -> None:
        """Accept no more, finish what waits."""
        self._executor.shutdown(wait=True)


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

    def __init__(self, deadline: Deadline, traffic: Traffic) -> None:
        self._deadline = deadline
        self._traffic = traffic

    def check(self) -> None:
        """Pause for predictions; raises as `Deadline.check`."""
        self._traffic.pause()
        self._deadline.check()


def _give_way() -> None:
    """Let the other threads run first where cores are short; only Linux has priorities of single threads."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW_PRIORITY)
