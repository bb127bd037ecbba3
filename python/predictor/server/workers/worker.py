"""A worker process, and how its models stay those of the other workers."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn, final

from predictor._pb import prediction_pb2 as pb
from predictor.errors import QuantraError
from predictor.memory import make_caller_error
from predictor.server.host import Host, join_lines
from predictor.server.logs import set_up
from predictor.server.process import ShutdownSignal, exit_now, handle_signals, run, tune_process
from predictor.server.workers.channel import (
    Channel,
    LoadModels,
    Message,
    WorkerEvent,
    WorkerRequest,
    WorkerResponse,
    decode_bytes,
    encode_bytes,
)
from predictor.wire import errors

if TYPE_CHECKING:
    from predictor.service import ServedModels, ServedSnapshot


_log = logging.getLogger(__name__)


def work(descriptor: int) -> NoReturn:
    """Serve until a signal or until the supervisor exits; the exit status is 1 if it could not serve."""
    with tune_process():
        status = run(_work(socket.socket(fileno=descriptor)))
    exit_now(status)


async def _work(end: socket.socket) -> int:
    """Run the worker and return its exit status."""
    shutdown = ShutdownSignal()
    with handle_signals(shutdown):
        channel = await Channel.open(end)
        start = await channel.receive()
        if not isinstance(start, LoadModels):
            return 0
        set_up(start.log)
        host = Host(start.settings, is_worker=True)
        try:
            await _serve(host, channel, shutdown)
        except QuantraError as error:
            await channel.send(WorkerEvent("failed", join_lines(error)))
            return 1
        finally:
            await host.close()
            await channel.wait_closed()
    return 0


async def _serve(host: Host, channel: Channel, shutdown: ShutdownSignal) -> None:
    control = WorkerControl(host, channel, shutdown)
    control_task = asyncio.create_task(control.run())
    if not await shutdown.run(host.load()):
        return
    await channel.send(WorkerEvent("loaded"))
    if await shutdown.run(control.may_listen.wait()):
        host.bind()
        host.serve()
        await host.start()
        await channel.send(WorkerEvent("listening"))
        await shutdown.requested.wait()
        _log.info("worker %d is stopping: calls in flight may finish", os.getpid())
        await shutdown.drain(host.drain())
    control_task.cancel()


@final
class WorkerControl:
    """Executes the supervisor's messages; when the supervisor exits, so does the worker."""

    def __init__(self, host: Host, channel: Channel, shutdown: ShutdownSignal) -> None:
        self.may_listen = asyncio.Event()
        self._host = host
        self._channel = channel
        self._shutdown = shutdown
        self._snapshot: ServedSnapshot | None = None
        """Models before the last change, until it is confirmed or undone."""
        self._tasks = set[asyncio.Task[None]]()

    async def run(self) -> None:
        """Execute messages until the channel closes."""
        try:
            while (message := await self._channel.receive()) is not None:
                self._dispatch(message)
        finally:
            self._shutdown.stop_as_orphan()

    def _dispatch(self, message: Message) -> None:
        """Start a task, so that the next message is read immediately."""
        if not isinstance(message, WorkerRequest):
            _log.error("the supervisor sent an unexpected %s", type(message).__name__)
            return
        task = asyncio.create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: WorkerRequest) -> None:
        try:
            response = WorkerResponse(request.number, encode_bytes(await self._execute(request)))
        except Exception as error:  # noqa: BLE001 - task boundary: the supervisor gets the error
            details = errors.encode_details(make_caller_error(request.task, error, _log))
            response = WorkerResponse(request.number, failure=encode_bytes(details))
        await self._channel.send(response)

    async def _execute(self, request: WorkerRequest) -> bytes:
        body = decode_bytes(request.body)
        match request.task:
            case "listen":
                self.may_listen.set()
            case "ping":
                pass
            case "call":
                return await asyncio.wrap_future(self._host.change(request.name, body))
            case "change":
                before = self._host.models.current
                response = await asyncio.wrap_future(self._host.change(request.name, body))
                self._snapshot = before
                return response
            case "keep_change":
                self._snapshot = None
            case "undo_change":
                before, self._snapshot = self._snapshot, None
                if before is not None:
                    await asyncio.to_thread(self._host.restore, before)
            case "metrics":
                return await asyncio.to_thread(self._host.metrics)
            case "reload_and_list_models":
                return await asyncio.to_thread(self._reload_and_list_models)
            case "copy_served_models":
                await asyncio.to_thread(self._copy_served_models, body)
        return b""

    def _reload_and_list_models(self) -> bytes:
        self._host.refresh()
        return encode_served(self._host.models)

    def _copy_served_models(self, others: bytes) -> None:
        for problem in copy_served_models(self._host.models, others):
            _log.warning("worker %d: %s", os.getpid(), problem)


def encode_served(models: "ServedModels") -> bytes:
    """Encode the served models for another worker."""
    return pb.ListModelsResponse(
        models=[
            pb.ModelInfo(
                name=info.name, version=info.version, is_default=info.is_default, weights_hash=info.weights_hash
            )
            for info in models.infos()
        ]
    ).SerializeToString()


def copy_served_models(models: "ServedModels", others: bytes) -> list[str]:
    """Serve the same models as another worker, as far as the models folder has them.

    Returns:
        The remaining differences, one sentence each.
    """
    expected = _decode_served(others)
    missing = expected.keys() - _decode_served(encode_served(models)).keys()
    problems = [*_apply(models.load, missing, "served by the other workers but not here")]
    champions = {reference for reference, info in expected.items() if info.is_default}
    problems += _apply(models.adopt_champion, champions, "the champion of the other workers but not here")
    names = {info.name for info in expected.values()}
    # A model without wanted versions is unloaded as a whole, because its champion cannot be unloaded alone.
    surplus = {
        reference if info.name in names else info.name
        for reference, info in _decode_served(encode_served(models)).items()
        if reference not in expected
    }
    problems += _apply(models.unload, surplus, "served here but not by the other workers")
    return [*problems, *_find_differences(_decode_served(encode_served(models)), expected)]


def _decode_served(served: bytes) -> Mapping[str, pb.ModelInfo]:
    return {f"{info.name}@{info.version}": info for info in pb.ListModelsResponse.FromString(served).models}


def _apply(change: Callable[[str], None], references: set[str], difference: str) -> Iterator[str]:
    """Apply the change to each reference and yield the failures."""
    for reference in sorted(references):
        try:
            change(reference)
        except QuantraError as error:
            yield f"{reference} is {difference}: {error.message}"


def _find_differences(served: Mapping[str, pb.ModelInfo], expected: Mapping[str, pb.ModelInfo]) -> Iterator[str]:
    for reference in sorted(served.keys() & expected.keys()):
        here, there = served[reference], expected[reference]
        if here.weights_hash != there.weights_hash:
            yield f"{reference} has changed in the folder since the other workers read it; reload {here.name}"
        if there.is_default and not here.is_default:
            yield (
                f"{here.name} refers to {reference} in the other workers but not here; load {here.name} to read its "
                "aliases"
            )
