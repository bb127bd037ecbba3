"""The process of a server: its event loop and tuning, the signals that stop it, and its exit."""

import asyncio
import ctypes
import gc
import logging
import os
import platform
import signal
import sys
from collections.abc import Coroutine, Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar, final

from predictor.parent import STDIN, watch_parent

SWITCH_INTERVAL_S: Final = 0.0002
"""Thread switch interval. With the default of 5 ms, the network thread waits too long for the thread that writes
responses. 0.2 ms gave a third more throughput; shorter intervals gave no more."""
ORPHAN_DRAIN_S: Final = 5.0
"""Time for calls in flight after the parent process has exited."""
_GC_THRESHOLDS: Final = (50_000, 20, 50)
"""Higher than Python's, because a garbage collection pauses all calls and answered calls leave no cycles. With Python's
thresholds, the p99 with 32 calls in flight was twice as long."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""From malloc.h."""
_MAPPED_BYTES: Final = 4 << 20
"""Freed blocks of this size or more return to the system; a batch uses smaller ones."""

ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)


def run(main: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run on uvloop if the extra `fast` is installed, else on asyncio's loop."""
    loop_factory = import_module("uvloop").new_event_loop if find_spec("uvloop") and _has_standard_streams() else None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)


def _has_standard_streams() -> bool:
    """Whether descriptors 0 to 2 are open; otherwise libuv's own get these numbers and it aborts."""
    try:
        for descriptor in range(3):
            os.fstat(descriptor)
    except OSError:
        return False
    return True


@contextmanager
def tune_process() -> Generator[None]:
    """Tune the process within the block; restores switch interval and garbage collector settings after it."""
    before, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*_GC_THRESHOLDS)
    _allow_connections()
    # Return the memory of large requests to the system, which glibc would keep, but not that of each batch. Setting
    # either limit stops glibc from adapting both. The end of the heap would then return to the system from 128 KiB on,
    # and large batches of bars would take up to twice as long, because the same pages are cleared again.
    if platform.libc_ver()[0] == "glibc":
        for limit in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            ctypes.CDLL(None).mallopt(limit, _MAPPED_BYTES)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(before)


def _allow_connections() -> None:
    """Raise the limit of file descriptors to the maximum; the usual 1024 are few for a server."""
    if sys.platform != "win32":
        import resource

        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


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

    def stop_as_orphan(self) -> None:
        """Request a shutdown because the parent has exited."""
        self._set(self.requested, self.orphaned)

    def _set(self, *events: asyncio.Event) -> None:
        with suppress(RuntimeError):  # the loop is closed
            for event in events:
                self._loop.call_soon_threadsafe(event.set)

    async def run(self, work: Coroutine[None, None, object]) -> bool:
        """Whether the work finished before a shutdown request, which cancels it. Raises as the work."""
        working, requested = asyncio.create_task(work), asyncio.create_task(self.requested.wait())
        await asyncio.wait({working, requested}, return_when="FIRST_COMPLETED")
        requested.cancel()
        if not working.cancel():
            await working
            return True
        await asyncio.wait({working})
        return False

    async def drain(self, drain: Coroutine[None, None, None]) -> None:
        """Drain to the end, or for `ORPHAN_DRAIN_S` after the parent exits."""
        draining, orphaned = asyncio.create_task(drain), asyncio.create_task(self.orphaned.wait())
        await asyncio.wait({draining, orphaned}, return_when="FIRST_COMPLETED")
        await asyncio.wait({draining}, timeout=ORPHAN_DRAIN_S)
        orphaned.cancel()
        if not draining.cancel():
            await draining


@contextmanager
def handle_signals(shutdown: ShutdownSignal, *, parent_watch: bool = False) -> Generator[None]:
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

    def stop_with_parent() -> None:
        _log.info("standard input closed: the parent process has exited; stopping")
        shutdown.stop_as_orphan()

    watch_parent(stop_with_parent, descriptor)


def exit_now(status: int = 0) -> NoReturn:
    """Exit without waiting for loading threads or for the second that Python takes to finalize torch."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
