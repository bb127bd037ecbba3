"""Reads the requests and writes the responses of one call."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, final

from predictor.errors import QuantraError
from predictor.server.loop_bridge import LoopBridge
from predictor.server.transport import IncomingCall

if TYPE_CHECKING:
    from predictor.calls import OpenCall


@final
class CallMessages:
    """The messages of one call, on the running event loop.

    Args:
        context: IncomingCall of the call.
        bridge: Hands responses over from threads.
        sendable: Checks a response; an error ends the call.
        admit: Checks before each request of a stream; an error ends the call.
    """

    def __init__(
        self,
        context: IncomingCall,
        bridge: LoopBridge,
        sendable: Callable[[bytes], bytes],
        admit: Callable[[], object] = lambda: None,
    ) -> None:
        self._context = context
        self._sendable = sendable
        self._admit = admit
        self._refusal: QuantraError | None = None
        self._bridge = bridge
        self._answers: deque[bytes] = deque()
        self._is_over = False
        self._changed, self._has_room = asyncio.Event(), asyncio.Event()

    def emit(self, message: bytes) -> None:
        """Queue a response; from any thread."""
        self._bridge.call(partial(self._put, message))

    async def answer(self, call: "OpenCall", request: bytes) -> None:
        """Send the responses to one request; raises the error of the call."""
        call.send(request)
        call.end()
        await self._write_all(call)

    async def converse(self, call: "OpenCall") -> None:
        """Read requests and send their responses until the call ends; raises the error of the call."""
        reading = asyncio.create_task(self._read_all(call))
        try:
            await self._write_all(call)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read_all(self, call: "OpenCall") -> None:
        try:
            while (body := await self._context.read()) is not None:
                self._admit()
                self._has_room.clear()
                if not call.send(body):
                    await self._has_room.wait()
        except QuantraError as refusal:
            self._refusal = refusal
            self._end()
        else:
            call.end()

    async def _write_all(self, call: "OpenCall") -> None:
        call.ended.add_done_callback(lambda _: self._bridge.call(self._end))
        try:
            while await self._has_answer():
                message = self._answers.popleft()
                await self._context.write(self._sendable(message))
                if call.taken(len(message)):
                    self._has_room.set()
            if self._refusal is not None:
                raise self._refusal
            call.ended.result()
        finally:
            call.cancel()  # the call has ended, so drop the rest

    async def _has_answer(self) -> bool:
        """Wait for the next response; False after the last."""
        while not self._answers and not self._is_over:
            self._changed.clear()
            await self._changed.wait()
        return bool(self._answers)

    def _put(self, message: bytes) -> None:
        self._answers.append(message)
        self._changed.set()

    def _end(self) -> None:
        self._is_over = True
        self._changed.set()
