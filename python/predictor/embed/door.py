"""What the host calls, and a call under way."""

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Final, final

from predictor.calls import Calls
from predictor.errors import CallCancelledError, ConfigurationError, InternalError, QuantraError
from predictor.instance import Deadline
from predictor.service import PredictionService
from predictor.wire import errors

_log = logging.getLogger(__name__)
_SHOWN: Final = 80


def open_door(models: str, device: str, max_batch_rows: int, threads: int) -> tuple["Door | None", list[bytes]]:
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
    return Door(service), [errors.encode_details(problem) for problem in service.problems]


@final
class Door:
    """Answers from one folder of models. Its methods may be called from many threads."""

    def __init__(self, service: PredictionService) -> None:
        self._service = service
        self._calls = Calls(service)

    def call(self, name: str, request: Any, timeout_s: float) -> "Pending":
        """Start a call.

        Args:
            name: of the call, such as `Predict`.
            request: the message's bytes, in anything with the buffer protocol; they are copied.
            timeout_s: seconds after which nobody waits any more.
        """
        deadline = Deadline.after(timeout_s)
        return Pending(self._calls.call(name, bytes(memoryview(request)), deadline), deadline)

    def close(self) -> None:
        """Finish what is under way and take no more."""
        self._calls.close()
        self._service.close()


@final
class Pending:
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
        try:
            return self._answered.result(), b""
        except CancelledError:
            return b"", errors.encode_details(CallCancelledError("the call was cancelled before its answer was there"))
        except QuantraError as error:
            return b"", errors.encode_details(error)
