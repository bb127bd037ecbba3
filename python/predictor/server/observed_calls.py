"""Observation of calls from arrival to end."""

import itertools
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, final

from predictor.call_context import OK, Observation
from predictor.errors import InternalError, QuantraError, get_error_status
from predictor.server.logs import FIELDS
from predictor.server.transport import IncomingCall

REQUEST_ID: Final = "x-request-id"
"""Header and trailer with the id of a call."""
_TRACE: Final = ("traceparent", "tracestate")
"""Headers of the W3C trace context."""
_NO_TRACE: Final[Mapping[str, str]] = {}
_WELL_FORMED: Final = re.compile(r"[!-~]{1,128}")


class CallObserver(Protocol):
    """Observer of calls. It is called on any thread, must return immediately and must not raise."""

    def on_end(self, call: "ObservedCall") -> None:
        """Handle the end of a call."""
        ...


@final
class CallObservers:
    """The observers of a server."""

    def __init__(self, observers: Sequence[CallObserver]) -> None:
        self._observers = observers
        self._prefix, self._numbers = uuid.uuid4().hex[:8], itertools.count()

    def begin(self, service: str, method: str, call: IncomingCall, *, has_many: bool) -> "ObservedCall":
        """Begin to observe a call of a method of a service; the caller must call `end` on the result."""
        headers = {key: value for key, value in call.head.metadata if isinstance(value, str)}
        sent_id = headers.get(REQUEST_ID, "")
        request_id = sent_id if _WELL_FORMED.fullmatch(sent_id) else f"{self._prefix}-{next(self._numbers):x}"
        call.trailing_metadata = {REQUEST_ID: request_id}
        trace = {key: headers[key] for key in _TRACE if key in headers} if _TRACE[0] in headers else _NO_TRACE
        return ObservedCall(
            service=service,
            method=method,
            request_id=request_id,
            peer=call.peer,
            trace=trace,
            observers=self._observers,
            has_many=has_many,
        )


@final
@dataclass(slots=True, kw_only=True, eq=False)  # not frozen: it is filled in as the call proceeds
class ObservedCall:
    """A call, or one request of a stream. The service reports which model it reached and how it ended."""

    service: str
    """Full name of the service."""
    method: str
    request_id: str
    """The caller's id if it is well-formed, otherwise a generated one."""
    peer: str
    """Address of the caller."""
    trace: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of the W3C trace context that the caller sent."""
    observers: Sequence[CallObserver] = ()
    """Observers to notify of the end."""
    has_many: bool = False
    """Whether it is a stream of requests, each of which is reported separately."""
    begun_at_s: float = field(default_factory=time.perf_counter)
    model: str = ""
    """Name of the model; empty if the call reached no model."""
    version: int = 0
    code: str = OK
    """`OK`, or the name of a `predictor.errors.Status`."""
    reason: str = ""
    """Reason of the error; empty without an error."""
    incident: str = ""
    """Incident id of an internal error; the log has details under it."""
    took_s: float = 0.0
    """Seconds from arrival until the response was sent."""
    observation: Observation | None = None
    """The service's report; None if the call reached no model or ended before its work did."""

    @property
    def reference(self) -> str:
        """MODEL@VERSION; empty if the call reached no model."""
        return f"{self.model}@{self.version}" if self.model else ""

    def on_queued(self, model: str, version: int) -> None:
        """See `Observer.on_queued`."""
        if not self.has_many:
            self.model, self.version = model, version

    def on_finished(self, observation: Observation) -> None:
        """See `Observer.on_finished`. A request of a stream ends here."""
        if not self.has_many:
            self.observation = observation
            return
        request = ObservedCall(
            service=self.service,
            method=self.method,
            request_id=self.request_id,
            peer=self.peer,
            trace=self.trace,
            begun_at_s=self.begun_at_s,
            model=observation.model,
            version=observation.version,
            code=observation.code,
            reason=observation.reason,
            took_s=observation.took_s,
            observation=observation,
        )
        for observer in self.observers:
            observer.on_end(request)

    def end(self, error: QuantraError | None) -> None:
        """End the call. A successful stream is not reported, because each of its requests is."""
        if isinstance(error, InternalError):
            error.metadata["request_id"] = self.request_id
        if error is not None:
            answer = get_error_status(error)
            self.code, self.reason = answer.status.value, answer.reason
            self.incident = error.metadata.get("incident", "")
        elif self.has_many:
            return
        self.took_s = time.perf_counter() - self.begun_at_s
        for observer in self.observers:
            observer.on_end(self)


MAX_FAILURES: Final = 100
"""Most lines about failed calls per second. Further failures are only counted, so that callers cannot fill the disk."""

_log = logging.getLogger(__name__)


@final
class AccessLog:
    """Logs each call. Thread-safe."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._second = 0
        self._failures = 0
        """Failures in the current second."""

    def on_end(self, call: ObservedCall) -> None:
        """See `CallObserver.on_end`."""
        if call.code == OK:
            if _log.isEnabledFor(logging.DEBUG):
                _write_line(logging.DEBUG, call)
        elif _log.isEnabledFor(logging.INFO) and self._may_log():
            _write_line(logging.INFO, call)

    def _may_log(self) -> bool:
        """Whether another failure may be logged in this second; logs how many were dropped in the previous one."""
        with self._lock:
            second, dropped = int(self._clock()), 0
            if second != self._second:
                dropped = self._failures - MAX_FAILURES
                self._second, self._failures = second, 0
            self._failures += 1
            may_log = self._failures <= MAX_FAILURES
        if dropped > 0:
            _log.info("%d more calls failed within one second and were not logged", dropped)
        return may_log


def _write_line(level: int, call: ObservedCall) -> None:
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
