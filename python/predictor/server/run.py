"""A server process from start to end."""

import asyncio
import ctypes
import gc
import json
import logging
import os
import platform
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version
from types import FrameType
from typing import Final, NoReturn

from predictor.errors import QuantraError
from predictor.server.host import Host, Ports, one_line
from predictor.server.settings import ServerSettings

SWITCH_INTERVAL_S: Final = 0.0002
"""How long a thread keeps the interpreter while others wait. With the default of 5 ms the thread that runs the network
waits that long for each answer that is being written; 0.2 ms gave a third more throughput, shorter times no more."""

_M_MMAP_THRESHOLD: Final = -3
"""From malloc.h."""
_MAPPED_BYTES: Final = 4 << 20
"""Blocks from this size on are the system's again once they are free; what a forward uses is smaller."""

_log = logging.getLogger(__name__)


def serve(settings: ServerSettings) -> int:
    """Serve until SIGTERM or SIGINT. The first line on stdout is JSON and means that calls are answered.

    Must be called on the main thread. Signal handlers, switch interval and what the garbage collector looks at are
    restored at the end. A signal while models are loading ends the process itself, with status 0, for nothing
    interrupts what loads them.

    Returns:
        0 after an orderly end, 1 if the server could not start; one line on stderr then says why.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _allow_connections()
    _return_memory()
    try:
        is_loading = asyncio.run(_serve(settings))
    except QuantraError as error:
        sys.stderr.write(f"{one_line(error)}\n")
        return 1
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)
    if is_loading:
        _end_at_once()
    return 0


async def _serve(settings: ServerSettings) -> bool:
    """Whether a signal came while models were loading."""
    host = Host(settings)
    with _stop_signal() as stopping:
        try:
            ports = host.bind()
            await host.start()
            loading, stopped = asyncio.create_task(host.load()), asyncio.create_task(stopping.wait())
            await asyncio.wait({loading, stopped}, return_when="FIRST_COMPLETED")
            if not loading.done():
                _log.info("stopping before the models are loaded")
                return True
            await loading
            await host.serve()
            _announce(ports)
            await stopped
            _log.info("stopping: calls in flight may finish")
            await host.drain()
        finally:
            await host.close()
    return False


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


def _end_at_once() -> NoReturn:
    """End although a thread is loading: ending in order would wait for it, and nothing of it is worth keeping."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@contextmanager
def _stop_signal() -> Generator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set within the block; works also where event loops know no signals."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stopping.set)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not one of Python's


def _announce(ports: Ports) -> None:
    line = {"ready": True, "port": ports.calls, "pid": os.getpid(), "version": version("quantra")}
    others = {"admin_port": ports.admin, "metrics_port": ports.metrics}
    there = {name: port for name, port in others.items() if port is not None}
    sys.stdout.write(json.dumps({**line, **there}) + "\n")
    sys.stdout.flush()
