"""Reads the requests and sends the responses of one call."""

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
    """The messages of one call, on the running event loop. It uses callbacks, because a task per message is slower.

    Args:
        call: The call.
        bridge: Hands responses over from threads.
        check_token: Checks before each further request and each response that the token is still valid.
        finish: Called once, with None or the error of the call, after the last response.
    """

    def __init__(
        self,
        call: IncomingCall,
        bridge: LoopBridge,
        check_token: Callable[[], object],
        finish: Callable[[Exception | None], None],
    ) -> None:
        self._call, self._bridge = call, bridge
        self._check_token, self._finish = check_token, finish
        self._opened: OpenCall | None = None
        self._answers: deque[bytes] = deque()
        self._unread: int | None = None
        """Size of a sent response that the caller may not have read yet."""
        self._has_room = True
        """Whether the next request may be passed on."""
        self._in_flight = 0
        """Requests without a response."""
        self._has_many = False
        """Whether several requests were in flight at once."""
        self._is_reading = self._is_writing = self._is_over = False
        self._refusal: QuantraError | None = None

    def emit(self, message: bytes) -> None:
        """Queue a response; from any thread."""
        self._bridge.call(partial(self._put, message))

    def answer(self, opened: "OpenCall", request: bytes) -> None:
        """Pass on the only request, and send its responses."""
        self._begin(opened)
        opened.send(request)
        opened.end()

    def converse(self, opened: "OpenCall") -> None:
        """Pass on requests and send their responses until the call ends."""
        self._begin(opened)
        self._read()

    def cancel(self) -> None:
        """Drop what was not sent yet: the caller has left, or the call has failed."""
        opened, self._opened = self._opened, None
        self._answers.clear()
        if opened is not None:
            opened.cancel()

    def _begin(self, opened: "OpenCall") -> None:
        self._opened = opened
        opened.ended.add_done_callback(lambda _: self._bridge.call(self._end))

    def _read_soon(self) -> None:
        self._call_soon(self._read)

    def _call_soon(self, callback: Callable[[], None]) -> None:
        """Read or write in the next turn of the loop if the caller sends requests without waiting for responses.

        Messages of several requests then go together: batches of one take more time than the turn.
        """
        if self._has_many:
            asyncio.get_running_loop().call_soon(callback)
        else:
            callback()

    def _read(self) -> None:
        """Pass on the requests that have arrived, until there is no room for more."""
        if self._is_reading or self._opened is None:
            return
        self._is_reading = True
        try:
            while self._has_room and (body := self._call.take_next(self._read_soon)) is not None:
                self._check_token()
                self._in_flight += 1
                self._has_many = self._has_many or self._in_flight > 1
                self._has_room = self._opened.send(body)
            if self._call.has_all_requests:
                self._opened.end()
        except QuantraError as error:
            self._refusal = error
            self._end()
        except Exception as error:  # noqa: BLE001 - callback's boundary
            self._close(error)
        finally:
            self._is_reading = False

    def _put(self, message: bytes) -> None:
        if self._opened is None:  # the call is over
            return
        self._answers.append(message)
        self._in_flight -= 1
        self._call_soon(self._write)

    def _end(self) -> None:
        self._is_over = True
        self._write()

    def _write(self) -> None:
        """Send responses as fast as the caller reads, and finish after the last."""
        if self._is_writing or self._opened is None:
            return
        self._is_writing = True
        try:
            self._write_all(self._opened)
        except Exception as error:  # noqa: BLE001 - callback's boundary
            self._close(error)
        finally:
            self._is_writing = False

    def _write_all(self, opened: "OpenCall") -> None:
        while self._answers or self._unread is not None:
            if not self._call.has_room:
                self._call.when_room(self._write)
                return
            if self._unread is not None:
                size, self._unread = self._unread, None
                self._resume(has_room=opened.taken(size))
            else:
                message = self._answers.popleft()
                self._check_token()
                self._call.check_response(message)
                self._unread = len(message)
                self._call.send(message)
        if self._is_over:
            if self._refusal is not None:
                raise self._refusal
            opened.ended.result()
            self._close(None)

    def _resume(self, *, has_room: bool) -> None:
        if has_room and not self._has_room:
            self._has_room = True
            asyncio.get_running_loop().call_soon(self._read)

    def _close(self, error: Exception | None) -> None:
        self.cancel()
        self._finish(error)
