"""One future after another: the second has the first one's result, made into something else."""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from predictor.errors import QuantraError
from predictor.memory import error_of

GivenT = TypeVar("GivenT")
MadeT = TypeVar("MadeT")

_log = logging.getLogger(__name__)


def chain(call: str, first: Future[GivenT], second: Future[MadeT], make: Callable[[GivenT], MadeT]) -> None:
    """Let `second` end as `first` does: with what `make` makes of the result, on the thread that has it, or its error.

    Cancelling the second cancels the first; whatever is no QuantraError becomes one, as `error_of` says.
    """
    follow(call, first, second, lambda given: settle(second, make(given)))


def follow(call: str, first: Future[GivenT], second: Future[Any], go_on: Callable[[GivenT], None]) -> None:
    """As `chain`, where `go_on` sees to it that the second ends."""
    second.add_done_callback(lambda ended: first.cancel() if ended.cancelled() else None)
    first.add_done_callback(lambda ended: _go_on(call, ended, second, go_on))


def _go_on(call: str, first: Future[GivenT], second: Future[Any], go_on: Callable[[GivenT], None]) -> None:
    if first.cancelled() or second.cancelled():
        return
    try:
        go_on(first.result())
    except Exception as error:  # noqa: BLE001 - the layer's edge: our own bug must not end in the caller's hands
        fail(call, second, error)


def settle(answer: Future[MadeT], value: MadeT) -> None:
    """Give an answer that nobody has given, unless it was cancelled."""
    if not answer.done() and answer.set_running_or_notify_cancel():
        answer.set_result(value)


def fail(call: str, answer: Future[MadeT], error: Exception) -> None:
    """End an answer that nobody has given, unless it was cancelled."""
    if not answer.done() and answer.set_running_or_notify_cancel():
        answer.set_exception(quantra_error(call, error))


def quantra_error(call: str, error: Exception) -> QuantraError:
    """As `error_of`; details go to the log."""
    return error_of(call, error, _log)
