"""What a server sets for its whole process: how threads take turns, what the system lets it have, and memory."""

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
"""How long a thread keeps the interpreter while others wait. With the default of 5 ms the thread that runs the network
waits that long for each answer that is being written; 0.2 ms gave a third more throughput, shorter times no more."""

ResultT = TypeVar("ResultT")

_M_MMAP_THRESHOLD: Final = -3
"""From malloc.h."""
_MAPPED_BYTES: Final = 4 << 20
"""Blocks from this size on are the system's again once they are free; what a forward uses is smaller."""


def run(main: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run on an event loop of uvloop's where the extra `fast` is installed, else on one of asyncio's."""
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        return runner.run(main)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Makes a loop of uvloop's; None: it is not installed, or cannot be used."""
    return import_module("uvloop").new_event_loop if find_spec("uvloop") and _has_standard_streams() else None


def _has_standard_streams() -> bool:
    """Whether the descriptors 0 to 2 are taken; where they are not, its own get these numbers, and libuv aborts."""
    try:
        for descriptor in range(3):
            os.fstat(descriptor)
    except OSError:
        return False
    return True


@contextmanager
def tuned() -> Generator[None]:
    """Serve within the block; switch interval and what the garbage collector looks at are restored behind it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _allow_connections()
    _return_memory()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


def _allow_connections() -> None:
    """As many descriptors as the system lets this process have; the usual 1024 are few for a server."""
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _return_memory() -> None:
    """Give the memory of large requests back to the system; glibc would keep it once it has freed a few of them."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
