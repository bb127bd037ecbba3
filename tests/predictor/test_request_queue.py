"""Request queue: order, expiry, limits, and cancellation."""

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pytest

from predictor.call_context import CallContext, Deadline
from predictor.errors import CallCancelledError, DeadlineExceededError, QueueFullError, UnavailableError
from predictor.limits import QueueLimits
from predictor.service import LazyRequest, QueuedRequest, RequestQueue, StepWorker
from predictor.service.request_queue import AnyRequest, LazyThread, ModelQueueKey, ModelReplacedError, QueuePolicy

SOON_S = 30
"""Timeout, so that a failing test does not block its process."""


def item(name: str = "", rows: int = 1, size: int = 10, expires_at_s: float | None = None) -> AnyRequest:
    return QueuedRequest(LazyRequest.of(name, rows, size), CallContext(expires_at_s))


def names(items: list[AnyRequest]) -> list[str]:
    return [one.request.decode() for one in items]


# --- queue policy


def waiting(now_s: float = 0.0, **limits: int) -> QueuePolicy:
    return QueuePolicy(QueueLimits(**limits), clock=lambda: now_s)


def test_a_queue_is_served_in_order_up_to_the_row_limit() -> None:
    queue = waiting()
    for name, rows in (("a", 2), ("b", 2), ("c", 2), ("d", 1)):
        queue.put("m", item(name, rows))
    assert names(queue.take("m", 4)) == ["a", "b"]
    assert names(queue.take("m", 4)) == ["c", "d"]
    assert queue.take("m", 4) == []


def test_an_item_of_more_rows_than_may_be_taken_is_taken_alone() -> None:
    queue = waiting()
    queue.put("m", item("large", rows=100))
    queue.put("m", item("small"))
    assert names(queue.take("m", 4)) == ["large"]
    assert names(queue.take("m", 4)) == ["small"]


def test_models_are_not_mixed_in_a_batch() -> None:
    queue = waiting()
    queue.put("m", item("a"))
    queue.put("n", item("b"))
    assert names(queue.take("n", 9)) == ["b"]
    assert names(queue.take("m", 9)) == ["a"]


def test_models_take_turns_in_the_queue() -> None:
    queue = waiting()
    for name in ("a1", "a2", "a3"):
        queue.put("a", item(name))
    queue.put("b", item("b1"))
    queue.put("c", item("c1"))
    assert in_turn(queue, 5) == ["a1", "b1", "c1", "a2", "a3"]
    assert queue.take_in_turn() is None


def in_turn(queue: QueuePolicy, count: int) -> list[str]:
    return names([taken for _ in range(count) if (taken := queue.take_in_turn()) is not None])


def test_one_item_at_a_time_is_taken_in_turn() -> None:
    queue = waiting()
    for name in "abc":
        queue.put("m", item(name, rows=0))
    assert in_turn(queue, 4) == ["a", "b", "c"]


def test_an_item_that_is_put_back_waits_behind_the_others() -> None:
    queue = waiting()
    queue.put("a", item("long"))
    queue.put("b", item("short"))
    first = queue.take_in_turn()
    assert first is not None
    queue.put_back(first)
    assert in_turn(queue, 2) == ["short", "long"]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"calls": 2}, "2 calls wait already, at most 2"),
        ({"rows": 5}, "4 symbols wait already, at most 5"),
        ({"size": 25}, "20 bytes of requests wait already, at most 25"),
    ],
)
def test_beyond_each_limit_an_item_is_refused_with_a_retry_delay(limits: dict[str, int], message: str) -> None:
    queue = waiting(**limits)
    first = item(rows=2)
    queue.put("m", first)
    queue.put("n", item(rows=2))
    with pytest.raises(QueueFullError, match=message) as refused:
        queue.put("m", item(rows=2))
    assert refused.value.retry_after_s > 0
    queue.release([first])
    queue.put("m", item(rows=2))


@pytest.mark.parametrize("limits", [{"calls": 2}, {"rows": 4}, {"size": 20}], ids=str)
def test_an_item_that_fills_a_limit_to_the_last_is_taken(limits: dict[str, int]) -> None:
    queue = waiting(**limits)
    queue.put("m", item(rows=2))
    queue.put("m", item(rows=2))
    assert queue.load == (2, 4, 20)


