"""Process-wide settings of a server: event loop, switch interval, file descriptors and memory."""

import asyncio
import ctypes
import gc
import os
import platform
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeVar

SWITCH_INTERVAL_S: Final = 0.0002
"""Thread switch interval. With the default of 5 ms, the network thread waits too long for the thread that writes
responses. 0.2 ms gave a third more throughput; shorter intervals gave no more."""

ResultT = TypeVar("ResultT")

_GC_THRESHOLDS: Final = (50_000, 20, 50)
"""Higher than Python's, because a garbage collection pauses all calls and answered calls leave no cycles. With Python's
thresholds, the p99 with 32 calls in flight was twice as long."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""From malloc.h."""
_MAPPED_BYTES: Final = 4 << 20
"""Freed blocks of this size or more return to the system; a batch uses smaller ones."""


def run(main: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run on uvloop if the extra `fast` is installed, else on asyncio's loop."""
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        return runner.run(main)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the loop factory of uvloop; None if it is not installed or cannot be used."""
    return import_module("uvloop").new_event_loop if find_spec("uvloop") and _has_standard_streams() else None


def _has_standard_streams() -> bool:
    """Whether descriptors 0 to 2 are open; otherwise libuv's own get these numbers and it aborts."""
    try:
        for descriptor in range(3):
            os.fstat(descriptor)
    except OSError:
        return False
    return True


@contextmanager
def tuned() -> Generator[None]:
    """Tune the process within the block; restores switch interval and garbage collector settings after it."""
    before, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*_GC_THRESHOLDS)
    _allow_connections()
    _return_memory()
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

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _return_memory() -> None:
    """Return the memory of large requests to the system, which glibc would keep, but not that of each batch.

    Setting either limit stops glibc from adapting both. The end of the heap would then return to the system from
    128 KiB on, and large batches of bars would take up to twice as long, because the same pages are cleared again.
    """
    if platform.libc_ver()[0] == "glibc":
        for limit in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            ctypes.CDLL(None).mallopt(limit, _MAPPED_BYTES)
