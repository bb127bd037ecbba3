"""Admission of calls: limits in total and per connection, and time limits for requests to arrive."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, final

from predictor.errors import DeadlineExceededError, MalformedRequestError, QueueFullError, UnavailableError
from predictor.server.settings import ServerLimits
from predictor.server.transport import IncomingCall

_GRACE_S: Final = 1.0
"""Time that a request may take to arrive even while others wait for its slot."""


@final
class CallSlots(asyncio.Semaphore):
    """A fair semaphore that counts its waiting callers."""

    waiting_count = 0

    async def acquire(self) -> Literal[True]:
        """See asyncio.Semaphore."""
        self.waiting_count += 1
        try:
            return await super().acquire()
        finally:
            self.waiting_count -= 1


@final
class ConnectionUsage:
    """The calls in flight of one connection."""

    def __init__(self, slots: int) -> None:
        self.calls = self.streams = 0
        self.slots = CallSlots(slots)
        """Slots for its arriving requests."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class _ArrivingRequest:
    """An arriving request."""

    connection: ConnectionUsage
    since_at_s: float


@final
class Admission:
    """Counts calls from arrival until the response is sent, on one event loop.

    While several connections have calls, each may have no more calls or streams than are still free, so that a few
    connections cannot take them all.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._connections: dict[str, ConnectionUsage] = {}
        self._in_flight = self._streams = 0
        self._is_closed = False
        self._idle_event = asyncio.Event()

    def enter(self, call: IncomingCall, *, is_stream: bool = False) -> ConnectionUsage:
        """Admit a call until it ends.

        Returns:
            The connection of the call.

        Raises:
            UnavailableError: The server is stopping.
            QueueFullError: A limit of calls or streams is reached, in total or for the connection.
        """
        if self._is_closed:
            raise UnavailableError("the server is stopping; retry in a moment, or on another server")
        limits, name = self._limits, call.peer
        connection = self._connections.get(name) or ConnectionUsage(limits.arriving_per_peer)
        if self._in_flight >= limits.calls_in_flight:
            raise QueueFullError.of("calls are in flight", self._in_flight, limits.calls_in_flight)
        is_only = not self._connections or (len(self._connections) == 1 and name in self._connections)
        free = limits.calls_in_flight - self._in_flight
        max_calls = limits.calls_per_peer if is_only else min(limits.calls_per_peer, free)
        if connection.calls >= max_calls:
            raise QueueFullError.of("calls of this connection are in flight", connection.calls, max_calls)
        if is_stream:
            if self._streams >= limits.streams:
                raise QueueFullError.of("streams are open", self._streams, limits.streams)
            max_streams = (
                limits.streams_per_peer if is_only else min(limits.streams_per_peer, limits.streams - self._streams)
            )
            if connection.streams >= max_streams:
                raise QueueFullError.of("streams of this connection are open", connection.streams, max_streams)
        self._connections[name] = connection
        self._in_flight += 1
        connection.calls += 1
        if is_stream:
            self._streams += 1
            connection.streams += 1
        call.on_end = partial(self._leave, name, connection, is_stream=is_stream)
        return connection

    def close(self) -> None:
        """Reject new calls."""
        self._is_closed = True

    async def idle(self) -> None:
        """Wait until no call is in flight."""
        if self._in_flight:
            self._idle_event.clear()
            await self._idle_event.wait()

    def _leave(self, name: str, connection: ConnectionUsage, *, is_stream: bool) -> None:
        self._in_flight -= 1
        connection.calls -= 1
        if is_stream:
            self._streams -= 1
            connection.streams -= 1
        if not connection.calls:
            del self._connections[name]
        if self._in_flight == 0:
            self._idle_event.set()


@final
class RequestReceiver:
    """Receives requests. Slots bound their memory: without one, at most 64 KiB of a request arrive.

    A request that does not arrive within `request_s` ends, so that it does not keep its slot. While others wait for a
    slot, this limit is one second.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._slots = CallSlots(limits.arriving)
        self._arriving_requests: dict[asyncio.Timeout, _ArrivingRequest] = {}
        """Oldest first."""

    async def receive(self, call: IncomingCall, connection: ConnectionUsage) -> bytes:
        """Read the only message of a call.

        Raises:
            DeadlineExceededError: It did not arrive in time.
            QueueFullError: It is slow and others wait for its slot.
            MalformedRequestError: The call ended without a message.
        """
        async with connection.slots, self._slots:
            return require_request(await self._read(call, connection))

    async def end_slow_requests(self) -> None:
        """End slow requests while others wait for a slot; runs until cancelled."""
        while True:
            await asyncio.sleep(_GRACE_S / 2)
            now_s = asyncio.get_running_loop().time()
            # The oldest slow requests, as many as wait in total or for slots of the same connection.
            slow: list[asyncio.Timeout] = []
            by_connection = Counter[ConnectionUsage]()
            for timeout, arrival in self._arriving_requests.items():
                if timeout.expired():  # already ending
                    continue
                is_wanted = (
                    len(slow) < self._slots.waiting_count
                    or by_connection[arrival.connection] < arrival.connection.slots.waiting_count
                )
                if is_wanted and now_s - arrival.since_at_s >= _GRACE_S:
                    slow.append(timeout)
                    by_connection[arrival.connection] += 1
            for timeout in slow:
                timeout.reschedule(now_s)

    async def _read(self, call: IncomingCall, connection: ConnectionUsage) -> bytes | None:
        arrival = _ArrivingRequest(connection, asyncio.get_running_loop().time())
        timeout = asyncio.timeout_at(arrival.since_at_s + self._limits.request_s)
        self._arriving_requests[timeout] = arrival
        try:
            async with timeout:
                return await call.read()
        except TimeoutError:
            if asyncio.get_running_loop().time() - arrival.since_at_s >= self._limits.request_s:
                raise make_incomplete_request_error(self._limits) from None
            raise QueueFullError.of(
                "requests are arriving", len(self._arriving_requests), self._limits.arriving
            ) from None
        finally:
            del self._arriving_requests[timeout]


def require_request(message: bytes | None) -> bytes:
    """Return the message; raises MalformedRequestError if there is none."""
    if message is None:
        raise MalformedRequestError("the call ended without a request; send one message")
    return message


def make_incomplete_request_error(limits: ServerLimits) -> DeadlineExceededError:
    """The error of a request that does not arrive in time."""
    return DeadlineExceededError(
        f"the request was incomplete after {limits.request_s:g} seconds; send a smaller request, or faster"
    )
