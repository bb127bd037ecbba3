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

    waiting = 0

    async def acquire(self) -> Literal[True]:
        """See asyncio.Semaphore."""
        self.waiting += 1
        try:
            return await super().acquire()
        finally:
            self.waiting -= 1


@final
class PeerConnection:
    """One connection with calls in flight."""

    def __init__(self, slots: int) -> None:
        self.calls = self.streams = 0
        self.slots = CallSlots(slots)
        """Slots for its arriving requests."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class IncomingRequest:
    """An arriving request."""

    peer: PeerConnection
    since_s: float


@final
class Admission:
    """Counts calls from arrival until the response is sent, on one event loop.

    While several connections have calls, each may have no more calls or streams than are still free, so that a few
    connections cannot take them all.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._peers: dict[str, PeerConnection] = {}
        self._in_flight = self._streams = 0
        self._is_closed = False
        self._idle = asyncio.Event()

    def enter(self, call: IncomingCall, *, is_stream: bool = False) -> PeerConnection:
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
        peer = self._peers.get(name) or PeerConnection(limits.arriving_per_peer)
        if self._in_flight >= limits.calls_in_flight:
            raise QueueFullError.of("calls are in flight", self._in_flight, limits.calls_in_flight)
        is_only = not self._peers or (len(self._peers) == 1 and name in self._peers)
        free = limits.calls_in_flight - self._in_flight
        most = limits.calls_per_peer if is_only else min(limits.calls_per_peer, free)
        if peer.calls >= most:
            raise QueueFullError.of("calls of this connection are in flight", peer.calls, most)
        if is_stream:
            if self._streams >= limits.streams:
                raise QueueFullError.of("streams are open", self._streams, limits.streams)
            most = limits.streams_per_peer if is_only else min(limits.streams_per_peer, limits.streams - self._streams)
            if peer.streams >= most:
                raise QueueFullError.of("streams of this connection are open", peer.streams, most)
        self._peers[name] = peer
        self._in_flight += 1
        peer.calls += 1
        if is_stream:
            self._streams += 1
            peer.streams += 1
        call.on_end = partial(self._leave, name, peer, is_stream=is_stream)
        return peer

    def close(self) -> None:
        """Reject new calls."""
        self._is_closed = True

    async def idle(self) -> None:
        """Wait until no call is in flight."""
        if self._in_flight:
            self._idle.clear()
            await self._idle.wait()

    def _leave(self, name: str, peer: PeerConnection, *, is_stream: bool) -> None:
        self._in_flight -= 1
        peer.calls -= 1
        if is_stream:
            self._streams -= 1
            peer.streams -= 1
        if not peer.calls:
            del self._peers[name]
        if self._in_flight == 0:
            self._idle.set()


@final
class IncomingRequests:
    """Arriving requests. Slots bound their memory: without one, at most 64 KiB of a request arrive.

    A request that does not arrive within `request_s` ends, so that it does not keep its slot. While others wait for a
    slot, this limit is one second.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._slots = CallSlots(limits.arriving)
        self._arriving: dict[asyncio.Timeout, IncomingRequest] = {}
        """Oldest first."""

    async def receive(self, call: IncomingCall, peer: PeerConnection) -> bytes:
        """Read the only message of a call.

        Raises:
            DeadlineExceededError: It did not arrive in time.
            QueueFullError: It is slow and others wait for its slot.
            MalformedRequestError: The call ended without a message.
        """
        async with peer.slots, self._slots:
            return require_request(await self._read(call, peer))

    async def end_slow_requests(self) -> None:
        """End slow requests while others wait for a slot; runs until cancelled."""
        while True:
            await asyncio.sleep(_GRACE_S / 2)
            now_s = asyncio.get_running_loop().time()
            for timeout in self._find_slow_requests(now_s):
                timeout.reschedule(now_s)

    async def _read(self, call: IncomingCall, peer: PeerConnection) -> bytes | None:
        arrival = IncomingRequest(peer, asyncio.get_running_loop().time())
        timeout = asyncio.timeout_at(arrival.since_s + self._limits.request_s)
        self._arriving[timeout] = arrival
        try:
            async with timeout:
                return await call.read()
        except TimeoutError:
            raise self._create_timeout_error(arrival) from None
        finally:
            del self._arriving[timeout]

    def _find_slow_requests(self, now_s: float) -> list[asyncio.Timeout]:
        """Return the oldest slow requests, as many as wait in total or for slots of the same connection."""
        slow: list[asyncio.Timeout] = []
        by_peer = Counter[PeerConnection]()
        for timeout, arrival in self._arriving.items():
            if timeout.expired():  # already ending
                continue
            is_wanted = len(slow) < self._slots.waiting or by_peer[arrival.peer] < arrival.peer.slots.waiting
            if is_wanted and now_s - arrival.since_s >= _GRACE_S:
                slow.append(timeout)
                by_peer[arrival.peer] += 1
        return slow

    def _create_timeout_error(self, arrival: IncomingRequest) -> DeadlineExceededError | QueueFullError:
        took_s = asyncio.get_running_loop().time() - arrival.since_s
        if took_s < self._limits.request_s:
            return QueueFullError.of("requests are arriving", len(self._arriving), self._limits.arriving)
        return create_incomplete_error(self._limits)


def require_request(message: bytes | None) -> bytes:
    """Return the message; raises MalformedRequestError if there is none."""
    if message is None:
        raise MalformedRequestError("the call ended without a request; send one message")
    return message


def create_incomplete_error(limits: ServerLimits) -> DeadlineExceededError:
    """The error of a request that does not arrive in time."""
    return DeadlineExceededError(
        f"the request was incomplete after {limits.request_s:g} seconds; send a smaller request, or faster"
    )
