"""A server process from start to end."""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version
from types import FrameType
from typing import Final

from predictor.errors import QuantraError
from predictor.server.listener import Listener
from predictor.server.settings import ServerSettings

SWITCH_INTERVAL_S: Final = 0.0002
"""How long a thread keeps the interpreter while others wait. With the default of 5 ms the thread that runs the network
waits that long for each answer that is being written; 0.2 ms gave a third more throughput, shorter times no more."""

_log = logging.getLogger(__name__)


def serve(settings: ServerSettings) -> int:
    """Serve until SIGTERM or SIGINT. The first line on stdout is JSON and means that calls are answered.

    Must be called on the main thread. Signal handlers and switch interval are restored at the end.

    Returns:
        0 after an orderly end, 1 if the server could not start; one line on stderr then says why.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        asyncio.run(_serve(settings))
    except QuantraError as error:
        sys.stderr.write(f"{_one_line(error)}\n")
        return 1
    finally:
        sys.setswitchinterval(before)
    return 0


async def _serve(settings: ServerSettings) -> None:
    listener = Listener(settings.listen, settings.limits)
    with _stop_signal() as stopping:
        try:
            await _answer(listener, settings, stopping)
        finally:
            await listener.close()


async def _answer(listener: Listener, settings: ServerSettings, stopping: asyncio.Event) -> None:
    port = listener.bind()
    from predictor.service import PredictionService  # imports torch, which an address in use need not wait for

    with PredictionService.open(
        settings.models,
        device=settings.device,
        max_batch_rows=settings.max_batch_rows,
        threads=settings.threads,
    ) as service:
        for problem in service.problems:
            _log.warning("not served: %s", _one_line(problem))
        for name in service.without_champion:
            _log.warning("%s: no version has the alias champion, so the newest is served", name)
        await listener.start(service)
        _announce(port)
        await stopping.wait()
        _log.info("stopping: calls in flight may finish")
        await listener.drain()


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


def _announce(port: int) -> None:
    sys.stdout.write(
        json.dumps({"ready": True, "port": port, "pid": os.getpid(), "version": version("quantra")}) + "\n"
    )
    sys.stdout.flush()


def _one_line(error: QuantraError) -> str:
    return " ".join(error.message.split())
