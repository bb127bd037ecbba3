"""What can be asked, of the models that are served now."""

import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeVar, final

from predictor.catalog import ModelInfo
from predictor.errors import ArtifactError
from predictor.forecast import Explanation, Outcome
from predictor.inference import choose_device, use_threads
from predictor.instance import Cancellation, Deadline, Query, ReadInstance
from predictor.limits import ServiceLimits
from predictor.model import Answering
from predictor.registry import Registry, Runtime
from predictor.service.lanes import Asked, Given, Prediction, PredictionLane, TurnLane, now
from predictor.service.traffic import Limited, Traffic, Yielding
from predictor.service.waiting import Item, LineClosedError, WorkQueue

ResultT = TypeVar("ResultT")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The models of one moment, and the lane of each: replaced as a whole, never changed."""

    registry: Registry
    lanes: Mapping[Answering, PredictionLane]
    """By the model itself; models are equal only to themselves."""


class AskedQuery(Protocol):
    """A query, which may be read only when its turn comes."""

    @property
    def rows(self) -> int:
        """Symbols that are read."""
        ...

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        ...

    def query(self) -> Query:
        """What is asked; raises QuantraError where it cannot be read."""
        ...


@final
@dataclass(frozen=True, slots=True)
class GivenQuery:
    """A query of the same process."""

    given: Query

    @property
    def rows(self) -> int:
        """Symbols that are read."""
        return len(self.given.instance.input.symbols)

    @property
    def size(self) -> int:
        """None: it is the caller's own, who holds it in any case."""
        return 0

    def query(self) -> Query:
        """As it was given."""
        return self.given


@final
@dataclass(frozen=True, slots=True, eq=False)
class SingleExplanation:
    """One query to one model, as the explaining thread works on it."""

    model: Answering
    asked: AskedQuery
    asked_s: float = field(default_factory=time.perf_counter)

    @property
    def rows(self) -> int:
        """Symbols that are read."""
        return self.asked.rows

    @property
    def size(self) -> int:
        """Bytes that the query holds."""
        return self.asked.size

    def step(self, now: datetime, deadline: Cancellation) -> Explanation:
        """The whole answer."""
        begun_s = time.perf_counter()
        attributions = self.model.explain(self.asked.query(), now, deadline)
        return Explanation(
            attributions=attributions,
            queue_ms=1e3 * (begun_s - self.asked_s),
            compute_ms=1e3 * (time.perf_counter() - begun_s),
        )


