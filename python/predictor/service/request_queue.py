"""The request queue, bounded in requests, rows and bytes across all models.

`QueuePolicy` decides which request is next, dropped or rejected. `RequestQueue` makes it thread-safe.
"""

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import InvalidStateError
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, final
from weakref import WeakSet

from predictor.call_context import OK, CallContext, Observation, Observer
from predictor.errors import (
    CallCancelledError,
    ErrorStatus,
    InternalError,
    QuantraError,
    QueueFullError,
    UnavailableError,
    get_error_status,
)
from predictor.limits import QueueLimits
from predictor.memory import make_caller_error
from predictor.service.light_future import CANCELLED, RUNNING, LightFuture

if TYPE_CHECKING:
    from datetime import datetime

    from predictor.call_context import Deadline
    from predictor.forecast import Outcome
    from predictor.service.workers import StageTimes


InputT = TypeVar("InputT")
ResponseT = TypeVar("ResponseT")

_log = logging.getLogger(__name__)


@final
class LazyRequest(Generic[InputT]):
    """The input of a request, decoded when work on it begins, because bytes take less memory than arrays.

    Args:
        decode: Decodes the input; raises QuantraError if it is malformed.
        rows: Number of symbols.
        size: Number of bytes; 0 if the caller holds this memory anyway.
    """

    def __init__(self, decode: Callable[[], InputT], rows: int, size: int = 0) -> None:
        self._decode: Callable[[], InputT] | None = decode
        self.rows, self.size = rows, size

    @classmethod
    def of(cls, decoded: InputT, rows: int, size: int = 0) -> Self:
        """Create a request whose input is already decoded."""
        return cls(lambda: decoded, rows, size)

    def decode(self) -> InputT:
        """Return the input; call it once, because it frees what the input is decoded from."""
        decode, self._decode = self._decode, None
        assert decode is not None  # noqa: S101 - called once
        return decode()


