"""Futures of requests behave as those of `concurrent.futures`."""

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError

import pytest

from predictor.calls.futures import map_future
from predictor.errors import CallCancelledError
from predictor.service import LightFuture

KINDS = pytest.mark.parametrize("make", [Future[int], LightFuture[int]], ids=["concurrent.futures", "light"])
Maker = Callable[[], Future[int]]


@KINDS
def test_a_result_reaches_waiting_threads_and_callbacks(make: Maker) -> None:
    future, seen, found = make(), list[tuple[str, int]](), list[int]()
    waiting = threading.Thread(target=lambda: found.append(future.result(30)))
    waiting.start()
    future.add_done_callback(lambda done: seen.append(("before", done.result())))
    assert future.set_running_or_notify_cancel()
    assert (future.running(), future.done(), future.cancel()) == (True, False, False)
    future.set_result(7)
    future.add_done_callback(lambda done: seen.append(("after", done.result())))
    waiting.join(30)
    assert (found, seen) == ([7], [("before", 7), ("after", 7)])
    assert (future.done(), future.running(), future.exception()) == (True, False, None)


@KINDS
def test_an_error_is_raised_by_result(make: Maker) -> None:
    future, error = make(), ZeroDivisionError("no")
    future.set_exception(error)
    assert future.exception() is error
    with pytest.raises(ZeroDivisionError) as raised:
        future.result()
    assert raised.value is error


@KINDS
def test_a_future_is_cancelled_until_it_runs(make: Maker) -> None:
    future, seen = make(), list[bool]()
    future.add_done_callback(lambda done: seen.append(done.cancelled()))
    assert (future.cancel(), future.cancel()) == (True, True)
    assert seen == [True]
    assert not future.set_running_or_notify_cancel()
    with pytest.raises(CancelledError):
        future.result()
    with pytest.raises(InvalidStateError):
        future.set_result(1)


@KINDS
def test_a_future_ends_once(make: Maker) -> None:
    future = make()
    future.set_result(1)
    with pytest.raises(InvalidStateError):
        future.set_exception(ZeroDivisionError())
    assert (future.result(), future.cancel(), future.cancelled()) == (1, False, False)


@KINDS
def test_a_wait_has_an_end(make: Maker) -> None:
    with pytest.raises(TimeoutError):
        make().result(0)


@KINDS
def test_a_broken_callback_is_logged_and_the_next_one_called(make: Maker, caplog: pytest.LogCaptureFixture) -> None:
    future, seen = make(), list[int]()
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(lambda done: seen.append(done.result()))
    with caplog.at_level(logging.ERROR):
        future.set_result(3)
    assert seen == [3]
    assert "ZeroDivisionError" in caplog.text


@KINDS
def test_asyncio_waits_for_it(make: Maker) -> None:
    async def wait() -> int:
        future = make()
        threading.Thread(target=future.set_result, args=(5,)).start()
        return await asyncio.wrap_future(future)

    assert asyncio.run(wait()) == 5


def test_its_callbacks_are_forgotten_when_it_ends() -> None:
    future, held = LightFuture[int](), set[Future[int]]()
    there = weakref.ref(held)
    future.add_done_callback(held.add)
    del held
    future.set_result(1)
    assert there() is None


def test_a_mapped_future_ends_if_its_source_is_cancelled() -> None:
    source = LightFuture[int]()
    mapped = map_future("Predict", source, str)
    source.cancel()
    with pytest.raises(CallCancelledError):
        mapped.result(0)