def test_what_is_being_worked_on_counts_until_it_is_released() -> None:
    queue = waiting(calls=1)
    queue.put("m", item("a"))
    (taken,) = queue.take("m", 9)
    with pytest.raises(QueueFullError):
        queue.put("m", item("b"))
    queue.release([taken])
    assert queue.load == (0, 0, 0)
    queue.put("m", item("b"))


def test_an_empty_queue_takes_an_item_of_any_size() -> None:
    queue = waiting(rows=5, size=25)
    queue.put("m", item(rows=500, size=2500))
    assert queue.load == (1, 500, 2500)


def test_releasing_twice_is_once() -> None:
    queue = waiting()
    one = item()
    queue.put("m", one)
    queue.put("m", item())
    queue.release([one])
    queue.release([one])
    assert queue.load == (1, 1, 10)


def test_expired_items_make_room_for_others() -> None:
    queue = waiting(now_s=7.0, calls=2)
    queue.put("m", item("late", expires_at_s=6.9))
    queue.put("n", item("waits", expires_at_s=7.1))
    assert names(queue.put("m", item("new"))) == ["late"]
    assert names(queue.take("m", 9)) == ["new"]
    assert queue.load.calls == 2


def test_an_item_that_is_put_back_waits_behind_those_of_its_own_line_too() -> None:
    queue = waiting()
    for name in ("first", "second"):
        queue.put("a", item(name))
    first = queue.take_in_turn()
    assert first is not None
    queue.put_back(first)
    assert in_turn(queue, 2) == ["second", "first"]


# --- threads


def test_a_cancelled_item_leaves_at_once_with_all_that_it_holds() -> None:
    queue, line = RequestQueue(QueueLimits(calls=4)), ModelQueueKey()

    def cancelled() -> "weakref.ref[LazyRequest[str]]":
        one = item(size=15 << 20)
        queue.put(line, one)
        assert one.cancel()
        return weakref.ref(one.request)

    held = [cancelled() for _ in range(50)]
    gc.collect()
    assert queue.load == (0, 0, 0)
    assert not any(ref() for ref in held)


def test_a_take_returns_all_waiting_items_and_no_cancelled_ones() -> None:
    queue, line = RequestQueue(QueueLimits()), ModelQueueKey()
    items = [item(name) for name in "abc"]
    for one in items:
        queue.put(line, one)
    items[1].cancel()
    assert queue.wake(line)
    assert names(queue.take(line, 9)) == ["a", "c"]
    assert not items[0].cancel()


def test_an_item_whose_time_is_over_is_answered_and_not_taken() -> None:
    queue, line = RequestQueue(QueueLimits()), ModelQueueKey()
    late, gone = item(expires_at_s=0.0), item()
    gone.context.cancel()
    for one in (late, gone, item("a")):
        queue.put(line, one)
    assert queue.wake(line)
    assert names(queue.take(line, 9)) == ["a"]
    assert isinstance(late.exception(0), DeadlineExceededError)
    assert isinstance(gone.exception(0), CallCancelledError)
    assert queue.load.calls == 1


def test_an_item_dropped_to_make_room_is_answered() -> None:
    queue, line = RequestQueue(QueueLimits(calls=1)), ModelQueueKey()
    late = item(expires_at_s=0.0)
    queue.put(line, late)
    queue.put(line, item("a"))
    assert isinstance(late.exception(0), DeadlineExceededError)


def test_a_closed_line_gives_what_waits_and_takes_no_more_while_others_do() -> None:
    queue, line = RequestQueue(QueueLimits()), ModelQueueKey()
    queue.put(line, item("a"))
    queue.close_key(line)
    with pytest.raises(ModelReplacedError):
        queue.put(line, item())
    queue.put(ModelQueueKey(), item())
    assert names(queue.take(line, 9)) == ["a"]
    assert queue.take(line, 9) == []


