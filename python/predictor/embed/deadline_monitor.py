"""Ends streams at their deadlines; where calls come over a network, gRPC does it."""

import math
import threading
import time
from typing import Final, final

from predictor.calls import OpenCall
from predictor.errors import QuantraError
from predictor.instance import Deadline

_JOIN_S: Final = 5.0
"""How long closing waits for the thread."""


@final
class DeadlineMonitor:
    """Stops calls once their time is over, on a thread of its own that begins with the first of them. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ahead: dict[OpenCall, Deadline] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def watch(self, call: OpenCall, deadline: Deadline) -> None:
        """Stop a call at its deadline, unless it ends before."""
        if not math.isfinite(_ends_s(deadline)):
            return
        with self._changed:
            self._ahead[call] = deadline
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
                self._thread.start()
            self._changed.notify()
        call.ended.add_done_callback(lambda _: self._forget(call))

    def close(self) -> None:
        """Stop no more calls."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _forget(self, call: OpenCall) -> None:
        with self._changed:
            self._ahead.pop(call, None)

    def _run(self) -> None:
        while self._wait():
            self._stop_those_due()

    def _wait(self) -> bool:
        """Wait until a call's time is over; False once no more are stopped."""
        with self._changed:
            while not self._is_closed:
                left_s = min(map(_ends_s, self._ahead.values()), default=math.inf) - time.monotonic()
                if left_s <= 0:
                    return True
                self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
        return False

    def _stop_those_due(self) -> None:
        now_s = time.monotonic()
        with self._changed:
            due = {call: deadline for call, deadline in self._ahead.items() if deadline.is_over(now_s)}
            for call in due:
                del self._ahead[call]
        for call, deadline in due.items():
            try:
                deadline.check()
            except QuantraError as error:
                call.stop(error)


def _ends_s(deadline: Deadline) -> float:
    return math.inf if deadline.expires_at_s is None else deadline.expires_at_s
