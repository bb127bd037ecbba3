"""Limits of the work that one process accepts at once, over all interfaces."""

from dataclasses import dataclass, field
from typing import Final

from predictor.errors import ConfigurationError

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Limits of the requests that have no response yet. Further requests are rejected at once.

    Raises:
        ConfigurationError: a limit is below 1.
    """

    calls: int = 1024
    rows: int = 100_000
    """Symbols of all requests."""
    size: int = 128 * _MIB
    """Bytes of all requests."""

    def __post_init__(self) -> None:
        for name in ("calls", "rows", "size"):
            value: int = getattr(self, name)
            if value < 1:
                raise ConfigurationError(f"the queue's limit of {name} is {value}, but must be at least 1")


_EXPLANATIONS: Final = QueueLimits(calls=8, rows=20_000, size=64 * _MIB)
_UNCOUNTED: Final = QueueLimits(size=48 * _MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """Limits of queues, streams and sessions, and the time of one explanation.

    Raises:
        ConfigurationError: `explanation_s` is below 1 second, or another limit is below 1.
    """

    predictions: QueueLimits = field(default_factory=QueueLimits)
    explanations: QueueLimits = _EXPLANATIONS
    uncounted: QueueLimits = _UNCOUNTED
    """Large requests whose rows have not been counted yet."""
    explanation_s: float = 120.0
    """Seconds that one explanation may take, including pauses for predictions."""
    requests_per_stream: int = 128
    """Requests of one stream without a response that its caller has read; at the limit the stream is not read."""
    bytes_per_stream: int = 8 * _MIB
    """Bytes of these requests and responses; below the limit, one more request is read."""
    sessions: int = 4096
    """Open sessions of all streams."""
    sessions_per_stream: int = 1024
    session_bytes: int = 256 * _MIB
    """Bytes of the bars and covariates of all open sessions."""
    session_bytes_per_stream: int = 128 * _MIB

    def __post_init__(self) -> None:
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
