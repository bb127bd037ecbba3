"""Handover of requests from the event loop to the models' threads, and of results back."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from predictor.service import ModelWorker

INLINE_S: Final = 0.008
"""Longest time of a batch on the event loop's thread, in seconds.

A handover to another thread takes about .1 ms, and two busy threads slow each other down: a batch of 32 small
forecasts, about 4 ms, takes a tenth less on this thread.
"""


@final
class InlineBatcher:
    """Runs the requests of one turn of the running event loop as one batch per model.

    Batches that usually take at most INLINE_S run on the loop's thread, others on the model's thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._workers: set[ModelWorker] = set()

    def schedule(self, worker: "ModelWorker") -> None:
        """Run a worker's queued requests soon; from any thread."""
        if threading.get_ident() != self._thread:
            worker.wake()
            return
        if not self._workers:
            self._loop.call_soon(self._run_batches)
        self._workers.add(worker)

    def finish(self) -> None:
        """Pass this turn's requests to the models' threads, because the loop is about to wait for them."""
        for worker in self._workers:
            worker.wake()

    def _run_batches(self) -> None:
        workers, self._workers = self._workers, set()
        for worker in workers:
            worker.run_waiting(INLINE_S)


@final
class LoopBridge:
    """Runs callbacks of any thread on the running event loop.

    Waking the loop costs as much as encoding a forecast, so one wake-up serves all callbacks added before it runs.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._ready_callbacks: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def call(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop, in order; from any thread, and at once from the loop's."""
        if threading.get_ident() == self._thread and self._loop.is_running() and not self._ready_callbacks:
            callback()
            return
        self._ready_callbacks.append(callback)
        if not self._is_woken and not self._loop.is_closed():
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._run_ready)

    def _run_ready(self) -> None:
        self._is_woken = False  # first, so that later callbacks wake the loop again
        while self._ready_callbacks:
            self._ready_callbacks.popleft()()
