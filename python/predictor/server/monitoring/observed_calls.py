"""A call from its arrival to its end, as those see it who watch a server."""

import itertools
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

import grpc.aio

from predictor.errors import InternalError, QuantraError, answer_of
from predictor.observation import OK, Observation

REQUEST_ID: Final = "x-request-id"
"""The header in which a caller names its call, and the trailer in which it hears the name."""
_TRACE: Final = ("traceparent", "tracestate")
"""Headers of W3C's trace context."""
_WELL_FORMED: Final = re.compile(r"[!-~]{1,128}")

Context = grpc.aio.ServicerContext[Any, Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivedCall:
    """One call, and who sent it."""

    service: str
    """Full name."""
    method: str
    request_id: str
    """The caller's own, if it sent one that is well-formed; else made."""
    peer: str
    """Address of the caller."""
    trace: Mapping[str, str]
    """What the caller sent of W3C's trace context."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCall:
    """One call that has its answer or its error; of a call with many requests, one of these."""

    arrived: ArrivedCall
    model: str
    """Of a loaded model; empty where the call reached none."""
    version: int
    code: str
    """`OK`, or the name of a `predictor.errors.Status`."""
    reason: str
    """Of the error; empty if there is none."""
    incident: str = ""
    """Under which the log tells more of a bug of ours."""
    took_s: float
    """From its arrival until its answer was handed to gRPC."""
    observation: Observation | None
    """What the service told; None where the call reached no model, or ended before its work did."""

    @property
    def reference(self) -> str:
        """MODEL@VERSION; empty where the call reached no model."""
        return f"{self.model}@{self.version}" if self.model else ""


class CallObserver(Protocol):
    """Whoever is told of calls. Called on any thread, and must return at once and raise nothing."""

    def ended(self, call: EndedCall) -> None:
        """A call has ended."""
        ...


@final
class CallObservers:
    """All who watch a server.

    Args:
        watchers: whoever is told.
    """

    def __init__(self, watchers: Sequence[CallObserver]) -> None:
        self._watchers = watchers
        self._made = (f"{prefix}-{number:x}" for prefix in (uuid.uuid4().hex[:8],) for number in itertools.count())

    def begin(self, service: str, method: str, context: Context, *, has_many: bool) -> "ObservedCall":
        """A call has arrived; whoever has begun it ends it.

        Args:
            service: full name of its service.
            method: name of the call.
            context: gRPC's.
            has_many: whether it takes many requests, of which each is told of by itself.
        """
        sent = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        named = sent.get(REQUEST_ID, "")
        request_id = named if _WELL_FORMED.fullmatch(named) else next(self._made)
        context.set_trailing_metadata(((REQUEST_ID, request_id),))
        trace = {key: sent[key] for key in _TRACE if key in sent}
        arrived = ArrivedCall(service=service, method=method, request_id=request_id, peer=context.peer(), trace=trace)
        return ObservedCall(arrived, self._watchers, has_many=has_many)


@final
class ObservedCall:
    """One call under way; the service tells it which model its request reached, and what became of it.

    Args:
        arrived: what is known at its arrival.
        watchers: whoever is told.
        has_many: whether it takes many requests.
    """

    def __init__(self, arrived: ArrivedCall, watchers: Sequence[CallObserver], *, has_many: bool) -> None:
        self._arrived = arrived
        self._watchers = watchers
        self._has_many = has_many
        self._begun_s = time.perf_counter()
        self._model, self._version = "", 0
        self._observation: Observation | None = None

    def reached(self, model: str, version: int) -> None:
        """As `Observer.reached`."""
        if not self._has_many:
            self._model, self._version = model, version

    def observed(self, observation: Observation) -> None:
        """As `Observer.observed`; one of many requests has its end here."""
        if not self._has_many:
            self._observation = observation
            return
        one = EndedCall(
            arrived=self._arrived,
            model=observation.model,
            version=observation.version,
            code=observation.code,
            reason=observation.reason,
            took_s=observation.took_s,
            observation=observation,
        )
        self._tell(one)

    def end(self, error: QuantraError | None) -> None:
        """The call has its answer, or this error. One with many requests, each told of, counts only if it failed."""
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
        self._tell(ended)

    def _tell(self, call: EndedCall) -> None:
        for watcher in self._watchers:
            watcher.ended(call)
