"""The threads that work: one for each model's predictions, one for all explanations.

A prediction that nobody else waits beside may be worked out in its caller's own thread instead.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol, TypeVar, final

from predictor.errors import QuantraError
from predictor.forecast import Outcome
from predictor.inference import is_plain_thread
from predictor.instance import Cancellation, Deadline, ReadInstance, no_older
from predictor.model import Predictor
from predictor.service.request_queue import ModelQueue, QueuedRequest, RequestQueue
from predictor.service.request_record import StageTimes

ResultT_co = TypeVar("ResultT_co", covariant=True)

_log = logging.getLogger(__name__)


def now() -> datetime:
    """The present, with a time zone."""
    return datetime.now(UTC)


class PredictionRequest(Protocol):
    """Instances to forecast, which may be read only when their turn comes."""

    @property
    def rows(self) -> int:
        """Symbols of all of them."""
        ...

    @property
    def size(self) -> int:
        """Bytes that they hold."""
        ...

    def instances(self) -> Sequence[ReadInstance]:
        """Each instance, or what is wrong with it; raises QuantraError where none can be told."""
        ...


def rows_of(instances: Iterable[ReadInstance]) -> int:
    """Symbols of all of them; an instance that could not be read has none."""
    return sum(len(one.input.symbols) for one in instances if not isinstance(one, QuantraError))


@final
@dataclass(frozen=True, slots=True)
class DecodedInstances:
    """Instances of the same process."""

    given: Sequence[ReadInstance]

    @property
    def rows(self) -> int:
        """Symbols of all of them."""
        return rows_of(self.given)

    @property
    def size(self) -> int:
        """None: they are the caller's own, who holds them in any case."""
        return 0

    def instances(self) -> Sequence[ReadInstance]:
        """As they were given."""
        return self.given


Prediction = QueuedRequest[PredictionRequest, tuple[Outcome, ...]]
Read = tuple[Prediction, Sequence[ReadInstance]]
"""A call and its instances."""


