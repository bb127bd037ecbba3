"""A server process from start to end."""

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, final

from predictor.errors import QuantraError
from predictor.server.listener import Listener
from predictor.server.settings import ServerSettings

if TYPE_CHECKING:
    from predictor.calls import Calls
    from predictor.service import PredictionService

SWITCH_INTERVAL_S: Final = 0.0002
"""How long a thread keeps the interpreter while others wait. With the default of 5 ms the thread that runs the network
waits that long for each answer that is being written; 0.2 ms gave a third more throughput, shorter times no more."""

_log = logging.getLogger(__name__)


def serve(settings: ServerSettings) -> int:
    """Serve until SIGTERM or SIGINT. The first line on stdout is JSON and means that calls are answered.

    Must be called on the main thread. Signal handlers and switch interval are restored at the end. A signal while
    models are loading ends the process itself, with status 0, for nothing interrupts what loads them.

    Returns:
        0 after an orderly end, 1 if the server could not start; one line on stderr then says why.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _allow_connections()
    try:
        is_loading = asyncio.run(_serve(settings))
    except QuantraError as error:
        sys.stderr.write(f"{_one_line(error)}\n")
        return 1
    finally:
        sys.setswitchinterval(before)
    if is_loading:
        _end_at_once()
    return 0


async def _serve(settings: ServerSettings) -> bool:
    """Whether a signal came while models were loading."""
    listener = Listener(settings.listen, settings.limits)
    with _stop_signal() as stopping:
        try:
            port = listener.bind()
            await listener.start()
            loading = _begin_loading(settings)
            await asyncio.wait(
                {loading, stopped := asyncio.create_task(stopping.wait())}, return_when="FIRST_COMPLETED"
            )
            if stopped.done():
                _log.info("stopping before the models are loaded")
                await listener.drain()
                return True
            with await loading as served:
                await _answer(listener, served, port, stopped)
        finally:
            await listener.close()
    return False


@final
@dataclass(frozen=True, slots=True)
class Loaded:
    """The models, and the calls that they answer. Closing both finishes what waits."""

    service: "PredictionService"
    calls: "Calls"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.close()
        self.service.close()


async def _answer(listener: Listener, loaded: Loaded, port: int, stopped: "asyncio.Task[Any]") -> None:
    for problem in loaded.service.problems:
        _log.warning("not served: %s", _one_line(problem))
    for name in loaded.service.without_champion:
        _log.warning("%s: no version has the alias champion, so the newest is served", name)
    await listener.serve(loaded.calls, [info.name for info in loaded.service.models()])
    _announce(port)
    await stopped
    _log.info("stopping: calls in flight may finish")
    await listener.drain()


def _begin_loading(settings: ServerSettings) -> "asyncio.Future[Loaded]":
    """Load on a thread, so that calls are told meanwhile that models are loading."""
    loaded: Future[Loaded] = Future()

    def load() -> None:
        try:
            loaded.set_result(_load(settings))
        except Exception as error:  # noqa: BLE001 - a thread's edge: whoever waits raises it
            loaded.set_exception(error)

    threading.Thread(target=load, name="load", daemon=True).start()
    return asyncio.wrap_future(loaded)


def _load(settings: ServerSettings) -> Loaded:
    from predictor.calls import Calls  # imports torch, which an address in use need not wait for
    from predictor.service import PredictionService

    service = PredictionService.open(
        settings.models,
        device=settings.device,
        max_batch_rows=settings.max_batch_rows,
        threads=settings.threads,
        limits=settings.limits.service,
    )
    return Loaded(service, Calls(service, settings.limits.service))


def _allow_connections() -> None:
    """As many descriptors as the system lets this process have; the usual 1024 are few for a server."""
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


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


def _announce(port: int) -> None:
    sys.stdout.write(
        json.dumps({"ready": True, "port": port, "pid": os.getpid(), "version": version("quantra")}) + "\n"
    )
    sys.stdout.flush()


def _one_line(error: QuantraError) -> str:
    return " ".join(error.message.split())
