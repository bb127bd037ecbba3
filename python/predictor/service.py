"""The use cases, without wire types: what every door (gRPC, in-process, pythonnet) calls, and all that it calls.

Work runs on threads of its own and comes back as futures. Predictions have one thread per model; explanations have one
thread for all, over an attribution view of their own, so that a prediction never waits for an explanation. While
predictions come, explanations pause between their steps, because two threads of one interpreter hold each other up.
"""

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar, final

from predictor.catalog import ModelInfo
from predictor.errors import ArtifactError, QuantraError, QueueFullError, UnavailableError
from predictor.forecast import Explanation, Outcome
from predictor.inference import choose_device, use_threads
from predictor.instance import Cancellation, Deadline, Query, ReadInstance
from predictor.model import Answering
from predictor.registry import Registry, Runtime

ResultT = TypeVar("ResultT")

LOW_PRIORITY = 19
"""The nice value of the thread that explains."""

QUIET_S: Final = 0.01
"""Predictions closer together than this count as one stream."""
LONGEST_PAUSE_S: Final = 0.05
"""An explanation takes its next step after this time, however many predictions come."""

MAX_WAITING_PREDICTIONS = 1024
"""Calls that may wait for one model."""
MAX_WAITING_EXPLANATIONS = 8


class PredictionService:
    """Answers for every model of a registry. Thread-safe; close it to finish what waits."""

    def __init__(self, registry: Registry, *, clock: Callable[[], datetime] | None = None) -> None:
        self._registry = registry
        self._clock = clock or _now
        models = [model for line in registry.lines.values() for model in line.versions.values()]
        self._workers = {id(m): Worker(f"predict-{m.identity.name}", MAX_WAITING_PREDICTIONS) for m in models}
        self._explaining = Worker("explain", MAX_WAITING_EXPLANATIONS, gives_way=True)
        self._traffic = Traffic()

    @classmethod
    def open(cls, models: Path, *, device: str = "auto", max_batch_rows: int = 256, threads: int | None = None) -> Self:
        """Load every model of a folder; each has answered its golden instance before this returns.

        Args:
            models: NAME/VERSION artifacts.
            device: `auto`, `cpu`, `cuda` or `cuda:N`.
            max_batch_rows: rows of one forward at most.
            threads: CPU threads of one forward, for the whole process; None leaves torch's setting as it is.

        Raises:
            ConfigurationError: no such folder or device, or no model that loads.
        """
        if threads is not None:
            use_threads(threads)
        return cls(Registry.open(models, Runtime(choose_device(device), max_batch_rows)))

    @property
    def problems(self) -> tuple[ArtifactError, ...]:
        """Artifacts that were refused."""
        return self._registry.problems

    @property
    def without_champion(self) -> tuple[str, ...]:
        """Models that serve their newest version because they lack the alias `champion`."""
        return self._registry.without_champion()

    def models(self) -> tuple[ModelInfo, ...]:
        """Every version of every model."""
        return self._registry.infos()

    def model(self, reference: str) -> ModelInfo:
        """One model.

        Raises:
            ModelNotFoundError, VersionNotFoundError: the reference means nothing; the message lists what exists.
        """
        return self._registry.info(self._registry.find(reference))

    def predict(
        self, reference: str, instances: Sequence[ReadInstance], deadline: Deadline
    ) -> Future[tuple[Outcome, ...]]:
        """Forecast each instance, in order; a bad one, or one that could not be read, is answered with its error.

        Raises:
            ModelNotFoundError, VersionNotFoundError: at once.
            QueueFullError: at once.
        """
        model = self._registry.find(reference)
        unread = tuple(instance for instance in instances if isinstance(instance, QuantraError))
        if unread and len(unread) == len(instances):
            return done(unread)
        self._traffic.note()
        return self._workers[id(model)].submit(lambda: self._predict(model, instances, deadline))

    def explain(self, reference: str, query: Query, deadline: Deadline) -> Future[Explanation]:
        """Explain one forecast.

        Raises:
            ModelNotFoundError, VersionNotFoundError: at once.
            QueueFullError: at once.
        """
        model, asked = self._registry.find(reference), time.monotonic()
        yielding = Yielding(deadline, self._traffic)
        return self._explaining.submit(lambda: self._explain(model, query, yielding, asked))

    def close(self) -> None:
        """Accept no more, finish what waits."""
        workers = (*self._workers.values(), self._explaining)
        for worker in workers:
            worker.refuse()
        for worker in workers:
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _predict(self, model: Answering, instances: Sequence[ReadInstance], deadline: Deadline) -> tuple[Outcome, ...]:
        deadline.check()
        return model.predict(instances, self._clock(), deadline)

    def _explain(self, model: Answering, query: Query, deadline: Cancellation, asked: float) -> Explanation:
        deadline.check()
        begun = time.monotonic()
        attributions = model.explain(query, self._clock(), deadline)
        ended = time.monotonic()
        return Explanation(
            attributions=attributions, queue_ms=1000 * (begun - asked), compute_ms=1000 * (ended - begun)
        )