@final
class LazyThread:
    """A thread that is made when it begins: since Python 3.13, one made before a fork cannot begin after it."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._run, self._name = run, name
        self._once = threading.Lock()
        self._has_begun = False

    def begin(self) -> None:
        """Start it if nobody has."""
        if not self._has_begun:
            with self._once:
                if not self._has_begun:
                    threading.Thread(target=self._run, name=self._name, daemon=True).start()
                    self._has_begun = True


@final
class ModelWorker:
    """One thread that answers what waits for one model: all of it together, as it piled up, without waiting for more.

    It begins with the first call that waits, and ends once its line in the queue is closed and empty.
    """

    def __init__(
        self,
        model: Predictor,
        queue: RequestQueue,
        clock: Callable[[], datetime],
        *,
        most_rows: int,
        max_age_sessions: int | None = None,
    ) -> None:
        self._model = model
        self._queue, self._line = queue, ModelQueue()
        self._clock = clock
        self._most_rows = most_rows
        self._max_age_sessions = max_age_sessions
        self._thread = LazyThread(self._run, f"predict-{model.identity.name}")

    def put(self, item: Prediction) -> None:
        """Let a call wait for this model; raises as `RequestQueue.put`."""
        self._note(item)
        self._queue.put(self._line, item)
        self._thread.begin()

    def answer_alone(self, item: Prediction) -> bool:
        """Answer a call in the caller's own thread; False, and nothing done, where others wait or are being answered.

        Two threads that hand one call over take as long as a small network's forward. What the caller set for its
        own thread, such as `np.errstate`, does not reach the model; raises as `RequestQueue.begin_alone`.
        """
        if not (is_plain_thread() and self._queue.begin_alone(self._line, item)):
            return False
        self._note(item)
        try:
            if item.begin():
                Context().run(self._answer, [item])
        finally:
            self._queue.release([item])
        return True

    def close(self) -> None:
        """Take no more; what waits is still answered."""
        self._queue.close_line(self._line)

    def _note(self, item: Prediction) -> None:
        if item.record is not None:
            item.record.reached(self._model.identity.name, self._model.identity.version)

    def _run(self) -> None:
        while items := self._queue.take(self._line, self._most_rows):
            self._answer(items)
            self._queue.release(items)
            del items  # a lane that waits holds on to no request

    def _answer(self, items: Sequence[Prediction]) -> None:
        begun_s = time.perf_counter()
        read = [(item, instances) for item in items if (instances := _read(item)) is not None]
        if read:
            self._answer_read(read, begun_s)

    def _answer_read(self, read: Sequence[Read], begun_s: float) -> None:
        """Answer all; where they cannot be together, each by itself, so that none ends another."""
        if not self._is_settled(read, begun_s):
            for one in read:
                if not one[0].answer.done():
                    self._answer_read([one], begun_s)

    def _is_settled(self, read: Sequence[Read], begun_s: float) -> bool:
        """False where a bug of ours, or memory that ran out, ended several calls; what they had taken is free then."""
        try:
            self._answer_together(read, begun_s)
        except Exception as error:  # noqa: BLE001 - a thread's edge: the error is the callers' answer
            if len(read) > 1 and not isinstance(error, QuantraError):
                return False
            for item, _ in read:
                if not item.answer.done() and item.is_wanted():  # each that nobody waits for has its own reason
                    item.answer.set_exception(error)
        return True

    def _answer_together(self, read: Sequence[Read], begun_s: float) -> None:
        times = StageTimes(read[0][0].asked_at_s, begun_s, time.perf_counter())
        _note_times([item for item, _ in read], times)
        everything = [self._bounded(instance) for _, instances in read for instance in instances]
        deadline = SharedDeadline([item.deadline for item, _ in read])
        batch = self._model.prepare_batch(everything, self._clock(), deadline)
        times.prepared_s = time.perf_counter()
        wanted = [(item, places) for item, places in _places(read) if item.is_wanted()]
        outcomes = batch.outcomes([place for _, places in wanted for place in places], deadline)
        times.forecast_s = time.perf_counter()
        _set_outcomes(wanted, outcomes)
        if _log.isEnabledFor(logging.DEBUG):
            times.encoded_s = time.perf_counter()
            _log.debug("%s: %d calls, %d instances, %s", self._model.identity.name, len(read), len(everything), times)

    def _bounded(self, instance: ReadInstance) -> ReadInstance:
        """The instance, whose bars are refused where they are older than the service allows."""
        if self._max_age_sessions is None or isinstance(instance, QuantraError):
            return instance
        return no_older(instance, self._max_age_sessions)


def _read(item: Prediction) -> Sequence[ReadInstance] | None:
    """The instances of a call, which can be read once only; None where its answer is why they could not be."""
    try:
        return item.asked.instances()
    except Exception as error:  # noqa: BLE001 - a thread's edge: the error is the caller's answer
        item.answer.set_exception(error)
        return None


def _note_times(items: Sequence[Prediction], times: StageTimes) -> None:
    """Let each request that is observed know of its batch, whose times are still to come."""
    records = [item.record for item in items if item.record is not None]
    if records:
        times.rows = sum(item.asked.rows for item in items)
    for record in records:
        record.times = times


def _places(read: Sequence[Read]) -> Iterator[tuple[Prediction, range]]:
    """Where the instances of each call lie among those of all."""
    first = 0
    for item, instances in read:
        yield item, range(first, first + len(instances))
        first += len(instances)


def _set_outcomes(wanted: Sequence[tuple[Prediction, range]], outcomes: Sequence[Outcome]) -> None:
    left = iter(outcomes)
    for item, places in wanted:
        item.answer.set_result(tuple(islice(left, len(places))))


@final
class SharedDeadline:
    """The deadline of work for several calls: it goes on as long as anybody waits for its own part."""

    def __init__(self, deadlines: Sequence[Deadline]) -> None:
        self._deadlines = deadlines

    def check(self) -> None:
        """Raises what the first of the deadlines does, if all of them are over."""
        now_s = time.monotonic()
        if all(deadline.is_over(now_s) for deadline in self._deadlines):
            for deadline in self._deadlines:
                deadline.check()


class SteppedJob(Protocol[ResultT_co]):
    """Something that is worked on in turns with others."""

    @property
    def rows(self) -> int:
        """Symbols that it reads."""
        ...

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        ...

    def step(self, now: datetime, deadline: Cancellation) -> ResultT_co | None:
        """Work until others may have their turn; the answer, or None while there is more to do."""
        ...


@final
class ExplanationWorker:
    """One thread that works for all lines of a queue in turn, a step at a time. It begins with the first call.

    Args:
        name: of the thread.
        queue: made for one thread.
        clock: the present.
        deadline_of: what a step asks whether it may go on, for a call's own deadline.
    """

    def __init__(
        self,
        name: str,
        queue: RequestQueue,
        *,
        clock: Callable[[], datetime] = now,
        deadline_of: Callable[[Deadline], Cancellation] = lambda deadline: deadline,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._deadline_of = deadline_of
        self._thread = LazyThread(self._run, name)

    def put(self, line: str, item: QueuedRequest[Any, Any]) -> None:
        """Let a call wait for its turn among those of its line; raises as `RequestQueue.put`."""
        self._queue.put(line, item)
        self._thread.begin()

    def _run(self) -> None:
        while (item := self._queue.take_in_turn()) is not None:
            if self._is_done(item):
                self._queue.release([item])
            else:
                self._queue.put_back(item)
            del item  # a lane that waits holds on to no request

    def _is_done(self, item: QueuedRequest[Any, Any]) -> bool:
        """Whether the item has its answer after another step."""
        if item.record is not None:
            item.record.begin()
        try:
            deadline = self._deadline_of(item.deadline)
            deadline.check()
            answer = item.asked.step(self._clock(), deadline)
        except Exception as error:  # noqa: BLE001 - a thread's edge: the error is the caller's answer
            item.answer.set_exception(error)
            return True
        if answer is not None:
            item.answer.set_result(answer)
        return answer is not None
