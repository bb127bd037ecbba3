"""Admin calls broadcast to all workers."""

import asyncio
import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, final

from predictor._pb import inference_pb2 as inference_pb
from predictor.errors import QuantraError, QueueFullError
from predictor.memory import error_of
from predictor.server.workers.pool import WorkerPool

if TYPE_CHECKING:
    from predictor.instance import Deadline

_MOST_WAITING: Final = 16

_log = logging.getLogger(__name__)


@final
class AdminBroadcast:
    """Sends each admin call to all workers and responds when all have responded, on the running event loop.

    Args:
        pool: the workers.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._change_lock = asyncio.Lock()
        self._tasks = set[asyncio.Task[None]]()

    def call(self, name: str, request: bytes, deadline: "Deadline") -> "Future[bytes]":
        """Apply changes one at a time, or list the served models; as `AdminCalls.call`."""
        answer: Future[bytes] = Future()
        if name == "ServerLive":
            answer.set_result(inference_pb.ServerLiveResponse(live=True).SerializeToString())
        elif name == "ServerReady":
            ready = bool(self._pool.serving)
            answer.set_result(inference_pb.ServerReadyResponse(ready=ready).SerializeToString())
        elif len(self._tasks) >= _MOST_WAITING:
            answer.set_exception(QueueFullError.of("changes wait", len(self._tasks), _MOST_WAITING))
        else:
            task = asyncio.create_task(self._answer(name, request, deadline, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return answer

    def drain(self) -> None:
        """Do nothing: this service has no streams."""

    async def _answer(self, name: str, request: bytes, deadline: "Deadline", answer: "Future[bytes]") -> None:
        try:
            response = await self._execute(name, request, deadline)
        except QuantraError as error:
            _resolve(answer, error)
        except Exception as error:  # noqa: BLE001 - task boundary: the caller gets the error
            _resolve(answer, error_of(name, error, _log))
        else:
            _resolve(answer, response)

    async def _execute(self, name: str, request: bytes, deadline: "Deadline") -> bytes:
        if name == "RepositoryIndex":
            return await self._pool.query(name, request)
        async with self._change_lock:
            deadline.check()
            return await self._pool.change(name, request)


def _resolve(answer: "Future[bytes]", outcome: bytes | QuantraError) -> None:
    """Resolve the future of a call, unless the caller has cancelled it."""
    if not answer.set_running_or_notify_cancel():
        return
    if isinstance(outcome, QuantraError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
