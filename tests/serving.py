"""Real servers: a listener on a free port of this process, a whole server in this process, or a server process."""

import asyncio
import gc
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from unittest import mock

from watched_logs import SUITE

from predictor.calls import LedgerCalls, PredictionCalls
from predictor.server import Address, ListenAddress, ServeFlags, ServerLimits, ServerSettings, logs
from predictor.server.__main__ import _create_parser, main
from predictor.server.credentials import Certificates
from predictor.server.host import Host
from predictor.server.lifecycle_calls import LoadLifecycle
from predictor.server.listener import Listener
from predictor.server.observed_calls import CallObservers
from predictor.server.process import run
from predictor.server.servicer import LEDGER
from predictor.server.tokens import TokenGuard
from predictor.service import PredictionService

ANY_PORT = Address("127.0.0.1", 0)


@dataclass(frozen=True, slots=True)
class Served:
    target: str
    loop: asyncio.AbstractEventLoop
    stopping: asyncio.Event
    ended: asyncio.Event
    drained: "Future[None]"

    def begin_drain(self) -> None:
        """Start the drain that SIGTERM starts; returns at once."""
        self.loop.call_soon_threadsafe(self.stopping.set)

    def end(self) -> None:
        """Stop the listener on its loop, if it still runs."""
        self.ended.set()
        self.stopping.set()


@contextmanager
def serving(
    service: PredictionService,
    limits: ServerLimits | None = None,
    calls: PredictionCalls | None = None,
    *,
    address: ListenAddress = ANY_PORT,
    watching: CallObservers | None = None,
    guard: TokenGuard | None = None,
    certificates: Callable[[], Certificates] | None = None,
    ledger: LedgerCalls | None = None,
) -> Generator[Served]:
    """Serve until the block ends, by default on a free port of 127.0.0.1.

    `calls` are made of the service if none are given. Without `ledger`, there is none.
    """
    ready: Future[Served] = Future()
    limits = limits or ServerLimits()
    calls = calls or PredictionCalls(service, limits.service, max_bytes=limits.receive_bytes)

    def listener() -> Listener:
        return Listener(address, limits, guard=guard, certificates=certificates, observers=watching)

    ledger = ledger or LedgerCalls(None, list)
    serving_until_ended = _serve(service, listener, calls, ledger, ready)
    thread = threading.Thread(target=asyncio.run, args=(serving_until_ended,))
    thread.start()
    served = ready.result()
    try:
        yield served
    finally:
        served.loop.call_soon_threadsafe(served.end)
        thread.join()


async def _serve(
    service: PredictionService,
    made: Callable[[], Listener],
    calls: PredictionCalls,
    ledger: LedgerCalls,
    ready: "Future[Served]",
) -> None:
    listener = made()
    target = str(listener.bind())
    await listener.start()
    listener.serve(calls, [info.name for info in service.models()], {LEDGER.full_name: ledger})
    served = Served(target, asyncio.get_running_loop(), asyncio.Event(), asyncio.Event(), Future())
    ready.set_result(served)
    await served.stopping.wait()
    if served.ended.is_set():  # its end is not checked, and a drain takes time
        await listener.close()
    else:
        await listener.drain()
    served.drained.set_result(None)
    await served.ended.wait()
    calls.close()
    ledger.close()


@dataclass(frozen=True, slots=True)
class Process:
    """A ready server process."""

    popen: "subprocess.Popen[str]"
    target: str
    ready: dict[str, object]


@contextmanager
def server_process(
    models: Path, log: IO[str], *options: str, program: tuple[str, ...] = ("predictor.server",)
) -> Generator[Process]:
    """Start the server and wait for its first line; end it after the block if it still runs."""
    command = [sys.executable, "-m", *program, "--models", str(models), "--listen", "127.0.0.1:0", *options]
    # One thread, as in the tests: sums over several threads may differ in the last bits.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as popen:
        assert popen.stdout is not None
        try:
            ready = json.loads(popen.stdout.readline())
            yield Process(popen, f"127.0.0.1:{ready['port']}", ready)
        finally:
            popen.terminate()
    SUITE.note(Path(log.name).read_text(encoding="utf-8").splitlines())


@dataclass(frozen=True, slots=True)
class HostedServer:
    """A server with the flags of the command, in this process."""

    target: str
    ready: Mapping[str, int | str]
    """Addresses of the first line of a server process."""


@contextmanager
def hosted_server(models: Path, *options: str, load_lifecycle: LoadLifecycle | None = None) -> Generator[HostedServer]:
    """Load and serve the models as a server process does, but on a thread of this process, which is ten times faster.

    The block gets a server that is ready, and its end drains it.
    """
    given = _create_parser().parse_args(["--models", str(models), "--listen", "127.0.0.1:0", *options])
    settings, ready = ServeFlags(**vars(given)).settings(), Future[tuple[HostedServer, Callable[[], object]]]()
    thread = threading.Thread(target=run, args=(_host(settings, load_lifecycle, ready),))
    with mock.patch.object(gc, "freeze"):  # a server process excludes what is imported from collections
        thread.start()
        server, end = ready.result()
        try:
            yield server
        finally:
            end()
            thread.join()


async def _host(
    settings: ServerSettings,
    load_lifecycle: LoadLifecycle | None,
    ready: "Future[tuple[HostedServer, Callable[[], object]]]",
) -> None:
    host, loop, ended = Host(settings, load_lifecycle=load_lifecycle), asyncio.get_running_loop(), asyncio.Event()
    try:
        addresses = host.bind()
        await host.start()
        await host.load()
        host.serve()
    except BaseException as error:
        ready.set_exception(error)
        await host.close()
        raise
    server = HostedServer(str(addresses.calls), addresses.to_json())
    ready.set_result((server, lambda: loop.call_soon_threadsafe(ended.set)))
    await ended.wait()
    await host.drain()
    await host.close()


@dataclass(frozen=True, slots=True)
class FailedStart:
    """Exit status and output of a server that failed to start."""

    returncode: int
    stdout: str
    stderr: str
    """Without the log."""


def failed_start(*options: str) -> FailedStart:
    """Run the command of a server that fails to start, in this process."""
    with (
        redirect_stdout(io.StringIO()) as stdout,
        redirect_stderr(io.StringIO()) as stderr,
        mock.patch.object(logs, "set_up"),
        mock.patch.object(gc, "unfreeze"),  # what the tests have frozen stays so
    ):
        try:
            status = main(options)
        except SystemExit as ended:  # bad usage
            status = int(str(ended.code))
    return FailedStart(status, stdout.getvalue(), stderr.getvalue())


def failed_process(*options: str) -> "subprocess.CompletedProcess[str]":
    """Run a server process that fails to start, and return its result."""
    command = [sys.executable, "-m", "predictor.server", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    SUITE.note(done.stderr.splitlines(), allowed={"a path"})  # except those on its own command line
    return done


def lines_of(text: str) -> Iterator[str]:
    """The non-empty lines."""
    return (line for line in text.splitlines() if line.strip())
