"""Futures of calls that follow other futures."""

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from predictor.errors import QuantraError
from predictor.memory import error_of
from predictor.service import LightFuture

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)


def convert(call: str, first: Future[InputT], make: Callable[[InputT], ResultT]) -> Future[ResultT]:
    """Return the future of `make(result)` of `first`, called on the thread that completes `first`, or of its error.

    Cancelling it cancels `first`. Other errors become a QuantraError by `error_of`.
    """
    second: Future[ResultT] = LightFuture()
    follow(call, first, second, lambda result: settle(second, make(result)))
    return second


def start_after(call: str, first: Future[InputT], start: Callable[[InputT], Future[ResultT]]) -> Future[ResultT]:
    """Return the future of work that starts with the result of `first`; cancellation and errors as `convert`."""
    second: Future[ResultT] = LightFuture()
    follow(call, first, second, lambda result: follow(call, start(result), second, partial(settle, second)))
    return second


def follow(call: str, first: Future[InputT], second: Future[Any], then: Callable[[InputT], None]) -> None:
    """Let `then` complete `second` with the result of `first`, whose error or cancellation completes it, too."""
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


def finished(value: ResultT) -> Future[ResultT]:
    """Return a future with its result."""
    future: Future[ResultT] = LightFuture()
    future.set_result(value)
    return future


def failed(call: str, error: Exception) -> Future[Any]:
    """Return a future with its error, which becomes a QuantraError by `error_of`."""
    future: Future[Any] = LightFuture()
    fail(call, future, error)
    return future


def settle(answer: Future[ResultT], value: ResultT) -> None:
    """Set the result of a future that is neither done nor cancelled."""
    with suppress(InvalidStateError):
        answer.set_result(value)


def fail(call: str, answer: Future[ResultT], error: Exception) -> None:
    """Set the error of a future that is neither done nor cancelled."""
    if not answer.done():
        with suppress(InvalidStateError):
            answer.set_exception(quantra_error(call, error).without_frames())


def quantra_error(call: str, error: Exception) -> QuantraError:
    """Convert an error by `error_of`, with details in the log."""
    return error_of(call, error, _log)
