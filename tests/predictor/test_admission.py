"""Admission: call slots in order, limits per connection, and slots freed by cancellation."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from predictor.errors import DeadlineExceededError, QueueFullError
from predictor.server import ServerLimits
from predictor.server.admission import Admission, CallSlots, ConnectionUsage, RequestReceiver


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def run_until_idle() -> None:
    """Run the loop until no task can proceed."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_slots_count_their_waiters() -> None:
    async def work() -> None:
        slots = CallSlots(1)
        await slots.acquire()
        first, gone = (asyncio.create_task(slots.acquire()) for _ in range(2))
        await run_until_idle()
        assert slots.waiting_count == 2
        gone.cancel()
        slots.release()
        await asyncio.wait({first, gone})
        assert slots.waiting_count == 0

    run(work())


# --- arriving requests


class ClockedLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock that a test advances."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


class SilentCall:
    """A call whose request never comes."""

    async def read(self) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError


def test_a_request_whose_time_is_over_when_the_slow_ones_are_looked_for_stops_no_later_look() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockedLoop)
        receiver, peer, call = RequestReceiver(ServerLimits(arriving=1)), ConnectionUsage(3), cast("Any", SilentCall())
        moving = asyncio.create_task(receiver.end_slow_requests())
        first = asyncio.create_task(receiver.receive(call, peer))
        await run_until_idle()
        second = asyncio.create_task(receiver.receive(call, peer))
        await run_until_idle()
        loop.ahead_s += 100  # both are due now: the check, then the end of the first request
        with pytest.raises(DeadlineExceededError):
            await first
        await run_until_idle()
        assert not moving.done()
        for task in (moving, second):
            task.cancel()
        await asyncio.wait({moving, second})

    with asyncio.Runner(loop_factory=ClockedLoop) as runner:
        runner.run(work())


class ArrivedCall:
    """A call whose request has arrived."""

    def __init__(self, name: str = "") -> None:
        self.peer = name
        self.on_end: Callable[[], None] = lambda: None

    async def read(self) -> bytes:
        return b"whole"


def test_requests_that_wait_for_a_place_of_their_connection_take_none_of_others() -> None:
    async def work() -> None:
        receiver, greedy, modest = RequestReceiver(ServerLimits(arriving=2)), ConnectionUsage(1), ConnectionUsage(1)
        slow = [asyncio.create_task(receiver.receive(cast("Any", SilentCall()), greedy)) for _ in range(3)]
        await run_until_idle()
        other = asyncio.create_task(receiver.receive(cast("Any", ArrivedCall()), modest))
        await run_until_idle()
        assert other.done()
        for task in slow:
            task.cancel()
        await asyncio.wait(slow)

    run(work())


def test_a_server_is_idle_once_the_last_call_has_left() -> None:
    async def work() -> None:
        admission, calls = Admission(ServerLimits()), [ArrivedCall("a"), ArrivedCall("b")]
        for call in calls:
            admission.enter(cast("Any", call))
        idle = asyncio.create_task(admission.idle())
        for call in calls:
            await run_until_idle()
            assert not idle.done()
            call.on_end()
        await asyncio.wait_for(idle, 10)

    run(work())


def test_a_connection_is_forgotten_with_its_last_call_and_a_stream_gives_its_room_back() -> None:
    async def work() -> None:
        admission, call = Admission(ServerLimits(streams=1, streams_per_peer=1)), ArrivedCall("a")
        for _ in range(2):
            admission.enter(cast("Any", call), is_stream=True)
            with pytest.raises(QueueFullError):
                admission.enter(cast("Any", ArrivedCall("b")), is_stream=True)
            call.on_end()
        assert admission._connections == {}

    run(work())


def test_connections_share_streams_so_that_a_newcomer_gets_one() -> None:
    async def work() -> None:
        admission = Admission(ServerLimits(streams=4, streams_per_peer=3))
        admission.enter(cast("Any", ArrivedCall("first")), is_stream=True)
        for _ in range(2):
            admission.enter(cast("Any", ArrivedCall("greedy")), is_stream=True)
        with pytest.raises(QueueFullError, match="streams of this connection"):
            admission.enter(cast("Any", ArrivedCall("greedy")), is_stream=True)
        admission.enter(cast("Any", ArrivedCall("newcomer")), is_stream=True)

    run(work())


def test_a_request_that_has_come_is_not_ended_in_the_place_of_a_slow_one() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockedLoop)
        receiver, peer = RequestReceiver(ServerLimits(arriving=1)), ConnectionUsage(3)
        moving = asyncio.create_task(receiver.end_slow_requests())
        assert await receiver.receive(cast("Any", ArrivedCall()), peer) == b"whole"
        slow = asyncio.create_task(receiver.receive(cast("Any", SilentCall()), peer))
        await run_until_idle()
        waiting = asyncio.create_task(receiver.receive(cast("Any", ArrivedCall()), peer))
        await run_until_idle()
        loop.ahead_s += 2
        with pytest.raises(QueueFullError):
            await slow
        assert await waiting == b"whole"
        assert not moving.done()
        moving.cancel()
        await asyncio.wait({moving})

    with asyncio.Runner(loop_factory=ClockedLoop) as runner:
        runner.run(work())


def test_of_one_connections_slow_requests_as_many_end_as_wait_for_its_places() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockedLoop)
        receiver, peer = RequestReceiver(ServerLimits()), ConnectionUsage(2)
        moving = asyncio.create_task(receiver.end_slow_requests())
        slow = [asyncio.create_task(receiver.receive(cast("Any", SilentCall()), peer)) for _ in range(3)]
        await run_until_idle()
        loop.ahead_s += 2
        with pytest.raises(QueueFullError):
            await slow[0]
        await run_until_idle()
        assert [task.done() for task in slow] == [True, False, False]
        for task in (moving, *slow[1:]):
            task.cancel()
        await asyncio.wait({moving, *slow[1:]})

    with asyncio.Runner(loop_factory=ClockedLoop) as runner:
        runner.run(work())


def test_a_request_has_a_second_to_come_though_others_wait_for_its_place() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockedLoop)
        receiver, peer = RequestReceiver(ServerLimits(arriving=1)), ConnectionUsage(3)
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(receiver.end_slow_requests())]
        tasks += [asyncio.create_task(receiver.receive(cast("Any", SilentCall()), peer)) for _ in range(2)]
        await run_until_idle()
        loop.ahead_s += 0.7  # one look
        await run_until_idle()
        await run_until_idle()
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    with asyncio.Runner(loop_factory=ClockedLoop) as runner:
        runner.run(work())
