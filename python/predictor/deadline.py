"""How long a call may take, and whether anybody still waits for it."""

import threading
import time
from dataclasses import dataclass, field
from typing import Final, Protocol

from predictor.errors import CallCancelledError, DeadlineExceededError


class Cancellation(Protocol):
    """What long work asks, between two steps, whether it may go on."""

    def check(self) -> None:
        """Return if it may; raises CallCancelledError or DeadlineExceededError if nobody can use the result now."""
        ...


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on the monotonic clock, and a flag that the caller went away. Without either it never expires."""

    expires_at_s: float | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def after(cls, seconds: float | None) -> "Deadline":
        """Expire `seconds` from now; None never expires."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    def check(self) -> None:
        """Stop work that nobody can use any more.

        Raises:
            CallCancelledError: the caller went away.
            DeadlineExceededError: the time is over.
        """
        if self.cancelled.is_set():
            raise CallCancelledError("the call was cancelled before its answer was there")
        if self.expires_at_s is not None and time.monotonic() >= self.expires_at_s:
            raise DeadlineExceededError("the call's deadline passed before its answer was there; allow more time")


NEVER: Final = Deadline()
"""For work that somebody always waits for."""