def test_a_closed_queue_gives_what_waits_and_takes_no_more() -> None:
    queue = RequestQueue(QueueLimits())
    queue.put("m", item("a"))
    queue.close()
    with pytest.raises(UnavailableError, match="stopping"):
        queue.put("m", item())
    taken = queue.take_in_turn()
    assert taken is not None
    assert taken.request.decode() == "a"
    assert queue.take_in_turn() is None


def test_a_closed_queue_still_returns_items_behind_a_cancelled_one() -> None:
    queue, line = RequestQueue(QueueLimits()), ModelQueueKey()
    for one in (item(expires_at_s=0.0), item("wanted")):
        queue.put(line, one)
    queue.close_key(line)
    assert names(queue.take(line, 1)) == ["wanted"]
    assert queue.take(line, 1) == []


def test_a_waiting_worker_is_woken_when_its_queue_closes() -> None:
    queue, line = RequestQueue(QueueLimits()), ModelQueueKey()
    taking = threading.Thread(target=queue.take, args=(line, 9), daemon=True)
    taking.start()
    queue.close_key(line)
    taking.join(SOON_S)
    assert not taking.is_alive()


def test_an_item_taken_in_turn_can_no_longer_be_cancelled_by_its_future() -> None:
    queue = RequestQueue(QueueLimits())
    queue.put("m", item())
    taken = queue.take_in_turn()
    assert taken is not None
    assert not taken.cancel()


def test_a_taken_item_that_is_encoded_can_be_cancelled_and_is_held_until_it_is_released() -> None:
    queue = RequestQueue(QueueLimits())
    queue.put("m", QueuedRequest(LazyRequest.of("", 1, 10), CallContext(), encode=str))
    taken = queue.take_in_turn()
    assert taken is not None
    assert (taken.cancel(), taken.cancelled(), queue.load.calls) == (True, True, 1)
    assert taken.fail_if_expired()
    taken.respond(1)  # its work did not notice
    taken.fail(ZeroDivisionError())
    assert taken.cancelled()
    queue.release([taken])
    assert queue.load.calls == 0


def test_an_observer_that_fails_does_not_keep_the_caller_waiting() -> None:
    class Broken:
        def on_queued(self, model: str, version: int) -> None:
            pass

        def on_finished(self, observation: object) -> None:  # noqa: ARG002 - as Observer
            raise ZeroDivisionError

    one: QueuedRequest[int] = QueuedRequest(LazyRequest.of("", 1), CallContext(), "Predict", [Broken()])
    heard: list[int] = []
    one.add_done_callback(lambda done: heard.append(done.result()))
    one.set_model("m", 1)
    one.respond(7)
    assert heard == [7]


def test_the_calling_thread_takes_waiting_items_if_they_are_quick() -> None:
    queue, line, sizes = RequestQueue(QueueLimits()), ModelQueueKey(), list[int]()

    def is_quick(size: int) -> bool:
        sizes.append(size)
        return len(sizes) > 1

    for name in "ab":
        queue.put(line, item(name, size=3))
    assert queue.take_now(line, 9, is_quick) == []
    assert names(queue.take_now(line, 9, is_quick)) == ["a", "b"]
    assert sizes == [6, 6]
    assert not queue.wake(line)


def test_the_calling_thread_takes_no_items_beside_others_in_progress() -> None:
    queue, line = RequestQueue(QueueLimits()), ModelQueueKey()
    queue.put(line, item("a"))
    (taken,) = queue.take_now(line, 9, lambda _: True)
    queue.put(line, item("b"))
    assert queue.take_now(line, 9, lambda _: True) == []
    queue.release([taken])
    assert names(queue.take_now(line, 9, lambda _: True)) == ["b"]


def test_joining_waits_until_everything_has_its_answer() -> None:
    queue, line = RequestQueue(QueueLimits()), ModelQueueKey()
    queue.put(line, item())
    queue.close()
    (taken,) = queue.take(line, 9)
    joined = threading.Thread(target=queue.join)
    joined.start()
    assert joined.is_alive()
    queue.release([taken])
    joined.join(SOON_S)
    assert not joined.is_alive()


# --- explanation worker