@final
class QueuedRequest(LightFuture[ResponseT]):
    """A request that is queued or in progress, and the future of its response.

    Cancelling it while it is queued removes it from the queue. With `encode`, it can also be cancelled while work on it
    is in progress, whose result is then dropped.

    Args:
        request: The request.
        context: Context of its call.
        method: Name of the call, for observers and the log.
        observers: Notified once, at its end, before the caller.
        encode: Makes the response of the result, on the thread that computes it; the caller then gets only errors that
            are QuantraErrors. None: the response is the result.
    """

    def __init__(
        self,
        request: LazyRequest[Any],
        context: CallContext,
        method: str = "",
        observers: Sequence[Observer] = (),
        encode: Callable[[Any], ResponseT] | None = None,
    ) -> None:
        super().__init__()
        self.request, self.context = request, context
        self.arrived_at_s = time.perf_counter()
        self.times: StageTimes | None = None
        """Times of its batch or of its first step; None while it is queued."""
        self.queue: RequestQueue | None = None
        """The queue that counts it; None before and after."""
        self.step: Callable[[datetime, Deadline], ResponseT | None] | None = None
        """For a `StepWorker`: does the next part of the work; returns None if there is more to do."""
        self._method, self._observers, self._encode = method, observers, encode
        self._model, self._version = "", 0
        self._failed_reasons: tuple[str, ...] = ()

    def set_model(self, model: str, version: int) -> None:
        """Note the model of the request, which is about to be queued."""
        self._model, self._version = model, version
        for observer in self._observers:
            observer.on_queued(model, version)

    def cancel(self) -> bool:
        """See the class."""
        has_begun = self.running()
        is_cancelled, queue = self._cancel(even_running=self._encode is not None), self.queue
        if is_cancelled and queue is not None and not has_begun:
            queue.release([self])
        return is_cancelled

    def respond(self, result: Any) -> None:
        """Set the response to a result."""
        if self._observers:
            self._failed_reasons = _list_failed_reasons(result)
        try:
            response: ResponseT = result if self._encode is None else self._encode(result)
            self._complete(response, None)
        except Exception as error:  # noqa: BLE001 - thread boundary: the caller gets the error
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Set the error."""
        if self._encode is not None:
            error = make_caller_error(self._method, error, _log)
        self._complete(None, error.without_frames() if isinstance(error, QuantraError) else error)

    def start(self) -> bool:
        """Mark the request as running. Returns False if it was cancelled, or has expired and therefore fails."""
        return (self._phase == RUNNING or self.set_running_or_notify_cancel()) and not self.fail_if_expired()

    def fail_if_expired(self) -> bool:
        """Fail the request if its deadline has passed or its call was cancelled. Returns whether it is over."""
        if self._phase >= CANCELLED:
            return True
        try:
            self.context.check()
        except QuantraError as error:
            self.fail(error)
            return True
        return False

    def _complete(self, response: ResponseT | None, error: Exception | None) -> None:
        try:  # noqa: SIM105 - `suppress` takes longer
            self._finish(response, error)
        except InvalidStateError:
            pass  # cancelled

    def _call_back(self) -> None:
        if self._observers and self._model:
            try:
                self._notify()
            except Exception:  # noqa: BLE001 - the caller still gets the response
                _log.exception("an observer failed")
        super()._call_back()

    def _notify(self) -> None:
        """Notify the observers that it was answered, rejected or cancelled."""
        times, error, now_s = self.times, self._find_error(), time.perf_counter()
        observation = Observation(
            method=self._method,
            model=self._model,
            version=self._version,
            rows=self.request.rows,
            code=OK if error is None else error.status.value,
            reason="" if error is None else error.reason,
            refused=() if error is not None else self._failed_reasons,
            took_s=now_s - self.arrived_at_s,
            queue_s=None if times is None else times.begun_at_s - self.arrived_at_s,
            prepare_s=None if times is None else times.prepare_s,
            forward_s=None if times is None else times.forward_s,
            batch_rows=0 if times is None else times.rows,
        )
        for observer in self._observers:
            observer.on_finished(observation)

    def _find_error(self) -> ErrorStatus | None:
        """Return the error that the caller gets, if any."""
        if self._phase == CANCELLED:
            return get_error_status(CallCancelledError(""))
        error = self._error
        if error is None:
            return None
        return get_error_status(error if isinstance(error, QuantraError) else InternalError(""))


def _list_failed_reasons(result: object) -> tuple[str, ...]:
    """List the reasons of the instances without a forecast; empty for explanations."""
    outcomes: Sequence[Outcome] = result if isinstance(result, tuple) else ()
    return tuple(get_error_status(outcome).reason for outcome in outcomes if isinstance(outcome, QuantraError))


AnyRequest = QueuedRequest[Any]


class QueueLoad(NamedTuple):
    """Requests that are queued or in progress."""

    calls: int
    rows: int
    """Symbols of the requests."""
    size: int
    """Bytes of the requests."""


@final
class ModelQueueKey:
    """Key of the requests of one model, which have their own thread. Only `RequestQueue` changes it."""

    def __init__(self) -> None:
        self.wakeups: SimpleQueue[None] = SimpleQueue()
        """Wakes the thread."""
        self.is_registered = self.is_woken = self.is_closed = False


@final
class QueuePolicy:
    """Requests by key, first in first out within each key. Not thread-safe.

    Args:
        limits: Limits of all requests that are queued or in progress.
        clock: Seconds of the clock that deadlines use.
    """

    def __init__(self, limits: QueueLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._queues: dict[Hashable, dict[AnyRequest, None]] = {}
        self._keys: dict[AnyRequest, Hashable] = {}
        self._rows = 0
        self.size = 0
        """Bytes of the requests that are queued or in progress."""

    def put(self, key: Hashable, queued: AnyRequest) -> list[AnyRequest]:
        """Queue a request.

        Returns:
            Expired requests that were dropped to make room.

        Raises:
            QueueFullError: A limit is reached.
        """
        dropped: list[AnyRequest] = []
        if self._make_excess_error(queued):
            now_s = self._clock()
            dropped = [old for requests in self._queues.values() for old in requests if old.context.is_over(now_s)]
            self.release(dropped)
            if excess := self._make_excess_error(queued):
                raise excess
        self._queues.setdefault(key, {})[queued] = None
        self._keys[queued] = key
        self._rows += queued.request.rows
        self.size += queued.request.size
        return dropped

    def take(self, key: Hashable, max_rows: int) -> list[AnyRequest]:
        """Take the next requests of a key, up to `max_rows` in total, but at least one if any waits."""
        waiting = self._queues.get(key, {})
        batch: list[AnyRequest] = []
        rows = 0
        for queued in waiting:
            rows += queued.request.rows
            if batch and rows > max_rows:
                break
            batch.append(queued)
        if len(batch) == len(waiting):
            self._queues.pop(key, None)
        else:
            for queued in batch:
                del waiting[queued]
        return batch

    def take_in_turn(self) -> AnyRequest | None:
        """Take the next request of the key served least recently; None if nothing waits."""
        if not self._queues:
            return None
        key, waiting = next(iter(self._queues.items()))
        queued = next(iter(waiting))
        self._leave(key, queued)
        if key in self._queues:
            self._queues[key] = self._queues.pop(key)
        return queued

    def put_back(self, queued: AnyRequest) -> None:
        """Queue a taken request again."""
        self._queues.setdefault(self._keys[queued], {})[queued] = None

    def release(self, requests: Iterable[AnyRequest]) -> None:
        """Stop counting requests that were answered or dropped."""
        for queued in requests:
            key = self._keys.pop(queued, None)
            if key is None:
                continue
            queued.queue = None
            if key in self._queues:
                self._leave(key, queued)
            self._rows -= queued.request.rows
            self.size -= queued.request.size

    def has(self, key: Hashable) -> bool:
        """Whether a request of this key waits."""
        return key in self._queues

    def has_others(self, key: Hashable) -> bool:
        """Whether any other request is queued or in progress."""
        return len(self._keys) > len(self._queues.get(key, {}))

    @property
    def is_empty(self) -> bool:
        """Whether no request is queued or in progress."""
        return not self._keys

    @property
    def load(self) -> QueueLoad:
        """Load of the requests that are queued or in progress."""
        return QueueLoad(len(self._keys), self._rows, self.size)

    def _leave(self, key: Hashable, queued: AnyRequest) -> None:
        waiting = self._queues.get(key, {})
        waiting.pop(queued, None)
        if not waiting:
            self._queues.pop(key, None)

    def _make_excess_error(self, queued: AnyRequest) -> QueueFullError | None:
        """Return the error if one more request exceeds a limit; an empty queue accepts a request of any size."""
        calls, limits = len(self._keys), self._limits
        if calls + 1 > limits.calls:
            return QueueFullError.of("calls wait", calls, limits.calls)
        if calls and self._rows + queued.request.rows > limits.rows:
            return QueueFullError.of("symbols wait", self._rows, limits.rows)
        if calls and self.size + queued.request.size > limits.size:
            return QueueFullError.of("bytes of requests wait", self.size, limits.size)
        return None


class ModelReplacedError(Exception):
    """The queue of a model is closed because the model was replaced."""


@final
class LazyThread:
    """A thread created on start: since Python 3.13, one created before a fork cannot start after it."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._run, self._name = run, name
        self._once = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread once."""
        if self._thread is None:
            with self._once:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()

    def join(self) -> None:
        """Wait for the end of the thread, unless it was not started or is the current one."""
        with self._once:  # a thread that is just being started cannot be joined
            thread = self._thread
        if thread not in (None, threading.current_thread()):
            thread.join()


@final
class RequestQueue:
    """`QueuePolicy` for many threads: `take` blocks until a request arrives.

    Each `ModelQueueKey` has its own thread; one thread serves all string keys round-robin. A process forked after the
    first use lacks these threads, so its requests are rejected.

    Args:
        limits: As for `QueuePolicy`.
        clock: As for `QueuePolicy`.
    """

    def __init__(self, limits: QueueLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = QueuePolicy(limits, clock=clock)
        self._clock = clock
        self.last_release_at_s = -math.inf
        """When a request last got its response or was dropped, in seconds of the clock."""
        self._lock = threading.Lock()
        self._idle_condition = threading.Condition(self._lock)
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._keys: WeakSet[ModelQueueKey] = WeakSet()
        self._threads: WeakSet[LazyThread] = WeakSet()
        self._is_closed = False
        self._process: int | None = None

    def create_thread(self, run: Callable[[], None], name: str) -> LazyThread:
        """Create a thread that takes requests until the queue is closed and drained; `join` waits for its end."""
        thread = LazyThread(run, name)
        self._threads.add(thread)
        return thread

    def put(self, key: ModelQueueKey | str, queued: AnyRequest) -> None:
        """Queue a request; cancelling it removes it immediately. The thread of a `ModelQueueKey` needs `wake` too.

        Raises:
            QueueFullError: A limit is reached.
            UnavailableError: The queue is closed, or belongs to the parent of this forked process.
            ModelReplacedError: The model was replaced.
        """
        process = os.getpid()
        self._process = self._process or process
        if self._process != process:
            raise UnavailableError(
                f"the models were used in process {self._process}, and this forked process lacks their threads; "
                "open the models after the fork, fork before the first forecast, or start processes by spawn"
            )
        with self._lock:
            if self._is_closed:
                raise UnavailableError("the service is stopping; retry when it is back")
            if isinstance(key, ModelQueueKey):
                if key.is_closed:
                    raise ModelReplacedError
                if not key.is_registered:
                    key.is_registered = True
                    self._keys.add(key)
            queued.queue = self
            dropped = self._policy.put(key, queued)
            if isinstance(key, str):
                self._wakeups.put(None)
        for expired in dropped:
            expired.fail_if_expired()

    def wake(self, key: ModelQueueKey) -> bool:
        """Wake the thread of a key if requests wait; returns whether they do."""
        with self._lock:
            is_needed = self._policy.has(key)
            if is_needed and not key.is_woken:
                key.is_woken = True
                key.wakeups.put(None)
            return is_needed

    def take_now(self, key: ModelQueueKey, max_rows: int, is_quick: Callable[[int], bool]) -> list[AnyRequest]:
        """Take the waiting requests of a key, up to one batch, for the calling thread.

        Args:
            key: The key.
            max_rows: As for `take`.
            is_quick: Whether a batch of this many bytes may run on the calling thread.

        Returns:
            The requests that are still wanted; empty if other requests are in progress, or if they are not quick.
        """
        with self._lock:
            if self._policy.has_others(key) or not is_quick(self._policy.size):
                return []
            requests = self._policy.take(key, max_rows)
        return self._start_all(requests)

    def take(self, key: ModelQueueKey, max_rows: int) -> list[AnyRequest]:
        """Wait for the next live requests of a key; empty once the queue is closed and drained."""
        while True:
            key.wakeups.get()
            with self._lock:
                requests = self._policy.take(key, max_rows)
                is_over = (self._is_closed or key.is_closed) and not self._policy.has(key)
                key.is_woken = is_over or self._policy.has(key)
                if key.is_woken:
                    key.wakeups.put(None)
            live_requests = self._start_all(requests)
            if live_requests or is_over:
                return live_requests

    def take_in_turn(self) -> AnyRequest | None:
        """Wait for the next live request of any string key; None once the queue is closed and drained."""
        while True:
            self._wakeups.get()
            with self._lock:
                queued = self._policy.take_in_turn()
                if queued is None and self._is_closed:
                    self._wakeups.put(None)
                    return None
            if queued is not None and self._start_all([queued]):
                return queued

    def put_back(self, queued: AnyRequest) -> None:
        """Queue a taken request again, behind those that wait."""
        with self._lock:
            self._policy.put_back(queued)
            self._wakeups.put(None)

    def release(self, requests: Iterable[AnyRequest]) -> None:
        """Stop counting requests that were answered."""
        with self._lock:
            self._policy.release(requests)
            self.last_release_at_s = self._clock()
            if self._policy.is_empty:
                self._idle_condition.notify_all()

    def close_key(self, key: ModelQueueKey) -> None:
        """Reject new requests of a model; queued ones are still taken."""
        with self._lock:
            key.is_closed = True
            key.wakeups.put(None)

    def close(self) -> None:
        """Reject new requests; queued ones are still taken."""
        with self._lock:
            self._is_closed = True
            for wakeups in (self._wakeups, *(key.wakeups for key in self._keys)):
                wakeups.put(None)

    def join(self) -> None:
        """Wait until a closed queue has no request left and its threads have ended.

        The interpreter aborts the process if it ends while a thread frees tensors.
        """
        with self._idle_condition:
            self._idle_condition.wait_for(lambda: self._policy.is_empty)
        for thread in [*self._threads]:
            thread.join()

    @property
    def load(self) -> QueueLoad:
        """Load of the requests that are queued or in progress."""
        with self._lock:
            return self._policy.load

    def _start_all(self, requests: Sequence[AnyRequest]) -> list[AnyRequest]:
        """Start the requests that are neither cancelled nor expired, and return them."""
        started = [queued for queued in requests if queued.start()]
        if len(started) < len(requests):
            self.release(queued for queued in requests if queued.done())
        return started
