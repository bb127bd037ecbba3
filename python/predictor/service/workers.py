"""Worker threads: one per model for predictions, one for all explanations."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol, final

from predictor.errors import QuantraError
from predictor.inference import is_plain_thread
from predictor.instance import Cancellation, Deadline, ReadInstance, limit_age
from predictor.model import Predictor
from predictor.service.forecast_recorder import ForecastRecorder
from predictor.service.request_queue import ModelQueue, QueuedRequest, RequestQueue, SizedRequest
from predictor.service.stage_times import StageTimes

_log = logging.getLogger(__name__)


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


class PredictionRequest(SizedRequest, Protocol):
    """Instances to forecast, which may be decoded only when work on them begins."""

    def instances(self) -> Sequence[ReadInstance]:
        """Decode each instance, or return its error; raises QuantraError if the whole request is invalid."""
        ...


def rows_of(instances: Iterable[ReadInstance]) -> int:
    """Count the symbols; an instance that failed to decode has none."""
    rows = 0
    for each in instances:
        if not isinstance(each, QuantraError):
            rows += len(each.input.symbols)
    return rows


@final
class DecodedInstances:
    """Instances that were decoded before they wait.

    Args:
        decoded: Each instance or its error.
        size: Bytes of the request; 0 if the caller holds this memory anyway.
    """

    def __init__(self, decoded: Sequence[ReadInstance], size: int = 0) -> None:
        self._decoded, self.size = decoded, size
        self.rows = rows_of(decoded)

    def instances(self) -> Sequence[ReadInstance]:
        """Return the instances."""
        return self._decoded


Prediction = QueuedRequest[PredictionRequest, Any]
DecodedRequest = tuple[Prediction, Sequence[ReadInstance]]
"""A request and its instances."""


@final
class ModelWorker:
    """One thread that answers all waiting requests of one model as one batch, without waiting for more.

    It starts with the first queued request and ends when its queue is closed and empty.
    """

    def __init__(
        self,
        model: Predictor,
        queue: RequestQueue,
        clock: Callable[[], datetime],
        *,
        most_rows: int,
        max_age_sessions: int | None = None,
        recorder: ForecastRecorder | None = None,
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._queue, self._model_queue = queue, ModelQueue()
        self._clock = clock
        self._most_rows = most_rows
        self._max_age_sessions = max_age_sessions
        self._thread = queue.thread(self._run, f"predict-{model.identity.name}")
        self._took_s: dict[int, float] = {}
        """Seconds that the last batch of a size took; the key is the bit length of its size in bytes."""

    def put(self, item: Prediction) -> None:
        """Queue a request until `wake` or `answer_waiting`; raises as `RequestQueue.put`."""
        item.reached(self._model.identity.name, self._model.identity.version)
        self._queue.put(self._model_queue, item)

    def wake(self) -> None:
        """Answer the queued requests on the thread."""
        if self._queue.wake(self._model_queue):
            self._thread.begin()

    def answer_waiting(self, inline_s: float) -> None:
        """Answer the queued requests on the calling thread if that usually takes at most `inline_s`.

        Otherwise the worker's thread answers them. A handover to it takes as long as the forward pass of a small
        network. Context settings of the calling thread, such as `np.errstate`, do not reach the model.
        """

        def is_quick(size: int) -> bool:
            return self._took_s.get(size.bit_length(), math.inf) <= inline_s

        try:
            if is_plain_thread() and (items := self._queue.take_now(self._model_queue, self._most_rows, is_quick)):
                Context().run(self._answer, items)
        finally:
            self.wake()  # for those that still wait, also if the caller is interrupted

    def close(self) -> None:
        """Reject new requests; queued ones are still answered."""
        self._queue.close_model_queue(self._model_queue)

    def _run(self) -> None:
        while items := self._queue.take(self._model_queue, self._most_rows):
            self._answer(items)
            del items  # keep no request alive while waiting

    def _answer(self, items: Sequence[Prediction]) -> None:
        begun_s = time.perf_counter()
        size = sum(item.request.size for item in items)
        try:
            decoded = [(item, instances) for item in items if (instances := _decode(item)) is not None]
            if decoded:
                self._answer_decoded(decoded, begun_s)
        finally:
            if left := [item for item in items if item.queue is not None]:
                self._queue.release(left)
        self._took_s[size.bit_length()] = time.perf_counter() - begun_s

    def _answer_decoded(self, decoded: Sequence[DecodedRequest], begun_s: float) -> None:
        """Answer all requests as a batch; if an unexpected error fails it, one by one, so that only one fails."""
        try:
            self._answer_together(decoded, begun_s)
        except Exception as error:  # noqa: BLE001 - thread boundary: callers get the error
            if len(decoded) == 1 or isinstance(error, QuantraError):
                for item, _ in decoded:
                    if not item.done() and item.is_wanted():  # an expired request gets its own error
                        item.fail(error)
        else:
            return
        for request in decoded:  # after the except clause, which holds the memory of the failed batch
            if not request[0].done():
                self._answer_decoded([request], begun_s)

    def _answer_together(self, decoded: Sequence[DecodedRequest], begun_s: float) -> None:
        """Prepare all instances, forecast those of requests that are still wanted, and set their outcomes."""
        times = StageTimes(decoded[0][0].asked_s, begun_s, time.perf_counter())
        for item, _ in decoded:
            item.times = times
            times.rows += item.request.rows
        everything = [instance for _, instances in decoded for instance in instances]
        if (most_age := self._max_age_sessions) is not None:
            everything = [one if isinstance(one, QuantraError) else limit_age(one, most_age) for one in everything]
        deadline = SharedDeadline([item.deadline for item, _ in decoded])
        batch = self._model.prepare_batch(everything, self._clock(), deadline)
        times.prepared_s = time.perf_counter()
        wanted: list[tuple[Prediction, int]] = []
        places: list[int] = []
        first = 0
        for item, instances in decoded:
            if item.is_wanted():
                wanted.append((item, len(instances)))
                places.extend(range(first, first + len(instances)))
            first += len(instances)
        outcomes = iter(batch.outcomes(places, deadline))
        times.forecast_s = time.perf_counter()
        self._queue.release(item for item, _ in wanted)  # first: a caller's next request may follow at once
        for item, count in wanted:
            if self._recorder is None:
                item.respond(tuple(islice(outcomes, count)))
            else:
                self._recorder.answer(item, tuple(islice(outcomes, count)), times.rows)
        if _log.isEnabledFor(logging.DEBUG):
            times.encoded_s = time.perf_counter()
            name = self._model.identity.name
            _log.debug("%s: %d calls, %d instances, %s", name, len(decoded), len(everything), times)


def _decode(item: Prediction) -> Sequence[ReadInstance] | None:
    """Decode a request, which works only once; None if that failed and the request has its error."""
    try:
        return item.request.instances()
    except Exception as error:  # noqa: BLE001 - thread boundary: the caller gets the error
        item.fail(error)
        return None


@final
class SharedDeadline:
    """The deadline of a batch: it expires when the deadlines of all requests have expired."""

    def __init__(self, deadlines: Sequence[Deadline]) -> None:
        self._deadlines = deadlines

    def check(self) -> None:
        """If all deadlines have expired, raise the error of the first."""
        now_s = time.monotonic()
        for deadline in self._deadlines:
            if not deadline.is_over(now_s):
                return
        for deadline in self._deadlines:
            deadline.check()


@final
class ExplanationWorker:
    """One thread that serves the keys of a queue round-robin, one step at a time. It starts with the first request.

    A request has a method `step`, as `OneStepJob` and `GlobalExplanation`; it returns None if there is more to do.

    Args:
        name: Name of the thread.
        queue: A queue of this worker only.
        clock: The current time.
        deadline_of: Derives the deadline of a step from that of the request.
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
        self._thread = queue.thread(self._run, name)

    def put(self, key: str, item: QueuedRequest[Any, Any]) -> None:
        """Queue a request under a key; raises as `RequestQueue.put`."""
        self._queue.put(key, item)
        self._thread.begin()

    def _run(self) -> None:
        while (item := self._queue.take_in_turn()) is not None:
            if self._is_done(item):
                self._queue.release([item])
            else:
                self._queue.put_back(item)
            del item  # keep no request alive while waiting

    def _is_done(self, item: QueuedRequest[Any, Any]) -> bool:
        """Do one step; whether the request is finished."""
        if item.times is None:
            item.times = StageTimes(item.asked_s, time.perf_counter())
        try:
            deadline = self._deadline_of(item.deadline)
            deadline.check()
            answer = item.request.step(self._clock(), deadline)
        except Exception as error:  # noqa: BLE001 - thread boundary: the caller gets the error
            item.fail(error)
            return True
        if answer is not None:
            item.respond(answer)
        return answer is not None
