"""The interface of the servers that speak HTTP/2, and of their calls."""

from collections.abc import Callable, Mapping
from typing import Any, Never, Protocol

import grpc

from predictor.server.address import Listening
from predictor.server.certificates import Certificates
from predictor.server.settings import ServerLimits


class CallContext(Protocol):
    """One incoming call: the part of `grpc.aio.ServicerContext` that the handlers use."""

    def peer(self) -> str:
        """Return the address of the caller."""
        ...

    def invocation_metadata(self) -> Any:
        """Return the headers of the call as pairs of name and value."""
        ...

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline; None without one."""
        ...

    def trailing_metadata(self) -> Any:
        """Return what `set_trailing_metadata` has set."""
        ...

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Set the metadata that ends the response."""
        ...

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback` when the call has ended."""
        ...

    async def read(self) -> Any:
        """Read the next message, or `grpc.aio.EOF`."""
        ...

    async def write(self, message: Any) -> None:
        """Send a message as fast as the caller reads."""
        ...

    async def abort(self, code: grpc.StatusCode, details: str = ..., trailing_metadata: Any = ...) -> Never:
        """End the call with this status, and its handler with an exception."""
        ...


class CallServer(Protocol):
    """A gRPC server at one address, on the running event loop."""

    def __init__(self, limits: ServerLimits, current: Callable[[], Certificates] | None, *, is_shared: bool) -> None:
        """Create it; `current` returns the certificates of the next connection."""
        ...

    def bind(self, address: Listening) -> int:
        """Bind the address and return the port; an arbitrary number for a Unix socket.

        Raises:
            ConfigurationError: It is in use, not permitted or not of this machine, or others can enter its folder.
        """
        ...

    def add_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Register gRPC's handlers of a service, by the names of its methods."""
        ...

    async def start(self) -> None:
        """Accept connections."""
        ...

    async def stop(self) -> None:
        """Stop listening, close every connection and release the address, in any state."""
        ...
