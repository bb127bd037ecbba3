"""Loop bridge: results passed from worker threads to the server's event loop."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import Context
from functools import partial
from typing import final

import pytest

from predictor.errors import UnavailableError
from predictor.server.loop_bridge import LoopBridge


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that counts wake-ups from other threads."""

    def __init__(self) -> None:
        super().__init__()
        self.wakes = 0

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        self.wakes += 1
        return super().call_soon_threadsafe(callback, *args, context=context)


def run(work: Callable[[LoopBridge], Awaitable[object]]) -> int:
    """Run on a new loop; returns how often it was woken."""

    async def on_loop() -> None:
        await work(LoopBridge())

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        runner.run(on_loop())
        return loop.wakes


async def yield_to_loop(*waiting: "asyncio.Task[bytes]") -> None:
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)


def test_answers_that_are_there_together_wake_the_loop_once() -> None:
    async def work(handover: LoopBridge) -> None:
        answers = [Future[bytes]() for _ in range(5)]
        tasks = [asyncio.create_task(handover.result(answer)) for answer in answers]
        await yield_to_loop(*tasks)
        for place, answer in enumerate(answers):
            answer.set_result(b"%d" % place)
        assert await asyncio.gather(*tasks) == [b"0", b"1", b"2", b"3", b"4"]

    assert run(work) == 1


def test_an_answer_that_comes_later_wakes_the_loop_again() -> None:
    async def work(handover: LoopBridge) -> None:
        for text in (b"first", b"second"):
            answer = Future[bytes]()
            task = asyncio.create_task(handover.result(answer))
            await yield_to_loop(task)
            answer.set_result(text)
            assert await task == text

    assert run(work) == 2


def test_a_result_just_after_the_loop_is_done_wakes_it_again() -> None:
    @final
    class Emptied(deque[Callable[[], None]]):
        """A queue of results; another thread adds some just after it was found empty."""

        told = False

        def __len__(self) -> int:
            count = super().__len__()
            if not count and not self.told:
                self.told = True
                handovers[0].call_soon(done.set)
            return count

    handovers: list[LoopBridge] = []

    async def work(handover: LoopBridge) -> None:
        handovers.append(handover)
        handover._ready = Emptied()
        handover.call_soon(lambda: None)
        await asyncio.wait_for(done.wait(), 10)

    done = asyncio.Event()
    assert run(work) == 2


def test_results_before_the_loop_wakes_are_handled_in_order() -> None:
    done: list[int] = []

    async def work(handover: LoopBridge) -> None:
        for number in range(3):
            handover.call_soon(partial(done.append, number))
        await asyncio.sleep(0)

    run(work)
    assert done == [0, 1, 2]


def test_an_error_is_raised_where_the_answer_is_awaited() -> None:
    async def work(handover: LoopBridge) -> None:
        answer = Future[bytes]()
        answer.set_exception(UnavailableError("no more"))
        with pytest.raises(UnavailableError, match="no more"):
            await handover.result(answer)

    run(work)


def test_a_cancelled_caller_cancels_only_its_own_result() -> None:
    async def work(handover: LoopBridge) -> None:
        first, second = Future[bytes](), Future[bytes]()
        tasks = [asyncio.create_task(handover.result(answer)) for answer in (first, second)]
        await yield_to_loop(*tasks)
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert first.cancelled()
        second.set_result(b"there")
        assert await tasks[1] == b"there"

    run(work)


def test_an_abandoned_result_does_not_stop_others_of_its_batch() -> None:
    async def work(handover: LoopBridge) -> None:
        first, second = Future[bytes](), Future[bytes]()
        tasks = [asyncio.create_task(handover.result(answer)) for answer in (first, second)]
        await yield_to_loop(*tasks)
        first.set_running_or_notify_cancel()  # too late to cancel
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        first.set_result(b"late")
        second.set_result(b"there")
        assert await asyncio.wait_for(tasks[1], 10) == b"there"

    run(work)


def test_an_answer_that_was_cancelled_elsewhere_ends_the_wait() -> None:
    async def work(handover: LoopBridge) -> None:
        answer = Future[bytes]()
        task = asyncio.create_task(handover.result(answer))
        await yield_to_loop(task)
        answer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work)


def test_an_answer_after_the_loops_end_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    answer = Future[bytes]()

    async def work(handover: LoopBridge) -> None:
        task = asyncio.create_task(handover.result(answer))
        await yield_to_loop(task)
        answer.set_running_or_notify_cancel()  # running, too late to cancel

    run(work)
    answer.set_result(b"late")
    assert not caplog.records
