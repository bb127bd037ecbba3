"""Chained futures."""

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

from predictor.errors import QuantraError
from predictor.memory import error_of

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)


def chain(call: str, first: Future[InputT], second: Future[ResultT], make: Callable[[InputT], ResultT]) -> None:
    """Complete `second` with `make(result)` of `first`, on the thread that completes `first`, or with its error.

    Cancelling `second` cancels `first`. Other errors become a QuantraError by `error_of`.
    """
    follow(call, first, second, lambda result: settle(second, make(result)))


def follow(call: str, first: Future[InputT], second: Future[Any], then: Callable[[InputT], None]) -> None:
    """Chain futures like `chain`, but let `then` complete `second`."""
    second.add_done_callback(lambda ended: first.cancel() if ended.cancelled() else None)
    first.add_done_callback(lambda ended: _continue(call, ended, second, then))


def _continue(call: str, first: Future[InputT], second: Future[Any], then: Callable[[InputT], None]) -> None:
    if second.cancelled():
        return
    try:
        then(first.result())
    except CancelledError:
        return
    except Exception as error:  # noqa: BLE001 - layer boundary: every error becomes a QuantraError
        fail(call, second, error)


def settle(answer: Future[ResultT], value: ResultT) -> None:
    """Set the result of a future that is neither done nor cancelled."""
    try:  # noqa: SIM105 - `suppress` takes as long as the rest
        answer.set_result(value)
    except InvalidStateError:
        pass


def fail(call: str, answer: Future[ResultT], error: Exception) -> None:
    """Set the error of a future that is neither done nor cancelled."""
    if not answer.done():
        with suppress(InvalidStateError):
            answer.set_exception(quantra_error(call, error).without_frames())


def quantra_error(call: str, error: Exception) -> QuantraError:
    """Convert an error by `error_of`, with details in the log."""
    return error_of(call, error, _log)
