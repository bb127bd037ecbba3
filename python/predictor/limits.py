"""How much one process takes on at once, whatever door it comes through."""

from dataclasses import dataclass, field
from typing import Final

from predictor.errors import ConfigurationError

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """How much may be asked for and not yet answered. Beyond it, calls are refused at once.

    Raises:
        ConfigurationError: a limit below 1.
    """

    calls: int = 1024
    rows: int = 100_000
    """Symbols of all that was asked."""
    size: int = 128 * _MIB
    """Bytes of the requests."""

    def __post_init__(self) -> None:
        """Refuse limits that let nothing through."""
        for name in ("calls", "rows", "size"):
            value: int = getattr(self, name)
            if value < 1:
                raise ConfigurationError(f"the queue's limit of {name} is {value}, but must be at least 1")


_EXPLANATIONS: Final = QueueLimits(calls=8, rows=20_000, size=64 * _MIB)
_UNCOUNTED: Final = QueueLimits(size=48 * _MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """How much may wait and be kept, and how long one explanation may take.

    Raises:
        ConfigurationError: an explanation's time below 1 second, or another limit below 1.
    """

    predictions: QueueLimits = field(default_factory=QueueLimits)
    explanations: QueueLimits = _EXPLANATIONS
    uncounted: QueueLimits = _UNCOUNTED
    """Requests so large that what they hold must still be counted."""
    explanation_s: float = 120.0
    """Seconds that one explanation may compute, pauses for predictions included."""
    requests_per_stream: int = 128
    """Requests of one stream that are under way, or whose answers its caller has not taken; no more are read then."""
    bytes_per_stream: int = 8 * _MIB
    """Bytes of these requests and answers; one more request may come while they are fewer."""
    sessions: int = 4096
    """Sessions that are open, on all streams."""
    sessions_per_stream: int = 1024
    session_bytes: int = 256 * _MIB
    """Bytes of the bars and covariates that they keep."""
    session_bytes_per_stream: int = 128 * _MIB

    def __post_init__(self) -> None:
        """Refuse a time in which nothing can be explained, and a stream of nothing."""
        if not self.explanation_s >= 1:
            raise ConfigurationError(f"explanation_s is {self.explanation_s:g} seconds, but must be at least 1")
        for name in (
            "requests_per_stream",
            "bytes_per_stream",
            "sessions",
            "sessions_per_stream",
            "session_bytes",
            "session_bytes_per_stream",
        ):
            value: int = getattr(self, name)
            if value < 1:
                raise ConfigurationError(f"{name} is {value}, but must be at least 1")
