"""The calls of the admin service where there are several workers."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, final

from predictor.errors import MalformedRequestError, QuantraError, QueueFullError
from predictor.memory import error_of
from predictor.server.workers.team import Team

if TYPE_CHECKING:
    from predictor.calls import OpenCall
    from predictor.instance import Deadline

_MOST_WAITING: Final = 16

_log = logging.getLogger(__name__)


@final
class Changes:
    """Answers each call when every worker has; on the running event loop.

    Args:
        team: the workers.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._turn = asyncio.Lock()
        self._under_way = set[asyncio.Task[None]]()

    def call(self, name: str, request: bytes, deadline: "Deadline") -> "Future[bytes]":
        """Carry out one change after the other; as `AdminCalls.call`."""
        answer: Future[bytes] = Future()
        if len(self._under_way) >= _MOST_WAITING:
            answer.set_exception(QueueFullError.of("changes wait", len(self._under_way), _MOST_WAITING))
            return answer
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
        """A call whose answer is a stream: there is none."""
        raise MalformedRequestError(f"{name} is no call whose answer is a stream")

    def drain(self) -> None:
        """There is no stream to end."""

    async def _carry_out(self, name: str, request: bytes, deadline: "Deadline", answer: "Future[bytes]") -> None:
        try:
            async with self._turn:
                deadline.check()
                made = await self._team.change(name, request)
        except QuantraError as error:
            _end(answer, error)
        except Exception as error:  # noqa: BLE001 - a task's edge: the caller must hear of it
            _end(answer, error_of(name, error, _log))
        else:
            _end(answer, made)


def _end(answer: "Future[bytes]", outcome: bytes | QuantraError) -> None:
    """End a call; whoever went away meanwhile has cancelled it."""
    if not answer.set_running_or_notify_cancel():
        return
    if isinstance(outcome, QuantraError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
