"""What the host calls, and a call under way."""

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Final, final

from predictor.calls import Calls, OpenCall
from predictor.embed.deadline_monitor import DeadlineMonitor
from predictor.errors import CallCancelledError, ConfigurationError, InternalError, QuantraError
from predictor.instance import Deadline
from predictor.service import PredictionService
from predictor.wire import errors

_log = logging.getLogger(__name__)
_SHOWN: Final = 80
_MOST_BYTES_HERE: Final = 1 << 16
"""A year's bars of a few symbols; what takes longer would keep the host's other calls from starting."""


def open_door(
    models: str, device: str, max_batch_rows: int, threads: int
) -> tuple["EmbeddedServer | None", list[bytes]]:
    """Load every model of a folder.

    Args:
        models: folder of NAME/VERSION artifacts.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        max_batch_rows: rows of one forward at most.
        threads: CPU threads of one forward, for the whole process.

    Returns:
        The door, and a google.rpc.Status for each artifact that was refused; or None and the Status of the error.
    """
    try:
        service = PredictionService.open(Path(models), device=device, max_batch_rows=max_batch_rows, threads=threads)
    except QuantraError as error:
        return None, [errors.encode_details(error)]
    except OSError as error:
        told = ConfigurationError(f"{models[:_SHOWN]}: {error.strerror}; name another folder")
        return None, [errors.encode_details(told)]
    except Exception as error:  # noqa: BLE001 - the host's edge: our own bug must not end in the caller's hands
        return None, [errors.encode_details(InternalError.of("opening the door", error, _log))]
    return EmbeddedServer(service), [errors.encode_details(problem) for problem in service.problems]


@final
class EmbeddedServer:
    """Answers from one folder of models. Its methods may be called from many threads."""

    def __init__(self, service: PredictionService) -> None:
        self._service = service
        self._calls = Calls(service)
        self._endings = DeadlineMonitor()

    def call(self, name: str, request: Any, timeout_s: float) -> "EmbeddedCall":
        """Start a call.

        Args:
            name: of the call, such as `Predict`.
            request: the message's bytes, in anything with the buffer protocol; they are copied.
            timeout_s: seconds after which nobody waits any more.
        """
        return self._call(name, bytes(memoryview(request)), timeout_s, here=False)

    def call_alone(self, name: str, request: Any, timeout_s: float) -> "EmbeddedCall":
        """As `call`, where the host waits for no other answer: this thread works out a small prediction itself.

        To hand it to another thread, and its answer back, takes a good part of the time of a forecast.
        """
        body = bytes(memoryview(request))
        return self._call(name, body, timeout_s, here=len(body) <= _MOST_BYTES_HERE)

    def open(self, name: str, timeout_s: float, emit: Callable[[bytes], object]) -> "EmbeddedStream":
        """Start a call whose answer is a stream of messages.

        Args:
            name: of the call, such as `PredictStream`.
            timeout_s: seconds after which the call ends by itself; infinity = as long as the host likes.
            emit: takes the bytes of each message; called on any thread, perhaps on several at once. It must neither
                wait nor raise.
        """
        deadline = Deadline.after(timeout_s)
        call = self._calls.open(name, deadline, emit)
        self._endings.watch(call, deadline)
        return EmbeddedStream(call)

    def _call(self, name: str, request: bytes, timeout_s: float, *, here: bool) -> "EmbeddedCall":
        deadline = Deadline.after(timeout_s)
        return EmbeddedCall(self._calls.call(name, request, deadline, here=here), deadline)

    def close(self) -> None:
        """Finish what is under way and take no more; streams end once what they have asked already is answered."""
        self._calls.close()
        self._service.close()
        self._endings.close()


@final
class EmbeddedCall:
    """A call under way. The host gets a callback when it is done, so that none of its threads waits inside Python."""

    def __init__(self, answered: "Future[bytes]", deadline: Deadline) -> None:
        self._answered = answered
        self._deadline = deadline

    def when_done(self, tell: Callable[[], object]) -> None:
        """Call `tell` once, on any thread, when `answer` no longer has to wait."""
        self._answered.add_done_callback(lambda _: tell())

    def cancel(self) -> None:
        """Nobody waits for it any more: a call that waits is dropped at once, one that is worked on soon."""
        self._deadline.cancelled.set()
        self._answered.cancel()

    def answer(self) -> tuple[bytes, bytes]:
        """The answer and nothing, or nothing and the google.rpc.Status of the error."""
        status = _status(self._answered)
        return (b"", status) if status else (self._answered.result(), b"")


@final
class EmbeddedStream:
    """A call under way whose messages go both ways. The host hands over one request after the other."""

    def __init__(self, call: OpenCall) -> None:
        self._call = call

    def send(self, request: Any) -> bool:
        """Hand over a request.

        Args:
            request: the message's bytes, in anything with the buffer protocol; they are copied.

        Returns:
            Whether another may follow now. If not, wait until `taken` says so: a stream holds so much and no more.
        """
        return self._call.send(bytes(memoryview(request)))

    def taken(self, size: int) -> bool:
        """Say that whoever reads has taken a message of so many bytes. Returns whether a request may follow now."""
        return self._call.taken(size)

    def end(self) -> None:
        """Say that no request follows; what is under way is answered, and then the call ends."""
        self._call.end()

    def cancel(self) -> None:
        """Nobody waits for it any more; no message follows soon after."""
        self._call.cancel()

    def when_done(self, tell: Callable[[], object]) -> None:
        """Call `tell` once, on any thread, when every message was emitted and `status` no longer has to wait."""
        self._call.ended.add_done_callback(lambda _: tell())

    def status(self) -> bytes:
        """Nothing, or the google.rpc.Status of the error with which the call ended."""
        return _status(self._call.ended)


def _status(done: "Future[bytes] | Future[None]") -> bytes:
    """Nothing, or the google.rpc.Status of an error."""
    try:
        done.result()
    except CancelledError:
        return errors.encode_details(CallCancelledError("the call was cancelled before its answer was there"))
    except QuantraError as error:
        return errors.encode_details(error)
    return b""
