"""The supervisor's handle of a worker process."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from typing import Final, Self, final

from predictor.errors import ConfigurationError, QuantraError, UnavailableError
from predictor.server.workers.channel import (
    Channel,
    LoadModels,
    WorkerEvent,
    WorkerRequest,
    WorkerResponse,
    WorkerTask,
    decode_bytes,
    encode_bytes,
)
from predictor.wire import errors

PROGRAM: Final = ("-P", "-m", "predictor.server.workers")
"""Python arguments of a worker; it imports modules from this process's paths only."""
_STDERR: Final = 2
_CHECKS: Final = 10
"""Consecutive checks without a message after which a worker counts as stuck."""

_log = logging.getLogger(__name__)


@final
class WorkerProcess:
    """A worker process, on the running event loop; `WorkerProcess.begin` starts it.

    Args:
        number: number of the worker, from 1; its replacement has the same.
        process: the process.
        channel: channel to the process.
        stuck_s: see `ServerLimits.stuck_s`.
    """

    def __init__(self, number: int, process: Process, channel: Channel, stuck_s: float) -> None:
        self.number = number
        self._process = process
        self._channel = channel
        self._stuck_s = stuck_s
        self._problem = ""
        """The worker's message about why it cannot serve."""
        self._is_loaded, self._is_listening = asyncio.Event(), asyncio.Event()
        self._pending: dict[int, asyncio.Future[bytes]] = {}
        self._numbers = iter(range(1 << 62))
        self._received = 0
        """Number of messages received."""
        self._exit = asyncio.create_task(self._read_until_exit())
        self._stuck_check = asyncio.create_task(self._kill_when_stuck())

    @classmethod
    async def begin(cls, number: int, start: LoadModels) -> Self:
        """Start a process that loads the models; if this is cancelled, no process remains.

        Raises:
            ConfigurationError: the system cannot start a process.
        """
        try:
            process, channel = await _start_process()
        except OSError as error:
            raise ConfigurationError(f"cannot start a process for worker {number}: {error.strerror}") from error
        channel.send_now(start)
        return cls(number, process, channel, start.settings.limits.stuck_s)

    def __str__(self) -> str:
        return f"worker {self.number} (process {self._process.pid})"

    async def wait_until_loaded(self) -> None:
        """Wait until the models are loaded.

        Raises:
            ConfigurationError: the worker exited before; the message gives the reason.
        """
        await self._wait_for(self._is_loaded)

    async def listen(self) -> None:
        """Start listening and wait until it does; raises as `wait_until_loaded`."""
        await self._channel.send(WorkerRequest(next(self._numbers), "listen"))
        await self._wait_for(self._is_listening)

    async def call(self, name: str, request: bytes, *, is_change: bool) -> bytes:
        """Execute an admin call; a change must be followed by `confirm`.

        Raises:
            QuantraError: the call failed.
            UnavailableError: the worker exited.
        """
        return await self._request("change" if is_change else "call", name, request)

    async def confirm(self, *, stays: bool) -> None:
        """Keep or undo the last change; raises UnavailableError if the worker exited."""
        await self._request("keep_change" if stays else "undo_change")

    async def metrics(self) -> bytes:
        """Return the Prometheus metrics as text; raises UnavailableError if the worker exited."""
        return await self._request("metrics")

    async def reload_and_list_models(self) -> bytes:
        """Apply changes of a watched models folder and return the served models, as input of `copy_served_models`.

        Raises:
            QuantraError: the models folder cannot be read.
            UnavailableError: the worker exited.
        """
        return await self._request("reload_and_list_models")

    async def copy_served_models(self, served: bytes) -> None:
        """Serve the same models as another worker; failures are in the worker's log.

        Raises:
            UnavailableError: the worker exited.
        """
        await self._request("copy_served_models", body=served)

    async def wait_for_exit(self) -> str:
        """Wait until the worker has exited; return its exit code or signal as text."""
        code = await asyncio.shield(self._exit)
        if code >= 0:
            return f"exit code {code}"
        try:
            return f"signal {signal.Signals(-code).name}"
        except ValueError:  # a real-time signal
            return f"signal {-code}"

    def terminate(self) -> None:
        """Let calls in flight finish, then exit."""
        self._send_signal(signal.SIGTERM)

    def abandon(self) -> None:
        """Close the channel, which orphans the worker, and stop checking whether it is stuck."""
        self._stuck_check.cancel()
        self._channel.close()

    async def kill(self) -> None:
        """Kill the worker if it has not exited."""
        self._send_signal(signal.SIGKILL)
        await self.wait_for_exit()

    async def _request(self, task: WorkerTask, name: str = "", body: bytes = b"") -> bytes:
        if self._exit.done():
            raise self._make_exit_error()
        request = WorkerRequest(next(self._numbers), task, name, encode_bytes(body))
        response = self._pending[request.number] = asyncio.get_running_loop().create_future()
        await self._channel.send(request)
        return await response

    async def _kill_when_stuck(self) -> None:
        """Kill the process when its event loop no longer responds to pings after loading.

        It counts checks rather than time: if both processes pause, for example while the machine is suspended, only one
        check passes.
        """
        await self._is_loaded.wait()
        silent_checks = 0
        while silent_checks < _CHECKS:
            before = self._received
            self._channel.send_now(WorkerRequest(next(self._numbers), "ping"))
            await asyncio.sleep(self._stuck_s / _CHECKS)
            silent_checks = silent_checks + 1 if self._received == before else 0
        _log.warning("%s has not responded for %g s; killing it", self, self._stuck_s)
        self._send_signal(signal.SIGKILL)

    def _send_signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _wait_for(self, state: asyncio.Event) -> None:
        reached = asyncio.create_task(state.wait())
        try:
            await asyncio.wait({reached, self._exit}, return_when="FIRST_COMPLETED")
        finally:
            reached.cancel()
        if not state.is_set():
            raise ConfigurationError(
                self._problem or f"{self} exited with {await self.wait_for_exit()} before it was ready"
            )

    async def _read_until_exit(self) -> int:
        """Process messages until the worker exits; return its exit code."""
        try:
            await self._read()
        except (QuantraError, ValueError) as error:  # malformed, too long or unexpected
            self._problem = f"{self} sent an invalid message: {error}"
            _log.error("%s; killing it", self._problem)
            self._send_signal(signal.SIGKILL)
        finally:
            code = await self._process.wait()
            self._stuck_check.cancel()
            await self._channel.wait_closed()
            for answer in self._pending.values():
                if not answer.done():
                    answer.set_exception(self._make_exit_error())
        return code

    async def _read(self) -> None:
        while (message := await self._channel.receive()) is not None:
            self._received += 1
            match message:
                case WorkerEvent("loaded"):
                    self._is_loaded.set()
                case WorkerEvent("listening"):
                    self._is_listening.set()
                case WorkerEvent("failed"):
                    self._problem = message.problem
                case WorkerResponse():
                    self._resolve(message)
                case _:
                    raise ConfigurationError(f"a {type(message).__name__} is for workers only")

    def _resolve(self, response: WorkerResponse) -> None:
        """Resolve the future of a request, unless it was cancelled or nothing waits for the response."""
        future = self._pending.pop(response.number, None)
        if future is None or future.done():
            return
        if response.failure:
            error = errors.decode_details(decode_bytes(response.failure))
            future.set_exception(error or QuantraError("a worker rejected the call without a reason"))
        else:
            future.set_result(decode_bytes(response.body))

    def _make_exit_error(self) -> UnavailableError:
        return UnavailableError(f"{self} exited before it responded; retry in a moment")


async def _start_process() -> tuple[Process, Channel]:
    own_end, worker_end = socket.socketpair()
    with worker_end, contextlib.ExitStack() as cleanup:
        cleanup.callback(own_end.close)
        channel = await Channel.open(own_end)
        cleanup.callback(channel.close)
        process = await asyncio.create_subprocess_exec(  # last: a cancelled await after it would leak the process
            sys.executable,
            *PROGRAM,
            str(worker_end.fileno()),
            stdin=DEVNULL,
            stdout=_STDERR,  # standard output is reserved for the ready line
            pass_fds=(worker_end.fileno(),),
            start_new_session=True,  # Ctrl+C in a terminal reaches only the supervisor
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        cleanup.pop_all()
    return process, channel
