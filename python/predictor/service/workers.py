"""Worker threads: one per model for predictions, and one for jobs in steps, such as explanations."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import TypeVar, final

from predictor.call_context import CallContext, Deadline
from predictor.errors import QuantraError
from predictor.inference import is_plain_thread
from predictor.instance import InstanceOrError, limit_age
from predictor.model import Predictor
from predictor.service.forecast_recorder import ForecastRecorder
from predictor.service.request_queue import AnyRequest, LazyRequest, ModelQueueKey, QueuedRequest, RequestQueue


@final
@dataclass(slots=True)
class StageTimes:
    """End of each stage of a batch, in seconds of `perf_counter`; 0 = not yet.

    `arrived_at_s` is the arrival of the first request.
    """

    arrived_at_s: float
    begun_at_s: float
    decoded_at_s: float = 0.0
    prepared_at_s: float = 0.0
    forecast_at_s: float = 0.0
    encoded_at_s: float = 0.0
    rows: int = 0
    """Symbols of the batch."""

    @property
    def prepare_s(self) -> float | None:
        """Seconds from instances to network inputs; None if not finished."""
        return self.prepared_at_s - self.decoded_at_s if self.prepared_at_s else None

    @property
    def forward_s(self) -> float | None:
        """Seconds in the network; None if not finished."""
        return self.forecast_at_s - self.prepared_at_s if self.forecast_at_s else None

    def __str__(self) -> str:
        """List the duration of each stage."""
        ends = (
            self.arrived_at_s,
            self.begun_at_s,
            self.decoded_at_s,
            self.prepared_at_s,
            self.forecast_at_s,
            self.encoded_at_s,
        )
        names = ("queue", "decode", "prepare", "forward", "encode")
        spans = zip(names, pairwise(ends), strict=True)
        return ", ".join(f"{name} {1e3 * (end - begin):.2f} ms" for name, (begin, end) in spans)


ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def rows_of(instances: Iterable[InstanceOrError]) -> int:
    """Count the symbols; an instance that failed to decode has none."""
    rows = 0
    for instance in instances:
        if not isinstance(instance, QuantraError):
            rows += len(instance.input.symbols)
    return rows


PredictionRequest = LazyRequest[Sequence[InstanceOrError]]
"""Instances to forecast; the error of one that cannot be decoded is in its place."""


def create_request(instances: Sequence[InstanceOrError], size: int = 0) -> PredictionRequest:
    """Create a request of decoded instances."""
    return LazyRequest(lambda: instances, rows_of(instances), size)


@final
class ModelWorker:
    """One thread that runs all waiting requests of one model as one batch, without waiting for more.

    It starts with the first queued request and ends when its queue is closed and empty.
    """

    def __init__(
        self,
        model: Predictor,
        queue: RequestQueue,
        clock: Callable[[], datetime],
        *,
        max_rows: int,
        max_age_sessions: int | None = None,
        recorder: ForecastRecorder | None = None,
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._queue, self._key = queue, ModelQueueKey()
        self._clock = clock
        self._max_rows = max_rows
        self._max_age_sessions = max_age_sessions
        self._thread = queue.create_thread(self._run, f"predict-{model.identity.name}")
        self._batch_s: dict[int, float] = {}
        """Seconds that the last batch of each size took, by the bit length of its size in bytes."""

    def put(self, queued: AnyRequest) -> None:
        """Queue a request until `wake` or `run_waiting`; raises as `RequestQueue.put`."""
        queued.set_model(self._model.identity.name, self._model.identity.version)
        self._queue.put(self._key, queued)

    def wake(self) -> None:
        """Run the queued requests on the thread."""
        if self._queue.wake(self._key):
            self._thread.start()

    def run_waiting(self, inline_s: float) -> None:
        """Run the queued requests on the calling thread if that usually takes at most `inline_s`.

        Otherwise they run on the worker's thread. A handover to it takes as long as the forward pass of a small
        network. Context settings of the calling thread, such as `np.errstate`, do not reach the model.
        """

        def is_quick(size: int) -> bool:
            return self._batch_s.get(size.bit_length(), math.inf) <= inline_s

        try:
            if is_plain_thread() and (requests := self._queue.take_now(self._key, self._max_rows, is_quick)):
                Context().run(self._run_batch, requests)
        finally:
            self.wake()  # for those that still wait, also if the caller is interrupted

    def close(self) -> None:
        """Reject new requests; queued ones still run."""
        self._queue.close_key(self._key)

    def _run(self) -> None:
        while requests := self._queue.take(self._key, self._max_rows):
            self._run_batch(requests)
            del requests  # keep no request alive while waiting

    def _run_batch(self, requests: Sequence[AnyRequest]) -> None:
        begun_at_s = time.perf_counter()
        size = sum(queued.request.size for queued in requests)
        try:
            decoded = [(queued, instances) for queued in requests if (instances := _decode(queued)) is not None]
            if decoded:
                self._predict_with_retry(decoded, begun_at_s)
        finally:
            if open_requests := [queued for queued in requests if queued.queue is not None]:
                self._queue.release(open_requests)
        self._batch_s[size.bit_length()] = time.perf_counter() - begun_at_s

    def _predict_with_retry(
        self, decoded: Sequence[tuple[AnyRequest, Sequence[InstanceOrError]]], begun_at_s: float
    ) -> None:
        """Predict all requests as a batch; if an unexpected error fails it, one by one, so that only one fails."""
        try:
            self._predict_batch(decoded, begun_at_s)
        except Exception as error:  # noqa: BLE001 - thread boundary: callers get the error
            if len(decoded) == 1 or isinstance(error, QuantraError):
                for queued, _ in decoded:
                    if not queued.fail_if_expired():  # an expired request gets its own error
                        queued.fail(error)
        else:
            return
        for request in decoded:  # after the except clause, which holds the memory of the failed batch
            if not request[0].done():
                self._predict_with_retry([request], begun_at_s)

    def _predict_batch(
        self, decoded: Sequence[tuple[AnyRequest, Sequence[InstanceOrError]]], begun_at_s: float
    ) -> None:
        """Prepare all instances, forecast those of requests that are not over, and set their outcomes."""
        times = StageTimes(decoded[0][0].arrived_at_s, begun_at_s, time.perf_counter())
        for queued, _ in decoded:
            queued.times = times
            times.rows += queued.request.rows
        all_instances = [instance for _, instances in decoded for instance in instances]
        if (max_age := self._max_age_sessions) is not None:
            all_instances = [
                item if isinstance(item, QuantraError) else limit_age(item, max_age) for item in all_instances
            ]
        deadline = SharedDeadline([queued.context for queued, _ in decoded])
        batch = self._model.prepare_batch(all_instances, self._clock(), deadline)
        times.prepared_at_s = time.perf_counter()
        live: list[tuple[AnyRequest, int]] = []
        positions: list[int] = []
        first = 0
        for queued, instances in decoded:
            if not queued.fail_if_expired():
                live.append((queued, len(instances)))
                positions.extend(range(first, first + len(instances)))
            first += len(instances)
        outcomes = iter(batch.outcomes(positions, deadline))
        times.forecast_at_s = time.perf_counter()
        self._queue.release(queued for queued, _ in live)  # first: a caller's next request may follow at once
        for queued, count in live:
            if self._recorder is None:
                queued.respond(tuple(islice(outcomes, count)))
            else:
                self._recorder.respond_and_record(queued, tuple(islice(outcomes, count)), times.rows)
        if _log.isEnabledFor(logging.DEBUG):
            times.encoded_at_s = time.perf_counter()
            name = self._model.identity.name
            _log.debug("%s: %d calls, %d instances, %s", name, len(decoded), len(all_instances), times)


def _decode(queued: AnyRequest) -> Sequence[InstanceOrError] | None:
    """Decode a request, which works only once; None if that failed and the request has its error."""
    try:
        return queued.request.decode()
    except Exception as error:  # noqa: BLE001 - thread boundary: the caller gets the error
        queued.fail(error)
        return None


@final
class SharedDeadline:
    """The deadline of a batch, which passes once the calls of all its requests are over."""

    def __init__(self, contexts: Sequence[CallContext]) -> None:
        self._contexts = contexts

    def check(self) -> None:
        """If all calls are over, raise the error of the first."""
        now_s = time.monotonic()
        for context in self._contexts:
            if not context.is_over(now_s):
                return
        for context in self._contexts:
            context.check()


@final
class StepWorker:
    """One thread that runs jobs step by step and takes turns between the keys of its queue.

    It starts with the first request.

    Args:
        name: Name of the thread.
        queue: A queue of this worker only.
        clock: The current time.
        deadline_of: Derives the deadline of a step from the context of the request.
    """

    def __init__(
        self,
        name: str,
        queue: RequestQueue,
        *,
        clock: Callable[[], datetime] = now,
        deadline_of: Callable[[CallContext], Deadline] = lambda context: context,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._deadline_of = deadline_of
        self._thread = queue.create_thread(self._run, name)

    def put(
        self, key: str, queued: QueuedRequest[ResultT], step: Callable[[datetime, Deadline], ResultT | None]
    ) -> None:
        """Queue a request under a key; raises as `RequestQueue.put`.

        Args:
            key: The key.
            queued: The request.
            step: Does the next part of the work, until it returns a result.
        """
        queued.step = step
        self._queue.put(key, queued)
        self._thread.start()

    def _run(self) -> None:
        while (queued := self._queue.take_in_turn()) is not None:
            if self._is_done(queued):
                self._queue.release([queued])
            else:
                self._queue.put_back(queued)
            del queued  # keep no request alive while waiting

    def _is_done(self, queued: AnyRequest) -> bool:
        """Do one step; whether the request is finished."""
        if queued.times is None:
            queued.times = StageTimes(queued.arrived_at_s, time.perf_counter())
        try:
            deadline = self._deadline_of(queued.context)
            deadline.check()
            assert queued.step is not None  # noqa: S101 - `put` sets it
            result = queued.step(self._clock(), deadline)
        except Exception as error:  # noqa: BLE001 - thread boundary: the caller gets the error
            queued.fail(error)
            return True
        if result is not None:
            queued.respond(result)
        return result is not None
