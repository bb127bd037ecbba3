"""The context of one call: its deadline, its cancellation, its caller and its observer."""

import math
import time
from dataclasses import dataclass
from typing import Final, Protocol, final

from predictor.errors import CallCancelledError, DeadlineExceededError
from predictor.observation import Observer


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
