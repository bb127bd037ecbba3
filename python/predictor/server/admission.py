"""Which calls are let in: how many in all and from one peer, and how long a request may take to arrive."""

import asyncio
from collections import Counter
from typing import Any, Final, cast, final

import grpc.aio

from predictor.errors import DeadlineExceededError, MalformedRequestError, QueueFullError, UnavailableError
from predictor.server.settings import ServerLimits

_GRACE_S: Final = 1.0
"""A request may take so long to arrive however many others do."""

Context = grpc.aio.ServicerContext[Any, Any]


@final
class Admission:
    """Counts calls from their arrival until their answer is sent, on one event loop."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._peers: Counter[str] = Counter()
        self._in_flight = 0
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def enter(self, context: Context) -> None:
        """Let a call in, until it has ended.

        Raises:
            UnavailableError: the server is stopping.
            QueueFullError: as many calls as allowed are in flight, in all or from this peer.
        """
        if self._is_closed:
            raise UnavailableError("the server is stopping; ask again in a moment, or another server")
        if self._in_flight >= self._limits.calls_in_flight:
            raise QueueFullError.of("calls are in flight", self._in_flight, self._limits.calls_in_flight)
        peer = context.peer()
        if self._peers[peer] >= self._limits.calls_per_peer:
            raise QueueFullError.of(
                "calls of this connection are in flight", self._peers[peer], self._limits.calls_per_peer
            )
        self._in_flight += 1
        self._peers[peer] += 1
        self._idle.clear()

        def leave(_: Context) -> None:
            self._leave(peer)

        context.add_done_callback(cast("Any", leave))  # the stubs name the argument otherwise

    def close(self) -> None:
        """Let no further call in."""
        self._is_closed = True

    async def idle(self) -> None:
        """Wait until no call is in flight."""
        await self._idle.wait()

    def _leave(self, peer: str) -> None:
        self._in_flight -= 1
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]
        if self._in_flight == 0:
            self._idle.set()


@final
class Arrivals:
    """Requests that are on their way. Those that never come whole would hold their memory for ever."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._unfinished: dict[asyncio.Timeout, float] = {}
        """When each began, oldest first."""

    async def request(self, context: Context) -> bytes:
        """The call's one message.

        Raises:
            DeadlineExceededError: it did not arrive in time.
            QueueFullError: too many others are on their way, and it is the one that has been longest.
            MalformedRequestError: the call ended without one.
        """
        now_s = asyncio.get_running_loop().time()
        ending = asyncio.timeout_at(now_s + self._limits.request_s)
        self._unfinished[ending] = now_s
        try:
            async with ending:
                body: bytes = await context.read()
        except TimeoutError:
            raise self._too_slow(now_s) from None
        finally:
            del self._unfinished[ending]
        if body is grpc.aio.EOF:
            raise MalformedRequestError("the call ended without a request; send one message")
        return body

    async def keep_bounded(self) -> None:
        """End the oldest requests while too many are on their way; runs until it is cancelled."""
        while True:
            await asyncio.sleep(_GRACE_S)
            now_s = asyncio.get_running_loop().time()
            late = [ending for ending, since_s in self._unfinished.items() if now_s - since_s >= _GRACE_S]
            for ending in late[: max(0, len(self._unfinished) - self._limits.unfinished_requests)]:
                ending.reschedule(now_s)

    def _too_slow(self, since_s: float) -> DeadlineExceededError | QueueFullError:
        took_s = asyncio.get_running_loop().time() - since_s
        if took_s < self._limits.request_s:
            return QueueFullError.of(
                "requests are on their way", len(self._unfinished), self._limits.unfinished_requests
            )
        return DeadlineExceededError(
            f"the request was not whole after {self._limits.request_s:g} seconds; send less at once, or faster"
        )
