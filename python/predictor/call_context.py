"""The context of one call: its deadline, cancellation and caller, and the observations of its requests."""

import math
import time
from dataclasses import dataclass
from typing import Final, Protocol, final

from predictor.errors import CallCancelledError, DeadlineExceededError

OK: Final = "OK"
"""The code of a successful request; every other code is a `predictor.errors.Status`."""


@dataclass(slots=True, kw_only=True)  # not frozen: each call creates one, and freezing is slow
class Observation:
    """One request to a model, with its result."""

    method: str
    """`Predict`, `Explain` or `ExplainGlobal`, on every interface."""
    model: str
    """Name of a loaded model, never the caller's text."""
    version: int
    rows: int
    """Symbols of the request."""
    code: str
    """`OK`, or the name of a `predictor.errors.Status`."""
    reason: str
    """Reason of the error; empty without an error."""
    refused: tuple[str, ...] = ()
    """Error reasons of single instances in a request that succeeded."""
    took_s: float
    """Seconds from arrival to the response."""
    queue_s: float | None = None
    """Seconds in the queue; None = it never left the queue."""
    prepare_s: float | None = None
    """Seconds that its batch took to compute the network's inputs; None = unfinished, or not a forecast."""
    forward_s: float | None = None
    """Seconds that its batch took in the network; None as in `prepare_s`."""
    batch_rows: int = 0
    """Symbols of its batch, its own included; 0 where `prepare_s` is None."""


class Observer(Protocol):
    """Receives observations. Called on any thread; must not block or raise."""

    def on_queued(self, model: str, version: int) -> None:
        """A request enters the queue of this model; its observation follows."""
        ...

    def on_finished(self, observation: Observation) -> None:
        """A request has its response or its error."""
        ...


class Deadline(Protocol):
    """Ends work that nobody waits for any more; long work checks it between two steps."""

    def check(self) -> None:
        """Raise CallCancelledError or DeadlineExceededError if the work must stop."""
        ...


@final
@dataclass(slots=True, eq=False)  # not frozen: each call creates one, and freezing is slow
class CallContext:
    """The context of one call, from its arrival to its response. It is a `Deadline`."""

    expires_at_s: float | None = None
    """When the caller stops waiting, in seconds of the monotonic clock; None: never."""
    observer: Observer | None = None
    """Receives an observation of each request of the call."""
    caller: str = ""
    """Name of the caller's token; empty without tokens."""
    is_cancelled: bool = False

    @classmethod
    def with_timeout(cls, seconds: float | None, observer: Observer | None = None) -> "CallContext":
        """Create the context of a call that expires `seconds` from now; None: never."""
        return cls(None if seconds is None else time.monotonic() + seconds, observer)

    @property
    def left_s(self) -> float:
        """Seconds until it expires, at least 0; infinity: it never expires."""
        return math.inf if self.expires_at_s is None else max(self.expires_at_s - time.monotonic(), 0.0)

    def is_over(self, now_s: float) -> bool:
        """Whether the call is cancelled, or has expired at this time of the monotonic clock."""
        return self.is_cancelled or (self.expires_at_s is not None and now_s >= self.expires_at_s)

    def cancel(self) -> None:
        """Stop the work at its next check; from any thread."""
        self.is_cancelled = True

    def check(self) -> None:
        """See `Deadline`."""
        if self.is_cancelled:
            raise CallCancelledError("the call was cancelled before its response was ready")
        if self.expires_at_s is not None and time.monotonic() >= self.expires_at_s:
            raise DeadlineExceededError("the call's deadline passed before its response was ready; allow more time")


NEVER: Final = CallContext()
"""A deadline that never expires. Do not cancel it: it is shared."""
