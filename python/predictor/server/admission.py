"""Which calls are let in: how many in all and from one peer, and how long a request may take to arrive."""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, Final, cast, final

import grpc.aio

from predictor.errors import DeadlineExceededError, MalformedRequestError, QueueFullError, UnavailableError
from predictor.server.settings import ServerLimits

_GRACE_S: Final = 1.0
"""A request may take so long to arrive, whoever waits for its place."""

Context = grpc.aio.ServicerContext[Any, Any]


@final
class CallSlots:
    """So many at once; whoever finds none free waits its turn."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(not turn.done() for turn in self._waiting)

    async def take(self) -> None:
        """Wait for a place; every one that was taken must be given back."""
        if self._free:
            self._free -= 1
            return
        while self._waiting and self._waiting[-1].done():
            self._waiting.pop()  # whoever went away while it waited
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had its turn just then
                self.give()
            raise

    def give(self) -> None:
        """Give a place back: to whoever waits longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


@final
class PeerConnection:
    """One connection, while it has calls in flight."""

    def __init__(self, places: int) -> None:
        self.calls = self.streams = 0
        self.places = CallSlots(places)
        """For its requests on their way."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class IncomingRequest:
    """A request on its way."""

    peer: PeerConnection
    since_s: float


@final
class Admission:
    """Counts calls from their arrival until their answer is sent, on one event loop."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._peers: dict[str, PeerConnection] = {}
        self._in_flight = self._streams = 0
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def enter(self, context: Context, *, is_stream: bool = False) -> PeerConnection:
        """Let a call in, until it has ended.

        Args:
            context: of the call.
            is_stream: its requests may go on for as long as it likes.

        Returns:
            Whose call it is.

        Raises:
            UnavailableError: the server is stopping.
            QueueFullError: as many calls, or streams, as allowed are in flight, in all or from this peer.
        """
        if self._is_closed:
            raise UnavailableError("the server is stopping; ask again in a moment, or another server")
        if self._in_flight >= self._limits.calls_in_flight:
            raise QueueFullError.of("calls are in flight", self._in_flight, self._limits.calls_in_flight)
        name = context.peer()
        peer = self._peers.get(name) or PeerConnection(self._limits.arriving_per_peer)
        if peer.calls >= self._limits.calls_per_peer:
            raise QueueFullError.of("calls of this connection are in flight", peer.calls, self._limits.calls_per_peer)
        if is_stream:
            self._check_streams(peer)
        self._peers[name] = peer
        self._count(peer, 1, is_stream=is_stream)
        self._idle.clear()

        def leave(_: Context) -> None:
            self._leave(name, peer, is_stream=is_stream)

        context.add_done_callback(cast("Any", leave))  # the stubs name the argument otherwise
        return peer

    def close(self) -> None:
        """Let no further call in."""
        self._is_closed = True

    async def idle(self) -> None:
        """Wait until no call is in flight."""
        await self._idle.wait()

    def _check_streams(self, peer: PeerConnection) -> None:
        if self._streams >= self._limits.streams:
            raise QueueFullError.of("streams are open", self._streams, self._limits.streams)
        if peer.streams >= self._limits.streams_per_peer:
            most = self._limits.streams_per_peer
            raise QueueFullError.of("streams of this connection are open", peer.streams, most)

    def _count(self, peer: PeerConnection, change: int, *, is_stream: bool) -> None:
        self._in_flight += change
        peer.calls += change
        self._streams += change * is_stream
        peer.streams += change * is_stream

    def _leave(self, name: str, peer: PeerConnection, *, is_stream: bool) -> None:
        self._count(peer, -1, is_stream=is_stream)
        if not peer.calls:
            del self._peers[name]
        if self._in_flight == 0:
            self._idle.set()


@final
class IncomingRequests:
    """Requests on their way. Until one has a place, gRPC takes no more than 64 KiB of it: places bound the memory.

    One that never comes whole would keep its place for ever. It ends after `request_s`; while others wait for a place,
    so does any that has taken longer than a second.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._places = CallSlots(limits.arriving)
        self._arriving: dict[asyncio.Timeout, IncomingRequest] = {}
        """Oldest first."""

    async def request(self, context: Context, peer: PeerConnection) -> bytes:
        """The call's one message.

        Raises:
            DeadlineExceededError: it did not arrive in time.
            QueueFullError: others wait for its place, and it takes long.
            MalformedRequestError: the call ended without one.
        """
        body = await self.message(context, peer)
        if body is grpc.aio.EOF:
            raise MalformedRequestError("the call ended without a request; send one message")
        return body

    async def message(self, context: Context, peer: PeerConnection) -> Any:
        """The call's next message, or `grpc.aio.EOF`; raises as `request`."""
        await peer.places.take()
        try:
            await self._places.take()
            try:
                return await self._read(context, peer)
            finally:
                self._places.give()
        finally:
            peer.places.give()

    async def keep_moving(self) -> None:
        """End requests that take long while others wait for a place; runs until it is cancelled."""
        while True:
            await asyncio.sleep(_GRACE_S / 2)
            now_s = asyncio.get_running_loop().time()
            for ending in self._in_the_way(now_s):
                ending.reschedule(now_s)

    async def _read(self, context: Context, peer: PeerConnection) -> Any:
        arrival = IncomingRequest(peer, asyncio.get_running_loop().time())
        ending = asyncio.timeout_at(arrival.since_s + self._limits.request_s)
        self._arriving[ending] = arrival
        try:
            async with ending:
                return await context.read()
        except TimeoutError:
            raise self._too_slow(arrival) from None
        finally:
            del self._arriving[ending]

    def _in_the_way(self, now_s: float) -> list[asyncio.Timeout]:
        """The oldest of those that take long: as many as wait, in all or for their own connection's places."""
        found: list[asyncio.Timeout] = []
        by_peer = Counter[PeerConnection]()
        for ending, one in self._arriving.items():
            if ending.expired():  # its time was over just now, and it has not heard of it yet
                continue
            is_wanted = len(found) < self._places.waiting or by_peer[one.peer] < one.peer.places.waiting
            if is_wanted and now_s - one.since_s >= _GRACE_S:
                found.append(ending)
                by_peer[one.peer] += 1
        return found

    def _too_slow(self, arrival: IncomingRequest) -> DeadlineExceededError | QueueFullError:
        took_s = asyncio.get_running_loop().time() - arrival.since_s
        if took_s < self._limits.request_s:
            return QueueFullError.of("requests are on their way", len(self._arriving), self._limits.arriving)
        return DeadlineExceededError(
            f"the request was not whole after {self._limits.request_s:g} seconds; send less at once, or faster"
        )
