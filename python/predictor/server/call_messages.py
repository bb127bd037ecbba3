"""The messages of one call, both ways: requests are read while there is room for them, answers written as they come."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, final

import grpc.aio

from predictor.errors import QuantraError
from predictor.server.admission import Context
from predictor.server.loop_bridge import LoopBridge

if TYPE_CHECKING:
    from predictor.calls import OpenCall


@final
class CallMessages:
    """What travels on one call, on the running event loop.

    Args:
        context: of the call.
        handover: from the threads that have answers.
        sendable: the answer, or raises what the call ends with instead.
        admit: asked before each request of a conversation; raises what the call ends with instead.
    """

    def __init__(
        self,
        context: Context,
        handover: LoopBridge,
        sendable: Callable[[bytes], bytes],
        admit: Callable[[], None] = lambda: None,
    ) -> None:
        self._context = context
        self._sendable = sendable
        self._admit = admit
        self._refusal: QuantraError | None = None
        self._handover = handover
        self._answers: deque[bytes] = deque()
        self._is_over = False
        self._has_news, self._has_room = asyncio.Event(), asyncio.Event()

    def emit(self, message: bytes) -> None:
        """Send an answer, in its turn; from any thread."""
        self._handover.tell(partial(self._put, message))

    async def answer(self, call: "OpenCall", request: bytes) -> None:
        """Send the answers to one request; raises what the call ends with."""
        call.send(request)
        call.end()
        await self._write_all(call)

    async def converse(self, call: "OpenCall") -> None:
        """Read requests and send their answers until the call ends; raises what it ends with."""
        reading = asyncio.create_task(self._read_all(call))
        try:
            await self._write_all(call)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read_all(self, call: "OpenCall") -> None:
        while (body := await self._context.read()) is not grpc.aio.EOF:
            try:
                self._admit()
            except QuantraError as refusal:
                self._refusal = refusal
                self._end()
                return
            self._has_room.clear()
            if not call.send(body):
                await self._has_room.wait()
        call.end()

    async def _write_all(self, call: "OpenCall") -> None:
        call.ended.add_done_callback(lambda _: self._handover.tell(self._end))
        try:
            while await self._has_answer():
                message = self._answers.popleft()
                await self._write(self._sendable(message))
                if call.taken(len(message)):
                    self._has_room.set()
            if self._refusal is not None:
                raise self._refusal
            call.ended.result()
        finally:
            call.cancel()  # whatever ended it here, nobody waits for the rest

    async def _write(self, message: bytes) -> None:
        """Send as the caller takes it."""
        try:
            await self._context.write(message)
        except grpc.aio.InternalError:  # the caller went away, and gRPC has not cancelled this task yet
            raise asyncio.CancelledError from None

    async def _has_answer(self) -> bool:
        """Wait for the next answer; False once the last was written."""
        while not self._answers and not self._is_over:
            self._has_news.clear()
            await self._has_news.wait()
        return bool(self._answers)

    def _put(self, message: bytes) -> None:
        self._answers.append(message)
        self._has_news.set()

    def _end(self) -> None:
        self._is_over = True
        self._has_news.set()
