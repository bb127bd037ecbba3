"""Places for requests on their way: so many at once, in order, and none is lost to whoever goes away."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from predictor.server.admission import Places


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def settle() -> None:
    """Let every task go on as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def waiting_for(places: Places, count: int) -> list["asyncio.Task[None]"]:
    tasks = [asyncio.create_task(places.take()) for _ in range(count)]
    await settle()
    return tasks


def test_whoever_waits_longest_gets_the_next_place() -> None:
    async def work() -> None:
        places = Places(1)
        await places.take()
        first, second = await waiting_for(places, 2)
        assert places.waiting == 2
        places.give()
        await settle()
        assert (first.done(), second.done()) == (True, False)
        places.give()
        await second
        assert places.waiting == 0

    run(work())


def test_whoever_goes_away_while_it_waits_takes_no_place() -> None:
    async def work() -> None:
        places = Places(1)
        await places.take()
        gone, last = await waiting_for(places, 2)
        gone.cancel()
        await settle()
        assert places.waiting == 1
        places.give()
        await asyncio.wait_for(last, 10)

    run(work())


def test_a_place_is_given_on_if_its_taker_was_cancelled_in_the_same_moment() -> None:
    async def work() -> None:
        places = Places(1)
        await places.take()
        gone, last = await waiting_for(places, 2)
        places.give()
        gone.cancel()
        await asyncio.wait_for(last, 10)

    run(work())


def test_a_place_given_just_after_its_taker_was_cancelled_is_not_lost() -> None:
    async def work() -> None:
        places = Places(1)
        await places.take()
        gone, last = await waiting_for(places, 2)
        gone.cancel()
        places.give()
        await asyncio.wait_for(last, 10)
        places.give()
        await asyncio.wait_for(places.take(), 10)

    run(work())


def test_those_who_go_away_leave_nothing_behind() -> None:
    async def work() -> None:
        places = Places(1)
        await places.take()
        for _ in range(100):
            (gone,) = await waiting_for(places, 1)
            gone.cancel()
            await settle()
        assert len(places._waiting) == 1

    run(work())
