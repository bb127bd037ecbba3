"""Handover of results from threads to the event loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import final


@final
class LoopBridge:
    """Runs callbacks of other threads on the running event loop.

    Waking the loop costs as much as encoding a forecast, so one wake-up serves all callbacks added before it runs.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop, in order; from any thread."""
        self._ready.append(callback)
        if not self._is_woken and not self._loop.is_closed():
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._run_ready)

    def _run_ready(self) -> None:
        self._is_woken = False  # first, so that later callbacks wake the loop again
        while self._ready:
            self._ready.popleft()()
