"""Events of a connection."""

from dataclasses import dataclass
from typing import TypeAlias, TypeVar, dataclass_transform, final

_E = TypeVar("_E")
Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Names are in lower case, and pseudo headers come first."""


@dataclass_transform(frozen_default=True)
def _frequent(event: type[_E]) -> type[_E]:
    """Make a dataclass that only type checkers keep frozen, since the check at run time takes 15 % of a call."""
    return dataclass(slots=True, unsafe_hash=True)(event)


@final
@_frequent
class RequestReceived:
    """The headers of a request arrived; if `ended`, it has no body."""

    stream: int
    headers: Headers
    ended: bool


@final
@_frequent
class DataReceived:
    """A part of a request's body arrived; the part is empty only if `ended`. Trailers of requests are dropped."""

    stream: int
    data: bytes
    ended: bool


@final
@dataclass(frozen=True, slots=True)
class StreamReset:
    """A request ended early: the peer reset it, or the connection did because of a stream error."""

    stream: int
    code: int


@final
@dataclass(frozen=True, slots=True)
class StreamSent:
    """All bytes of a stream that had to wait for a window are in the output."""

    stream: int


@final
@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """The connection ended because of an error. The output has GOAWAY; all streams are gone."""

    code: int
    reason: str


@final
@dataclass(frozen=True, slots=True)
class PingAnswered:
    """The peer answered a ping of ours."""

    content: bytes


Event: TypeAlias = RequestReceived | DataReceived | StreamReset | StreamSent | ConnectionEnded | PingAnswered
