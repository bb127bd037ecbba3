"""The workers of one server: joint start, replacement of dead workers, and changes applied to all or none."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from predictor._pb import inference_pb2 as inference_pb
from predictor._pb import prediction_pb2 as pb
from predictor.call_context import NEVER, CallContext
from predictor.errors import ConfigurationError, QuantraError, UnavailableError, get_error_status, restore_error
from predictor.server.process import ORPHAN_DRAIN_S
from predictor.server.workers.channel import LoadModels
from predictor.server.workers.worker_process import WorkerProcess

CLOSE_S: Final = 5.0
"""Longest time in seconds for a worker to exit after its last call."""

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """Retries for workers that exit before they serve."""

    tries: int = 6
    """Most consecutive attempts to start one worker."""
    first_s: float = 1.0
    """First delay in seconds; it doubles each time. The sixth attempt starts 16 seconds after the fifth."""

    def delay_s(self, failed: int) -> float:
        """Return the delay after `failed` consecutive failures; 0 after a worker that served."""
        return 0.0 if failed == 0 else self.first_s * 2.0 ** (failed - 1)


@final
@dataclass(frozen=True, slots=True)
class ModelChange:
    """An admin call that all workers have executed, so that later workers repeat it."""

    name: str
    request: bytes

    @property
    def reference(self) -> str:
        """Reference of the model that it changes."""
        match self.name:
            case "RepositoryModelLoad" | "RepositoryModelUnload":
                return inference_pb.RepositoryModelLoadRequest.FromString(self.request).model_name
            case _:
                return pb.LoadModelRequest.FromString(self.request).model


@final
class WorkerPool:
    """Worker processes, on the running event loop.

    Call `start`, `replace_exited_workers` and `drain` in this order; `close` works at any time.

    Args:
        start: first message to each worker.
        count: number of workers.
        backoff: retries for workers that exit before they serve.
    """

    def __init__(self, start: LoadModels, count: int, backoff: RestartBackoff | None = None) -> None:
        self._start = start
        self._count = count
        self._backoff = backoff or RestartBackoff()
        self._alive = set[WorkerProcess]()
        """Workers that are not known to have exited."""
        self._serving: dict[int, WorkerProcess] = {}
        """Serving workers by number."""
        self._lock = asyncio.Lock()
        """Held during a change and while a worker joins."""
        self._changes: dict[str, ModelChange] = {}
        """Last change of each reference, oldest first; a worker that starts while no other serves repeats them."""

    @property
    def serving(self) -> Sequence[WorkerProcess]:
        """Workers that serve now, in order of their numbers."""
        return [self._serving[number] for number in sorted(self._serving)]

    async def start(self) -> None:
        """Start all workers; they serve once all have loaded their models.

        Raises:
            ConfigurationError: a worker failed.
        """
        numbers = range(1, self._count + 1)
        workers = await asyncio.gather(*(self._begin(number) for number in numbers))
        await asyncio.gather(*(worker.wait_until_loaded() for worker in workers))
        await asyncio.gather(*(self._join(worker) for worker in workers))

    async def replace_exited_workers(self) -> None:
        """Replace workers that exit; runs until cancelled.

        Raises:
            ConfigurationError: the retries to replace a worker are exhausted.
        """
        tasks = [asyncio.create_task(self._replace_after_exit(worker)) for worker in self._serving.values()]
        try:
            ended_tasks, _ = await asyncio.wait(tasks, return_when="FIRST_EXCEPTION")
            for task in ended_tasks:
                await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def change(self, name: str, request: bytes, context: CallContext = NEVER) -> bytes:
        """Execute an admin call that changes the served models in all workers, one call at a time.

        Returns:
            The response, which is the same for all workers.

        Raises:
            QuantraError: a worker failed, which the message names; the others have undone the change.
            UnavailableError: no worker serves.
        """
        async with self._lock:
            context.check()
            workers = self._require_serving()
            calls = (worker.call(name, request, is_change=True) for worker in workers)
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            responses = {
                worker: outcome for worker, outcome in zip(workers, outcomes, strict=True) if isinstance(outcome, bytes)
            }
            errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
            confirmations = (worker.confirm(stays=not errors) for worker in responses)
            # A worker that exits now is replaced and synchronized with the others.
            await asyncio.gather(*confirmations, return_exceptions=True)
            if errors:
                failed = next(worker for worker in workers if worker not in responses)
                raise _name_worker(failed, errors[0]) if responses else errors[0]
            change = ModelChange(name, request)
            self._changes.pop(change.reference, None)
            self._changes[change.reference] = change
            return next(iter(responses.values()))

    async def query(self, name: str, request: bytes) -> bytes:
        """Execute a read-only admin call in one worker; raises as `change`."""
        return await self._require_serving()[0].call(name, request, is_change=False)

    async def metrics(self, within_s: float) -> Mapping[WorkerProcess, bytes | None]:
        """Return the Prometheus metrics of each serving worker; None if it did not respond in time."""

        async def collect(worker: WorkerProcess) -> bytes | None:
            try:
                return await asyncio.wait_for(worker.metrics(), within_s)
            except (TimeoutError, UnavailableError):
                return None

        workers = self.serving
        return dict(zip(workers, await asyncio.gather(*map(collect, workers)), strict=True))

    async def drain(self, orphaned: asyncio.Event) -> None:
        """Let all workers finish their calls and exit within `drain_s`, or sooner if this process is orphaned."""
        for worker in self._alive:
            worker.terminate()
        exits = asyncio.gather(*(worker.wait_for_exit() for worker in self._alive), return_exceptions=True)
        orphaning = asyncio.create_task(orphaned.wait())
        longest_s = self._start.settings.limits.drain_s + CLOSE_S
        await asyncio.wait({exits, orphaning}, timeout=longest_s, return_when="FIRST_COMPLETED")
        for worker in self._alive:
            worker.abandon()
        await asyncio.wait({exits}, timeout=ORPHAN_DRAIN_S + CLOSE_S)
        exits.cancel()
        orphaning.cancel()

    async def close(self) -> None:
        """Kill the remaining workers."""
        await asyncio.gather(*(worker.kill() for worker in self._alive), return_exceptions=True)
        self._alive.clear()

    async def _begin(self, number: int) -> WorkerProcess:
        worker = await WorkerProcess.begin(number, self._start)
        self._alive.add(worker)
        return worker

    async def _join(self, worker: WorkerProcess) -> None:
        """Synchronize the models of a loaded worker with the others and let it serve."""
        async with self._lock:
            if not await self._synchronize(worker):
                for change in self._changes.values():
                    try:
                        await worker.call(change.name, change.request, is_change=True)
                        await worker.confirm(stays=True)
                    except QuantraError as error:
                        _log.warning("%s could not repeat %s: %s", worker, change.name, error.message)
            await worker.listen()
            self._serving[worker.number] = worker

    async def _synchronize(self, worker: WorkerProcess) -> bool:
        """Synchronize a worker with another one; False if no other worker serves."""
        for other in self.serving:
            try:
                await worker.reload_and_list_models()  # reads the folder first, so that the other finds as much
                served = await other.reload_and_list_models()
                await worker.copy_served_models(served)
            except QuantraError as error:
                _log.warning("cannot synchronize the models of %s with %s: %s", worker, other, error.message)
            else:
                return True
        return False

    def _require_serving(self) -> Sequence[WorkerProcess]:
        """Return the serving workers; at least one."""
        if not self._serving:
            raise UnavailableError("no worker is serving at the moment; retry in a moment")
        return self.serving

    async def _replace_after_exit(self, worker: WorkerProcess) -> None:
        while True:
            reason = await worker.wait_for_exit()
            self._alive.discard(worker)
            del self._serving[worker.number]
            _log.warning("%s exited with %s; starting a replacement", worker, reason)
            worker = await self._restart(worker.number)

    async def _restart(self, number: int) -> WorkerProcess:
        for failed in range(self._backoff.tries):
            await asyncio.sleep(self._backoff.delay_s(failed))
            try:
                worker = await self._begin(number)
                try:
                    await worker.wait_until_loaded()
                    await self._join(worker)
                except QuantraError:
                    await worker.kill()
                    self._alive.discard(worker)
                    raise
            except QuantraError as error:
                _log.warning("worker %d could not start serving: %s", number, error.message)
            else:
                _log.info("%s is serving", worker)
                return worker
        raise ConfigurationError(
            f"worker {number} could not be restarted in {self._backoff.tries} attempts; see the log for the reasons"
        )


def _name_worker(worker: WorkerProcess, error: BaseException) -> BaseException:
    """Return the error of one worker when others succeeded, naming the worker."""
    if not isinstance(error, QuantraError):
        return error
    message = error.message if str(worker) in error.message else f"{worker}: {error.message}"
    return restore_error(
        get_error_status(error).reason, f"{message}; all workers keep their previous models", error.metadata
    )
