"""Ends streams at their deadlines, as gRPC does for network calls."""

import math
import threading
import time
from typing import Final, final

from predictor.calls import OpenCall
from predictor.errors import QuantraError
from predictor.instance import Deadline

_JOIN_S: Final = 5.0
"""Longest wait for the thread on close."""


@final
class DeadlineMonitor:
    """Stops calls at their deadlines, on a thread that starts with the first call. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._deadlines: dict[OpenCall, Deadline] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def watch(self, call: OpenCall, deadline: Deadline) -> None:
        """Stop a call at its deadline, unless it ends earlier."""
        if not math.isfinite(_expiry_s(deadline)):
            return
        with self._changed:
            self._deadlines[call] = deadline
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
                self._thread.start()
            self._changed.notify()
        call.ended.add_done_callback(lambda _: self._forget(call))

    def close(self) -> None:
        """Stop the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _forget(self, call: OpenCall) -> None:
        with self._changed:
            self._deadlines.pop(call, None)

    def _run(self) -> None:
        while self._wait():
            now_s = time.monotonic()
            with self._changed:
                due = {call: deadline for call, deadline in self._deadlines.items() if deadline.is_over(now_s)}
                for call in due:
                    del self._deadlines[call]
            for call, deadline in due.items():
                try:
                    deadline.check()
                except QuantraError as error:
                    call.stop(error)

    def _wait(self) -> bool:
        """Wait until a deadline expires; False after close."""
        with self._changed:
            while not self._is_closed:
                left_s = min(map(_expiry_s, self._deadlines.values()), default=math.inf) - time.monotonic()
                if left_s <= 0:
                    return True
                self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
        return False


def _expiry_s(deadline: Deadline) -> float:
    return math.inf if deadline.expires_at_s is None else deadline.expires_at_s
