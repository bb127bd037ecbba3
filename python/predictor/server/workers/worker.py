"""The main function of a worker process."""

import asyncio
import logging
import os
import socket
from typing import TYPE_CHECKING, NoReturn, final

from predictor.errors import QuantraError
from predictor.memory import error_of
from predictor.server.host import Host, one_line
from predictor.server.logs import set_up
from predictor.server.main import exit_now
from predictor.server.process_tuning import run, tuned
from predictor.server.shutdown_signal import ShutdownSignal, stop_signals
from predictor.server.workers.agreement import encode_served, match_models
from predictor.server.workers.channel import Channel
from predictor.server.workers.messages import (
    AdminFailure,
    AdminRequest,
    AdminResponse,
    CollectMetrics,
    ConfirmChange,
    ListeningStarted,
    LoadModels,
    MatchModels,
    Message,
    ModelsLoaded,
    Ping,
    Pong,
    Question,
    StartFailed,
    StartListening,
    SyncModels,
    bytes_of,
    text_of,
)
from predictor.wire import errors

if TYPE_CHECKING:
    from predictor.service import ModelWorkers

_log = logging.getLogger(__name__)


def work(descriptor: int) -> NoReturn:
    """Serve until a signal or until the supervisor exits; the exit status is 1 if it could not serve.

    Args:
        descriptor: file descriptor of the worker's end of the socket pair.
    """
    with tuned():
        status = run(_work(socket.socket(fileno=descriptor)))
    exit_now(status)


async def _work(end: socket.socket) -> int:
    """Run the worker and return its exit status."""
    shutdown = ShutdownSignal()
    with stop_signals(shutdown):
        channel = await Channel.over(end)
        start = await channel.receive()
        if not isinstance(start, LoadModels):
            return 0
        set_up(start.log)
        host = Host(start.settings, is_worker=True)
        try:
            await _serve(host, channel, shutdown)
        except QuantraError as error:
            await channel.send(StartFailed(one_line(error)))
            return 1
        finally:
            await host.close()
            await channel.closed()
    return 0


async def _serve(host: Host, channel: Channel, shutdown: ShutdownSignal) -> None:
    control = WorkerControl(host, channel, shutdown)
    control_task = asyncio.create_task(control.run())
    if not await shutdown.until(host.load()):
        return
    await channel.send(ModelsLoaded())
    if await shutdown.until(control.may_listen.wait()):
        host.bind()
        await host.serve()
        await host.start()
        await channel.send(ListeningStarted())
        await shutdown.requested.wait()
        _log.info("worker %d is stopping: calls in flight may finish", os.getpid())
        await shutdown.drained(host.drain())
    control_task.cancel()


@final
class WorkerControl:
    """Executes the supervisor's messages; when the supervisor exits, so does the worker.

    Args:
        host: the server of this worker.
        channel: channel to the supervisor.
        shutdown: receives a request when the supervisor exits.
    """

    def __init__(self, host: Host, channel: Channel, shutdown: ShutdownSignal) -> None:
        self.may_listen = asyncio.Event()
        self._host = host
        self._channel = channel
        self._shutdown = shutdown
        self._before: ModelWorkers | None = None
        """Models before the last change, until it is confirmed or undone."""
        self._tasks = set[asyncio.Task[None]]()

    async def run(self) -> None:
        """Execute messages until the channel closes."""
        try:
            while (message := await self._channel.receive()) is not None:
                self._execute(message)
        finally:
            self._shutdown.orphan()

    def _execute(self, message: Message) -> None:
        """Start a task, so that the next message is read immediately."""
        match message:
            case StartListening():
                self.may_listen.set()
            case Ping():
                self._channel.put(Pong())
            case AdminRequest() | ConfirmChange() | CollectMetrics() | SyncModels() | MatchModels():
                task = asyncio.create_task(self._answer(message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case _:
                _log.error("the supervisor sent an unexpected %s", type(message).__name__)

    async def _answer(self, question: Question) -> None:
        try:
            answer = await self._answer_to(question)
        except QuantraError as error:
            await self._refuse(question, error)
        except Exception as error:  # noqa: BLE001 - task boundary: the supervisor gets the error
            await self._refuse(question, error_of(type(question).__name__, error, _log))
        else:
            await self._channel.send(AdminResponse(question.number, text_of(answer)))

    async def _answer_to(self, question: Question) -> bytes:
        match question:
            case AdminRequest():
                return await self._call(question)
            case ConfirmChange():
                return await self._confirm(stays=question.stays)
            case CollectMetrics():
                return await asyncio.to_thread(self._host.metrics)
            case SyncModels():
                return await asyncio.to_thread(self._sync_models)
            case MatchModels():
                return await asyncio.to_thread(self._match_models, bytes_of(question.served))

    async def _call(self, request: AdminRequest) -> bytes:
        before = self._host.models.now
        answer = await asyncio.wrap_future(self._host.change(request.name, bytes_of(request.request)))
        if request.is_change:
            self._before = before
        return answer

    async def _confirm(self, *, stays: bool) -> bytes:
        before, self._before = self._before, None
        if before is not None and not stays:
            await asyncio.to_thread(self._host.restore, before)
        return b""

    def _sync_models(self) -> bytes:
        self._host.refresh()
        return encode_served(self._host.models)

    def _match_models(self, others: bytes) -> bytes:
        for problem in match_models(self._host.models, others):
            _log.warning("worker %d: %s", os.getpid(), problem)
        return b""

    async def _refuse(self, question: Question, error: QuantraError) -> None:
        await self._channel.send(AdminFailure(question.number, text_of(errors.encode_details(error))))
