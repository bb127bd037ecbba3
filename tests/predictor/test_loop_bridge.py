"""Loop bridge: results passed from worker threads to the server's event loop."""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from typing import final

import pytest

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


def call_elsewhere(work: Callable[[], None]) -> None:
    """Do the work in another thread, and wait for it."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_result_from_the_loops_own_thread_is_passed_on_at_once() -> None:
    async def work(bridge: LoopBridge) -> None:
        done: list[int] = []
        bridge.call(lambda: done.append(1))
        assert done == [1]

    assert run(work) == 0


def test_a_result_from_the_loops_own_thread_keeps_its_place_behind_others() -> None:
    async def work(bridge: LoopBridge) -> None:
        done: list[int] = []
        call_elsewhere(lambda: bridge.call(lambda: done.append(1)))
        bridge.call(lambda: done.append(2))
        assert done == []
        await asyncio.sleep(0)
        assert done == [1, 2]

    assert run(work) == 1


def test_results_of_one_moment_wake_the_loop_once() -> None:
    async def work(bridge: LoopBridge) -> None:
        done: list[int] = []
        for number in range(5):
            call_elsewhere(partial(bridge.call, partial(done.append, number)))
        await asyncio.sleep(0)
        assert done == [0, 1, 2, 3, 4]

    assert run(work) == 1


def test_a_later_result_wakes_the_loop_again() -> None:
    async def work(bridge: LoopBridge) -> None:
        for _ in range(2):
            done = asyncio.Event()
            call_elsewhere(partial(bridge.call, done.set))
            await done.wait()

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
                call_elsewhere(partial(handovers[0].call, done.set))
            return count

    handovers: list[LoopBridge] = []

    async def work(handover: LoopBridge) -> None:
        handovers.append(handover)
        handover._ready_callbacks = Emptied()
        call_elsewhere(partial(handover.call, lambda: None))
        await asyncio.wait_for(done.wait(), 10)

    done = asyncio.Event()
    assert run(work) == 2


def test_a_result_after_the_loops_end_is_dropped() -> None:
    bridges: list[LoopBridge] = []

    async def work(bridge: LoopBridge) -> None:
        bridges.append(bridge)

    run(work)
    bridges[0].call(lambda: pytest.fail("the loop has ended"))