class PredictionService:
    """Answers for every model of a registry. Thread-safe; close it to finish what waits.

    Args:
        registry: the models.
        limits: of what waits.
        clock: the present, with a time zone.
        most_rows: rows of one forward; a lane takes about as many at once.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        limits: ServiceLimits | None = None,
        clock: Callable[[], datetime] = now,
        most_rows: int = 256,
    ) -> None:
        limits = limits or ServiceLimits()
        self._clock = clock
        self._most_rows = most_rows
        self._traffic = Traffic()
        self._predictions = WorkQueue(limits.predictions)
        self._explanations = WorkQueue(limits.explanations, in_turn=True)
        traffic, longest_s = self._traffic, limits.explanation_s
        self._explaining = TurnLane(
            "explain",
            self._explanations,
            clock=self._clock,
            deadline_of=lambda deadline: Yielding(Limited(deadline, longest_s), traffic),
        )
        self._served = self._serve(registry, {})
        # Whoever forgets to close: a process that ends in the midst of a forward would crash.
        weakref.finalize(self, _end_queues, self._predictions, self._explanations)

    @classmethod
    def open(
        cls,
        models: Path,
        *,
        device: str = "auto",
        max_batch_rows: int = 256,
        threads: int | None = None,
        limits: ServiceLimits | None = None,
    ) -> Self:
        """Load every model of a folder; each has answered its golden instance before this returns.

        Args:
            models: NAME/VERSION artifacts.
            device: `auto`, `cpu`, `cuda` or `cuda:N`.
            max_batch_rows: rows of one forward at most.
            threads: CPU threads of one forward, for the whole process; None leaves torch's setting as it is.
            limits: of what waits.

        Raises:
            ConfigurationError: no such folder or device, or no model that loads.
        """
        if threads is not None:
            use_threads(threads)
        registry = Registry.open(models, Runtime(choose_device(device), max_batch_rows))
        return cls(registry, limits=limits, most_rows=max_batch_rows)

    @property
    def problems(self) -> tuple[ArtifactError, ...]:
        """Artifacts that were refused."""
        return self._served.registry.problems

    @property
    def without_champion(self) -> tuple[str, ...]:
        """Models that serve their newest version because they lack the alias `champion`."""
        return self._served.registry.without_champion()

    def models(self) -> tuple[ModelInfo, ...]:
        """Every version of every model."""
        return self._served.registry.infos()

    def model(self, reference: str) -> ModelInfo:
        """One model.

        Raises:
            ModelNotFoundError, VersionNotFoundError: the reference means nothing; the message lists what exists.
        """
        registry = self._served.registry
        return registry.info(registry.find(reference))

    def predict(
        self, reference: str, asked: Asked | Sequence[ReadInstance], deadline: Deadline
    ) -> Future[tuple[Outcome, ...]]:
        """Forecast each instance, in order; a bad one, or one that could not be read, is answered with its error.

        Cancelling the future before its turn drops the call at once; after that, the deadline's flag does.

        Raises:
            ModelNotFoundError, VersionNotFoundError, QueueFullError, UnavailableError: at once.
        """
        item: Prediction = Item(Given(asked) if isinstance(asked, Sequence) else asked, deadline)
        while True:
            served = self._served
            lane = served.lanes[served.registry.find(reference)]
            try:
                lane.put(item)
            except LineClosedError:  # replaced between the two lines above: ask the next one
                continue
            self._traffic.note()
            return item.answer

    def explain(self, reference: str, asked: AskedQuery | Query, deadline: Deadline) -> Future[Explanation]:
        """Explain one forecast.

        Raises:
            ModelNotFoundError, VersionNotFoundError, QueueFullError, UnavailableError: at once.
        """
        model = self._served.registry.find(reference)
        query = GivenQuery(asked) if isinstance(asked, Query) else asked
        item: Item[SingleExplanation, Explanation] = Item(SingleExplanation(model, query), deadline)
        self._explaining.put(model.identity.name, item)
        return item.answer

    def serve(self, registry: Registry) -> None:
        """Serve these models from now on: calls that wait for another one are still answered by it."""
        before = self._served
        self._served = self._serve(registry, before.lanes)
        for model, lane in before.lanes.items():
            if model not in self._served.lanes:
                lane.close()

    def close(self) -> None:
        """Accept no more, finish what waits."""
        _close_queues(self._predictions, self._explanations)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self, registry: Registry, lanes: Mapping[Answering, PredictionLane]) -> Served:
        models = [model for line in registry.lines.values() for model in line.versions.values()]
        return Served(registry, {model: lanes.get(model) or self._lane(model) for model in models})

    def _lane(self, model: Answering) -> PredictionLane:
        return PredictionLane(model, self._predictions, self._clock, most_rows=self._most_rows)


def done(value: ResultT) -> Future[ResultT]:
    """A result that is there already."""
    answered: Future[ResultT] = Future()
    answered.set_result(value)
    return answered


def _close_queues(*queues: WorkQueue) -> None:
    """Accept no more, and wait until everything is answered."""
    for queue in queues:
        queue.close()
    for queue in queues:
        queue.join()


def _end_queues(*queues: WorkQueue) -> None:
    """As `_close_queues`, but a thread that answers may run this, too, and would wait for itself."""
    for queue in queues:
        queue.close()
    if threading.current_thread() is threading.main_thread():
        for queue in queues:
            queue.join()
