"""Access log with one line per call: failed calls at level info, rate-limited; other calls at level debug."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, final

from predictor.observation import OK
from predictor.server.monitoring.observed_calls import ObservedCall

MOST_FAILURES: Final = 100
"""Most lines about failed calls per second. Further failures are only counted, so that callers cannot fill the disk."""

FIELDS: Final = "fields"
"""Attribute of a log record with the fields of its line, for the JSON log."""

_log = logging.getLogger(__name__)


@final
class AccessLog:
    """Logs each call. Thread-safe.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._second = 0
        self._failures = 0
        """Failures in the current second."""

    def ended(self, call: ObservedCall) -> None:
        """See `CallObserver.ended`."""
        if call.code == OK:
            if _log.isEnabledFor(logging.DEBUG):
                _write(logging.DEBUG, call)
        elif _log.isEnabledFor(logging.INFO) and self._has_room():
            _write(logging.INFO, call)

    def _has_room(self) -> bool:
        """Whether another failure may be logged in this second; logs how many were dropped in the previous one."""
        with self._lock:
            second, dropped = int(self._clock()), 0
            if second != self._second:
                dropped = self._failures - MOST_FAILURES
                self._second, self._failures = second, 0
            self._failures += 1
            has_room = self._failures <= MOST_FAILURES
        if dropped > 0:
            _log.info("%d more calls failed within one second and were not logged", dropped)
        return has_room


def _write(level: int, call: ObservedCall) -> None:
    fields: dict[str, str | float] = {
        "method": call.method,
        "model": call.reference,
        "code": call.code,
        "reason": call.reason,
        "incident": call.incident,
        "ms": round(1e3 * call.took_s, 1),
        "request_id": call.request_id,
        "peer": call.peer,
    }
    outcome = " ".join(filter(None, (call.code, call.reason, call.incident)))
    target = " ".join(filter(None, (call.method, call.reference)))
    line = "%s: %s, %.1f ms, request %s from %s"
    _log.log(level, line, target, outcome, fields["ms"], call.request_id, call.peer, extra={FIELDS: fields})