@dataclass(frozen=True)
class StepwiseWork:
    """Work of `count` steps that records its name at each step."""

    name: str
    count: int
    said: list[str]

    def step(self, _now: datetime, deadline: Deadline) -> str | None:
        deadline.check()
        self.said.append(self.name)
        return self.name if self.said.count(self.name) == self.count else None


class Stepwise(Protocol):
    def step(self, now: datetime, deadline: Deadline, /) -> object: ...


def put(lane: StepWorker, line: str, work: Stepwise, context: CallContext | None = None) -> "Future[Any]":
    one: AnyRequest = QueuedRequest(LazyRequest.of(work, 1, 1), context or CallContext())
    lane.put(line, one, work.step)
    return one


def paused_worker(queue: RequestQueue) -> tuple[StepWorker, Callable[[], None]]:
    """An explanation worker that pauses in its first step until released."""
    lane, begun, released = StepWorker("held", queue), threading.Event(), threading.Event()

    class Holding:
        def step(self, _now: datetime, _deadline: Deadline) -> bool:
            begun.set()
            return released.wait(SOON_S)

    put(lane, "held", Holding())
    assert begun.wait(SOON_S)
    return lane, released.set


def test_long_work_of_one_line_lets_others_have_their_turn() -> None:
    queue = RequestQueue(QueueLimits())
    lane, release = paused_worker(queue)
    said: list[str] = []
    answers = [
        put(lane, line, StepwiseWork(line, count, said)) for line, count in (("long", 4), ("short", 1), ("other", 2))
    ]
    release()
    assert [answer.result(SOON_S) for answer in answers] == ["long", "short", "other"]
    assert said == ["long", "short", "other", "long", "other", "long", "long"]
    queue.close()


def test_work_that_is_cancelled_between_two_steps_ends() -> None:
    queue = RequestQueue(QueueLimits())
    lane, said, deadline = StepWorker("lane", queue), [], CallContext()

    class Endless:
        def step(self, _now: datetime, _deadline: Deadline) -> None:
            said.append("step")
            deadline.cancel()

    assert isinstance(put(lane, "m", Endless(), deadline).exception(SOON_S), CallCancelledError)
    assert said == ["step"]
    queue.close()
    queue.join()
    assert queue.load == (0, 0, 0)


def test_work_that_fails_ends_no_other() -> None:
    queue = RequestQueue(QueueLimits())
    lane = StepWorker("lane", queue)

    class Broken:
        def step(self, _now: datetime, _deadline: Deadline) -> float:
            return 1 / 0

    assert isinstance(put(lane, "m", Broken()).exception(SOON_S), ZeroDivisionError)
    assert put(lane, "m", StepwiseWork("a", 1, [])).result(SOON_S) == "a"
    queue.close()


def test_work_cancelled_while_it_waits_never_begins() -> None:
    queue = RequestQueue(QueueLimits())
    lane, release = paused_worker(queue)
    said: list[str] = []
    cancelled, other = put(lane, "m", StepwiseWork("a", 1, said)), put(lane, "m", StepwiseWork("b", 1, said))
    assert cancelled.cancel()
    release()
    assert other.result(SOON_S) == "b"
    with pytest.raises(CancelledError):
        cancelled.result(SOON_S)
    assert said == ["b"]
    queue.close()


def test_requests_that_wait_together_wake_the_thread_of_their_model_once() -> None:
    queue, key = RequestQueue(QueueLimits()), ModelQueueKey()
    for name in "abc":
        queue.put(key, item(name))
        assert queue.wake(key)
    assert key.wakeups.qsize() == 1
    assert names(queue.take(key, 2)) == ["a", "b"]
    assert names(queue.take(key, 2)) == ["c"]
    assert key.wakeups.empty()


def test_a_thread_that_is_being_started_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ran, starting, may_start, start = threading.Event(), threading.Event(), threading.Event(), threading.Thread.start
    thread = LazyThread(ran.set, "late")
    starter, timer = threading.Thread(target=thread.start), threading.Timer(0.05, may_start.set)

    def start_late(self: threading.Thread) -> None:
        starting.set()
        may_start.wait(30)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", start_late)
    start(starter)
    starting.wait(30)
    start(timer)
    thread.join()
    assert ran.is_set()
    starter.join()
