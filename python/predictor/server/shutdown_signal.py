"""When a server ends: at a signal, or when whoever started it is gone."""

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
"""How long calls in flight may finish once whoever started the server is gone."""

_log = logging.getLogger(__name__)


@final
class ShutdownSignal:
    """Whether the server shall end, on the running event loop; any thread may say so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        """Calls in flight may finish."""
        self.orphaned = asyncio.Event()
        """They have `ORPHAN_DRAIN_S` for it: nobody is left who could end the server by force."""
        self._loop = asyncio.get_running_loop()

    def ask(self) -> None:
        """End in order."""
        self._set(self.asked)

    def orphan(self) -> None:
        """End soon."""
        self._set(self.asked, self.orphaned)

    def _set(self, *events: asyncio.Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended already, and the server with it
            for event in events:
                self._loop.call_soon_threadsafe(event.set)

    async def until(self, work: Coroutine[None, None, object]) -> bool:
        """Whether the work was done before the server was asked to end; else it is cancelled. Raises as the work."""
        working, asked = asyncio.create_task(work), asyncio.create_task(self.asked.wait())
        await asyncio.wait({working, asked}, return_when="FIRST_COMPLETED")
        asked.cancel()
        if not working.cancel():
            await working
            return True
        await asyncio.wait({working})
        return False

    async def drained(self, drain: Coroutine[None, None, None]) -> None:
        """Drain to the end, or until the time of an orphan is over."""
        draining, orphaned = asyncio.create_task(drain), asyncio.create_task(self.orphaned.wait())
        await asyncio.wait({draining, orphaned}, return_when="FIRST_COMPLETED")
        await asyncio.wait({draining}, timeout=ORPHAN_DRAIN_S)
        orphaned.cancel()
        if not draining.cancel():
            await draining


@contextmanager
def stop_signals(stopping: ShutdownSignal, *, parent_watch: bool = False) -> Generator[None]:
    """SIGTERM and SIGINT ask the server to end within the block; works also where event loops know no signals.

    Args:
        stopping: asked.
        parent_watch: leave SIGINT to the parent, unless standard input is a terminal: Ctrl+C goes to all processes that
            were started there, and the parent may need the server until it has ended its own work.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.ask()

    leaves_interrupts = parent_watch and sys.stdin is not None and not sys.stdin.isatty()
    handlers = {signal.SIGTERM: stop, signal.SIGINT: signal.SIG_IGN if leaves_interrupts else stop}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not one of Python's


def end_with_parent(stopping: ShutdownSignal, descriptor: int = STDIN) -> None:
    """End the server when standard input ends, which it does with whoever holds its other end, however that dies.

    Raises:
        ConfigurationError: there is no standard input.
    """

    def gone() -> None:
        _log.info("standard input has ended: whoever started the server is gone")
        stopping.orphan()

    watch_parent(gone, descriptor)