def done(value: ResultT) -> Future[ResultT]:
    """A result that is there already."""
    answered: Future[ResultT] = Future()
    answered.set_result(value)
    return answered


class Worker:
    """One thread that does its work in order, and refuses more than its capacity.

    A process that was forked from one whose worker has worked lacks its thread, and is refused.
    """

    def __init__(self, name: str, capacity: int, *, gives_way: bool = False) -> None:
        begin = _give_way if gives_way else None
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name, initializer=begin)
        self._places = threading.BoundedSemaphore(capacity)
        self._name, self._capacity = name, capacity
        self._process: int | None = None

    def submit(self, work: Callable[[], ResultT]) -> Future[ResultT]:
        """Do `work` after all that waits already.

        Raises:
            QueueFullError: too many calls wait.
            UnavailableError: the worker is closed, or works in the process that this one was forked from.
        """
        self._check_process()
        if not self._places.acquire(blocking=False):
            raise QueueFullError(f"{self._capacity} calls wait for {self._name} already; try again later")
        try:
            future = self._executor.submit(work)
        except RuntimeError as error:
            self._places.release()
            raise UnavailableError("the service is stopping; call again when it is back") from error
        future.add_done_callback(lambda _: self._places.release())
        return future

    def _check_process(self) -> None:
        process = os.getpid()
        self._process = self._process or process
        if self._process != process:
            raise UnavailableError(
                f"these models work in process {self._process}, from which this one was forked without their threads; "
                "open them here, or before any forecast, or start processes by spawn"
            )

    def refuse(self) -> None:
        """Accept no more."""
        self._executor.shutdown(wait=False)

    def close(self) -> None:
        """Accept no more, finish what waits."""
        self._executor.shutdown(wait=True)


@final
class Traffic:
    """When a prediction was last asked for, so that other work can pause meanwhile."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._last_s = -math.inf

    def note(self) -> None:
        """A prediction was asked for."""
        self._last_s = self._clock()

    def pause(self) -> None:
        """Wait until predictions have stopped coming, at most LONGEST_PAUSE_S."""
        longest_s = self._clock() + LONGEST_PAUSE_S
        while self._clock() < min(self._last_s + QUIET_S, longest_s):
            self._sleep(QUIET_S / 4)


@final
class Yielding:
    """A deadline at which predictions pass first."""

    def __init__(self, deadline: Deadline, traffic: Traffic) -> None:
        self._deadline = deadline
        self._traffic = traffic

    def check(self) -> None:
        """Pause for predictions; raises as `Deadline.check`."""
        self._traffic.pause()
        self._deadline.check()


def _give_way() -> None:
    """Let the other threads run first where cores are scarce; only Linux has priorities for single threads."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW_PRIORITY)


def _now() -> datetime:
    return datetime.now(UTC)
