"""From the threads that have answers to the event loop that sends them."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from concurrent.futures import Future


@final
class LoopBridge:
    """Takes answers from the threads that have them to the running event loop.

    To wake the loop costs a thread as much as to encode a forecast, and several answers are there at once: what comes
    before the loop has woken up goes with what woke it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Callable[[], None]] = deque()
        self._is_woken = False

    async def result(self, answer: "Future[bytes]") -> bytes:
        """The answer, or its error; whoever is cancelled here cancels it."""
        waiting: asyncio.Future[bytes] = self._loop.create_future()
        answer.add_done_callback(lambda _: self.tell(partial(_settle, waiting, answer)))
        try:
            return await waiting
        except asyncio.CancelledError:
            answer.cancel()
            raise

    def tell(self, news: Callable[[], None]) -> None:
        """Call `news` on the loop, in the order in which they are told; from any thread."""
        self._ready.append(news)
        if not self._is_woken and not self._loop.is_closed():
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._is_woken = False  # first: what comes from now on wakes the loop again
        while self._ready:
            self._ready.popleft()()


def _settle(waiting: "asyncio.Future[bytes]", answer: "Future[bytes]") -> None:
    if waiting.done():  # nobody waits any more
        return
    if answer.cancelled():
        waiting.cancel()
    elif (error := answer.exception()) is not None:
        waiting.set_exception(error)
    else:
        waiting.set_result(answer.result())
