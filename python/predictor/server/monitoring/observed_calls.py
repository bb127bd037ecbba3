"""Observation of calls from arrival to end."""

import itertools
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, final

from predictor.errors import InternalError, QuantraError, answer_of
from predictor.observation import OK, Observation
from predictor.server.transport import IncomingCall

REQUEST_ID: Final = "x-request-id"
"""Header and trailer with the id of a call."""
_TRACE: Final = ("traceparent", "tracestate")
"""Headers of the W3C trace context."""
_NO_TRACE: Final[Mapping[str, str]] = {}
_WELL_FORMED: Final = re.compile(r"[!-~]{1,128}")


@final
@dataclass(slots=True, kw_only=True)  # not frozen: each call creates one, and freezing is slow
class ArrivedCall:
    """A call and its caller."""

    service: str
    """Full name of the service."""
    method: str
    request_id: str
    """The caller's id if it is well-formed, otherwise a generated one."""
    peer: str
    """Address of the caller."""
    trace: Mapping[str, str]
    """Headers of the W3C trace context that the caller sent."""


@final
@dataclass(slots=True, kw_only=True)  # not frozen: each call creates one, and freezing is slow
class EndedCall:
    """A call that has ended, or one request of a stream."""

    arrived: ArrivedCall
    model: str
    """Name of the model; empty if the call reached no model."""
    version: int
    code: str
    """`OK`, or the name of a `predictor.errors.Status`."""
    reason: str
    """Reason of the error; empty without an error."""
    incident: str = ""
    """Incident id of an internal error; the log has details under it."""
    took_s: float
    """Seconds from arrival until the response was sent."""
    observation: Observation | None
    """The service's report; None if the call reached no model or ended before its work did."""

    @property
    def reference(self) -> str:
        """MODEL@VERSION; empty if the call reached no model."""
        return f"{self.model}@{self.version}" if self.model else ""


class CallObserver(Protocol):
    """Observer of calls. It is called on any thread, must return immediately and must not raise."""

    def ended(self, call: EndedCall) -> None:
        """Handle the end of a call."""
        ...


@final
class CallObservers:
    """The observers of a server.

    Args:
        observers: observers to notify.
    """

    def __init__(self, observers: Sequence[CallObserver]) -> None:
        self._observers = observers
        self._ids = (f"{prefix}-{number:x}" for prefix in (uuid.uuid4().hex[:8],) for number in itertools.count())

    def begin(self, service: str, method: str, call: IncomingCall, *, has_many: bool) -> "ObservedCall":
        """Begin to observe a call; the caller must call `end` on the result.

        Args:
            service: full name of the service.
            method: name of the method.
            call: the call.
            has_many: whether it is a stream of requests, each of which is reported separately.
        """
        headers = call.head.texts
        sent_id = headers.get(REQUEST_ID, "")
        request_id = sent_id if _WELL_FORMED.fullmatch(sent_id) else next(self._ids)
        call.trailing = {REQUEST_ID: request_id}
        trace = {key: headers[key] for key in _TRACE if key in headers} if _TRACE[0] in headers else _NO_TRACE
        arrived = ArrivedCall(service=service, method=method, request_id=request_id, peer=call.peer, trace=trace)
        return ObservedCall(arrived, self._observers, has_many=has_many)


@final
class ObservedCall:
    """A call in progress. The service reports which model the request reached and how it ended.

    Args:
        arrived: the call and its caller.
        observers: observers to notify.
        has_many: whether it is a stream of requests.
    """

    def __init__(self, arrived: ArrivedCall, observers: Sequence[CallObserver], *, has_many: bool) -> None:
        self._arrived = arrived
        self._observers = observers
        self._has_many = has_many
        self._begun_s = time.perf_counter()
        self._model, self._version = "", 0
        self._observation: Observation | None = None

    def reached(self, model: str, version: int) -> None:
        """See `Observer.reached`."""
        if not self._has_many:
            self._model, self._version = model, version

    def observed(self, observation: Observation) -> None:
        """See `Observer.observed`. A request of a stream ends here."""
        if not self._has_many:
            self._observation = observation
            return
        ended = EndedCall(
            arrived=self._arrived,
            model=observation.model,
            version=observation.version,
            code=observation.code,
            reason=observation.reason,
            took_s=observation.took_s,
            observation=observation,
        )
        self._notify(ended)

    def end(self, error: QuantraError | None) -> None:
        """End the call. A successful stream is not reported, because each of its requests is."""
        if isinstance(error, InternalError):
            error.metadata["request_id"] = self._arrived.request_id
        if error is None and self._has_many:
            return
        answer = None if error is None else answer_of(error)
        ended = EndedCall(
            arrived=self._arrived,
            model=self._model,
            version=self._version,
            code=OK if answer is None else answer.status.value,
            reason="" if answer is None else answer.reason,
            incident="" if error is None else error.metadata.get("incident", ""),
            took_s=time.perf_counter() - self._begun_s,
            observation=self._observation,
        )
        self._notify(ended)

    def _notify(self, call: EndedCall) -> None:
        for observer in self._observers:
            observer.ended(call)
