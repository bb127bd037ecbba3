"""Shutdown of a server, on a signal or when its parent process exits."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final, final

from predictor.parent import STDIN, watch_parent

ORPHAN_DRAIN_S: Final = 5.0
"""Time for calls in flight after the parent process has exited."""

_log = logging.getLogger(__name__)


@final
class ShutdownSignal:
    """A request to shut down, on the running event loop; any thread may set it."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        """Shut down after the calls in flight."""
        self.orphaned = asyncio.Event()
        """The parent has exited: calls in flight have `ORPHAN_DRAIN_S`, because no one could kill the server later."""
        self._loop = asyncio.get_running_loop()

    def request(self) -> None:
        """Request a graceful shutdown."""
        self._set(self.requested)

    def orphan(self) -> None:
        """Request a shutdown because the parent has exited."""
        self._set(self.requested, self.orphaned)

    def _set(self, *events: asyncio.Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            for event in events:
                self._loop.call_soon_threadsafe(event.set)

    async def until(self, work: Coroutine[None, None, object]) -> bool:
        """Whether the work finished before a shutdown request, which cancels it. Raises as the work."""
        working, requested = asyncio.create_task(work), asyncio.create_task(self.requested.wait())
        await asyncio.wait({working, requested}, return_when="FIRST_COMPLETED")
        requested.cancel()
        if not working.cancel():
            await working
            return True
        await asyncio.wait({working})
        return False

    async def drained(self, drain: Coroutine[None, None, None]) -> None:
        """Drain to the end, or for `ORPHAN_DRAIN_S` after the parent exits."""
        draining, orphaned = asyncio.create_task(drain), asyncio.create_task(self.orphaned.wait())
        await asyncio.wait({draining, orphaned}, return_when="FIRST_COMPLETED")
        await asyncio.wait({draining}, timeout=ORPHAN_DRAIN_S)
        orphaned.cancel()
        if not draining.cancel():
            await draining


@contextmanager
def stop_signals(shutdown: ShutdownSignal, *, parent_watch: bool = False) -> Generator[None]:
    """Handle SIGTERM, SIGINT and SIGHUP as shutdown requests within the block; works also on Windows event loops.

    Args:
        shutdown: Receives the request.
        parent_watch: Ignore SIGINT unless standard input is a terminal. Ctrl+C reaches parent and server, and the
            parent may need the server until it has finished.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        shutdown.request()

    leaves_interrupts = parent_watch and sys.stdin is not None and not sys.stdin.isatty()
    handlers = {signal.SIGTERM: stop, signal.SIGINT: signal.SIG_IGN if leaves_interrupts else stop}
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # ignored: started with nohup
        handlers[signal.SIGHUP] = stop
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not one of Python's


def end_with_parent(shutdown: ShutdownSignal, descriptor: int = STDIN) -> None:
    """Shut down when standard input closes, which happens when the parent exits for any reason.

    Raises:
        ConfigurationError: Standard input is missing.
    """

    def gone() -> None:
        _log.info("standard input closed: the parent process has exited; stopping")
        shutdown.orphan()

    watch_parent(gone, descriptor)
