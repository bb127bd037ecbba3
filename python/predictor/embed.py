"""The embedded server, for a program that hosts Python in its process, such as C# through pythonnet.

`open_embedded_server` loads a models folder. Calls and streams exchange the encoded messages of prediction.proto. An
error is the google.rpc.Status that a server sends in `grpc-status-details-bin`. The same code, `predictor.calls`,
answers both.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Final, final

from predictor.call_context import CallContext
from predictor.calls import OpenCall, PredictionCalls
from predictor.errors import CallCancelledError, ConfigurationError, InternalError, QuantraError
from predictor.inference import use_threads
from predictor.service import PredictionService
from predictor.wire import errors

_JOIN_S: Final = 5.0
"""Longest wait for the thread on close."""


@final
class DeadlineMonitor:
    """Stops calls at their deadlines, on a thread that starts with the first call. Thread-safe."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._contexts: dict[OpenCall, CallContext] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def watch(self, call: OpenCall, context: CallContext) -> None:
        """Stop a call at its deadline, unless it ends earlier."""
        if not math.isfinite(context.left_s):
            return
        with self._condition:
            self._contexts[call] = context
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
                self._thread.start()
            self._condition.notify()
        call.completion.add_done_callback(lambda _: self._forget(call))

    def close(self) -> None:
        """Stop the thread."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _forget(self, call: OpenCall) -> None:
        with self._condition:
            self._contexts.pop(call, None)

    def _run(self) -> None:
        while self._wait():
            now_s = time.monotonic()
            with self._condition:
                due = {call: context for call, context in self._contexts.items() if context.is_over(now_s)}
                for call in due:
                    del self._contexts[call]
            for call, context in due.items():
                try:
                    context.check()
                except QuantraError as error:
                    call.drain(error)

    def _wait(self) -> bool:
        """Wait until a deadline expires; False after close."""
        with self._condition:
            while not self._is_closed:
                left_s = min((context.left_s for context in self._contexts.values()), default=math.inf)
                if not left_s:
                    return True
                self._condition.wait(min(left_s, threading.TIMEOUT_MAX))
        return False


_log = logging.getLogger(__name__)
_MAX_SHOWN_CHARACTERS: Final = 80
_MAX_LOCAL_BYTES: Final = 1 << 16
"""About a year of bars of a few symbols; a longer forecast would block the host's other calls."""


def open_embedded_server(
    models: str, device: str, max_batch_rows: int, threads: int
) -> tuple["EmbeddedServer | None", list[bytes]]:
    """Load the models of a folder.

    Args:
        models: Folder of NAME/VERSION artifacts.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        max_batch_rows: Largest number of rows of one forward pass.
        threads: CPU threads of one forward pass, for the whole process.

    Returns:
        The server and a google.rpc.Status for each rejected artifact, or None and the Status of the error.
    """
    try:
        use_threads(threads)
        service = PredictionService.open(Path(models), device=device, max_batch_rows=max_batch_rows)
    except QuantraError as error:
        return None, [errors.encode_details(error)]
    except OSError as error:
        problem = ConfigurationError(f"{models[:_MAX_SHOWN_CHARACTERS]}: {error.strerror}; name another folder")
        return None, [errors.encode_details(problem)]
    except Exception as error:  # noqa: BLE001 - process boundary: the host gets no Python exceptions
        return None, [errors.encode_details(InternalError.of("loading the models", error, _log))]
    return EmbeddedServer(service), [errors.encode_details(problem) for problem in service.problems]


