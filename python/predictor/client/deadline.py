"""How long a call may take, and all calls of one question together."""

import time
from dataclasses import dataclass
from typing import Self, final

from predictor.errors import DeadlineExceededError


@final
@dataclass(frozen=True, slots=True)
class Until:
    """One deadline for all calls that a question takes."""

    limit_s: float
    """Seconds from its begin to its end."""
    ends_s: float
    """Its end on the monotonic clock."""

    @classmethod
    def after(cls, limit_s: float) -> Self:
        """So many seconds from now."""
        return cls(limit_s, time.monotonic() + limit_s)

    def left_s(self, target: str) -> float:
        """Seconds that the next call may take.

        Raises:
            DeadlineExceededError: none.
        """
        left_s = self.ends_s - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceededError(f"{target} gave no answer within {self.limit_s:g} seconds; allow more time")
        return left_s
