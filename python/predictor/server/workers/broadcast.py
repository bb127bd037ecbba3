"""Admin calls broadcast to all workers."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, final

from predictor._pb import inference_pb2 as inference_pb
from predictor.errors import MalformedRequestError, QuantraError, QueueFullError
from predictor.memory import error_of
from predictor.server.workers.pool import WorkerPool

if TYPE_CHECKING:
    from predictor.calls import OpenCall
    from predictor.instance import Deadline

_MOST_WAITING: Final = 16

_log = logging.getLogger(__name__)


@final
class AdminBroadcast:
    """Sends each admin call to all workers and responds when all have responded, on the running event loop.

    Args:
        team: the workers.
    """

    def __init__(self, team: WorkerPool) -> None:
        self._team = team
        self._turn = asyncio.Lock()
        self._under_way = set[asyncio.Task[None]]()

    def call(self, name: str, request: bytes, deadline: "Deadline") -> "Future[bytes]":
        """Apply changes one at a time, or list the served models; as `AdminCalls.call`."""
        answer: Future[bytes] = Future()
        if name == "ServerLive":
            answer.set_result(inference_pb.ServerLiveResponse(live=True).SerializeToString())
        elif name == "ServerReady":
            ready = bool(self._team.serving)
            answer.set_result(inference_pb.ServerReadyResponse(ready=ready).SerializeToString())
        elif len(self._under_way) >= _MOST_WAITING:
            answer.set_exception(QueueFullError.of("changes wait", len(self._under_way), _MOST_WAITING))
        else:
            task = asyncio.create_task(self._carry_out(name, request, deadline, answer))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return answer

    def open(
        self,
        name: str,
        deadline: "Deadline",  # noqa: ARG002
        emit: Callable[[bytes], object],  # noqa: ARG002
        most_bytes: int | None = None,  # noqa: ARG002
    ) -> "OpenCall":
        """Raise MalformedRequestError: no admin call is a stream."""
        raise MalformedRequestError(f"{name} has no response stream; call it as a unary method")

    def drain(self) -> None:
        """Do nothing: there are no streams."""

    async def _carry_out(self, name: str, request: bytes, deadline: "Deadline", answer: "Future[bytes]") -> None:
        try:
            made = await self._made(name, request, deadline)
        except QuantraError as error:
            _end(answer, error)
        except Exception as error:  # noqa: BLE001 - task boundary: the caller gets the error
            _end(answer, error_of(name, error, _log))
        else:
            _end(answer, made)

    async def _made(self, name: str, request: bytes, deadline: "Deadline") -> bytes:
        if name == "RepositoryIndex":
            return await self._team.look(name, request)
        async with self._turn:
            deadline.check()
            return await self._team.change(name, request)


def _end(answer: "Future[bytes]", outcome: bytes | QuantraError) -> None:
    """Resolve the future of a call, unless the caller has cancelled it."""
    if not answer.set_running_or_notify_cancel():
        return
    if isinstance(outcome, QuantraError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