@final
class EmbeddedServer:
    """Answers calls from one folder of models. Thread-safe."""

    def __init__(self, service: PredictionService) -> None:
        self._service = service
        self._calls = PredictionCalls(service)
        self._deadlines = DeadlineMonitor()

    def call(self, name: str, request: Any, timeout_s: float) -> "EmbeddedCall":
        """Start a call.

        Args:
            name: Name of the call, such as `Predict`.
            request: the message's bytes, in anything with the buffer protocol; they are copied.
            timeout_s: Timeout of the call in seconds.
        """
        return self._call(name, bytes(memoryview(request)), timeout_s, inline=False)

    def call_alone(self, name: str, request: Any, timeout_s: float) -> "EmbeddedCall":
        """As `call`, but compute a small prediction in the calling thread if no other request waits.

        A handover to another thread and back takes a large part of the time of a forecast.
        """
        body = bytes(memoryview(request))
        return self._call(name, body, timeout_s, inline=len(body) <= _MAX_LOCAL_BYTES)

    def open(self, name: str, timeout_s: float, emit: Callable[[bytes], object]) -> "EmbeddedStream":
        """Open a call with a stream of response messages.

        Args:
            name: Name of the call, such as `PredictStream`.
            timeout_s: Timeout of the whole call in seconds; infinity: none.
            emit: Receives the bytes of each message, on any thread, possibly on several at once. It must neither block
                nor raise.
        """
        context = CallContext.with_timeout(timeout_s)
        call = self._calls.open(name, context, emit)
        self._deadlines.watch(call, context)
        return EmbeddedStream(call)

    def _call(self, name: str, request: bytes, timeout_s: float, *, inline: bool) -> "EmbeddedCall":
        context = CallContext.with_timeout(timeout_s)
        return EmbeddedCall(self._calls.handle(name, request, context, inline=inline), context)

    def close(self) -> None:
        """Reject new calls and finish those in progress; streams end after the responses to their pending requests."""
        self._calls.close()
        self._service.close()
        self._deadlines.close()


@final
class EmbeddedCall:
    """A call in progress. A callback reports completion, so that no host thread blocks inside Python."""

    def __init__(self, response: "Future[bytes]", context: CallContext) -> None:
        self._response = response
        self._context = context

    def when_done(self, tell: Callable[[], object]) -> None:
        """Call `tell` once, on any thread, when `answer` no longer blocks."""
        self._response.add_done_callback(lambda _: tell())

    def cancel(self) -> None:
        """Drop the call if queued, or interrupt it."""
        self._context.cancel()
        self._response.cancel()

    def answer(self) -> tuple[bytes, bytes]:
        """The response and empty bytes, or empty bytes and the google.rpc.Status of the error."""
        status = _encode_status(self._response)
        return (b"", status) if status else (self._response.result(), b"")


@final
class EmbeddedStream:
    """An open call with messages in both directions. Send requests one at a time."""

    def __init__(self, call: OpenCall) -> None:
        self._call = call

    def send(self, request: Any) -> bool:
        """Send a request.

        Args:
            request: the message's bytes, in anything with the buffer protocol; they are copied.

        Returns:
            Whether another may follow now. If not, wait until `taken` returns True.
        """
        return self._call.send(bytes(memoryview(request)))

    def taken(self, size: int) -> bool:
        """Acknowledge a received message of `size` bytes. Returns whether a request may follow now."""
        return self._call.acknowledge(size)

    def end(self) -> None:
        """End the requests; the call ends after the pending responses."""
        self._call.end_requests()

    def cancel(self) -> None:
        """Cancel the call; messages stop soon."""
        self._call.cancel()

    def when_done(self, tell: Callable[[], object]) -> None:
        """Call `tell` once, on any thread, after the last message, when `status` no longer blocks."""
        self._call.completion.add_done_callback(lambda _: tell())

    def status(self) -> bytes:
        """The google.rpc.Status of the call's error; empty on success."""
        return _encode_status(self._call.completion)


def _encode_status(future: "Future[bytes] | Future[None]") -> bytes:
    """The google.rpc.Status of the error; empty on success."""
    try:
        future.result()
    except CancelledError:
        return errors.encode_details(CallCancelledError("the call was cancelled before its response was ready"))
    except QuantraError as error:
        return errors.encode_details(error)
    return b""
