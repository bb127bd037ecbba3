"""What can be asked, of the models that are served now."""

import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from predictor.catalog import ModelInfo
from predictor.errors import ArtifactError, QuantraError
from predictor.forecast import Explanation, Outcome
from predictor.global_importance import GlobalImportance, GlobalQuery
from predictor.inference import choose_device, use_threads
from predictor.instance import Deadline, Query, ReadInstance
from predictor.limits import ServiceLimits
from predictor.model import Predictor
from predictor.observation import Observer
from predictor.registry import FolderWatcher, ModelsFolder, Registry, Runtime, VersionLock
from predictor.service.explanations import (
    DecodedGlobalQuery,
    DecodedQuery,
    ExplanationRequest,
    GlobalExplanation,
    GlobalExplanationRequest,
    Report,
    SingleExplanation,
)
from predictor.service.preemption import BoundedDeadline, PredictionActivity, PreemptibleDeadline
from predictor.service.request_queue import ModelQueueClosedError, QueuedRequest, RequestQueue, SizedRequest
from predictor.service.request_record import RequestRecord
from predictor.service.served_models import ServedModels
from predictor.service.workers import (
    DecodedInstances,
    ExplanationWorker,
    ModelWorker,
    Prediction,
    PredictionRequest,
    now,
)

ResultT = TypeVar("ResultT")


class PredictionService:
    """Answers for every model of a registry. Thread-safe; close it to finish what waits.

    Args:
        registry: the models.
        limits: of what waits.
        clock: the present, with a time zone.
        most_rows: rows of one forward; a lane takes about as many at once.
        max_age_sessions: sessions that may have closed since the last bar of what is predicted; None: any number.
        folder: where the models come from; None if they cannot change.
        watch: made before the folder was opened.
        observer: told of every request that reaches a model, beside the one that its deadline has.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        limits: ServiceLimits | None = None,
        clock: Callable[[], datetime] = now,
        most_rows: int = 256,
        max_age_sessions: int | None = None,
        folder: ModelsFolder | None = None,
        watch: FolderWatcher | None = None,
        observer: Observer | None = None,
    ) -> None:
        limits = limits or ServiceLimits()
        self._observer = observer
        self._clock = clock
        self._most_rows, self._max_age_sessions = most_rows, max_age_sessions
        self._traffic = PredictionActivity()
        self._predictions = RequestQueue(limits.predictions)
        self._explanations = RequestQueue(limits.explanations)
        traffic, longest_s = self._traffic, limits.explanation_s
        self._explaining = ExplanationWorker(
            "explain",
            self._explanations,
            clock=self._clock,
            deadline_of=lambda deadline: PreemptibleDeadline(BoundedDeadline(deadline, longest_s), traffic),
        )
        self.served = ServedModels(registry, self._lane, folder, watch)
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
        lock: Path | None = None,
        max_age_sessions: int | None = None,
        observer: Observer | None = None,
    ) -> Self:
        """Verify every model of a folder, and build what each plain name means: it answers its golden instance first.

        Args:
            models: NAME/VERSION artifacts.
            device: `auto`, `cpu`, `cuda` or `cuda:N`.
            max_batch_rows: rows of one forward at most.
            threads: CPU threads of one forward, for the whole process; None leaves torch's setting as it is.
            limits: of what waits.
            lock: file that pins the manifests of those versions that may be served; None lets all be served.
            max_age_sessions: as for the service itself.
            observer: told of every request that reaches a model.

        Raises:
            ConfigurationError: no such folder, device or lock, or no model that can be served.
        """
        if threads is not None:
            use_threads(threads)
        runtime = Runtime(choose_device(device), max_batch_rows)
        folder = ModelsFolder(models, runtime, None if lock is None else VersionLock.read(lock))
        watch = FolderWatcher(folder)
        return cls(
            folder.open(),
            limits=limits,
            most_rows=max_batch_rows,
            max_age_sessions=max_age_sessions,
            folder=folder,
            watch=watch,
            observer=observer,
        )

    @property
    def problems(self) -> tuple[ArtifactError, ...]:
        """Artifacts that were refused."""
        return self.served.now.registry.problems

    @property
    def without_champion(self) -> tuple[str, ...]:
        """Models that serve their newest version because they lack the alias `champion`."""
        return self.served.now.registry.without_champion()

    @property
    def waiting(self) -> tuple[int, int, int]:
        """Calls, symbols and request bytes of predictions that have no answer yet."""
        return self._predictions.held

    @property
    def explaining(self) -> tuple[int, int, int]:
        """As `waiting`, of explanations."""
        return self._explanations.held

    def models(self) -> tuple[ModelInfo, ...]:
        """Every version of every model."""
        return self.served.infos()

    def model(self, reference: str) -> ModelInfo:
        """One model.

        Raises:
            ModelNotFoundError, VersionNotFoundError: the reference means nothing; the message lists what exists.
        """
        registry = self.served.now.registry
        return registry.info(registry.find(reference))

    def predict(
        self,
        reference: str,
        asked: PredictionRequest | Sequence[ReadInstance],
        deadline: Deadline,
        *,
        here: bool = False,
    ) -> Future[tuple[Outcome, ...]]:
        """Forecast each instance, in order; a bad one, or one that could not be read, is answered with its error.

        Cancelling the future before its turn drops the call at once; after that, the deadline's flag does.

        Args:
            reference: which model.
            asked: the instances.
            deadline: of the call.
            here: let the caller's own thread compute the answer where no other waits; the future is done then.

        Raises:
            ModelNotFoundError, VersionNotFoundError, QueueFullError, UnavailableError: at once.
        """
        given = DecodedInstances(asked) if isinstance(asked, Sequence) else asked
        item: Prediction = QueuedRequest(given, deadline, record=self._record("Predict", given, deadline))
        traffic = self._traffic  # not the service itself: whoever lets go of it while calls wait must not keep it
        traffic.begin()
        item.answer.add_done_callback(lambda _: traffic.end())
        if not (here and self._is_answered_alone(reference, item)):
            self._put(reference, item)
        return item.answer

    def predict_here(
        self, reference: str, instances: Sequence[ReadInstance], deadline: Deadline
    ) -> tuple[Outcome, ...]:
        """As `predict`, for a caller that waits: where no other does, its own thread computes the answer.

        Raises:
            QuantraError: as `predict`, or what ends the whole call.
        """
        return self.predict(reference, instances, deadline, here=True).result()

    def explain(self, reference: str, asked: ExplanationRequest | Query, deadline: Deadline) -> Future[Explanation]:
        """Explain one forecast.

        Raises:
            ModelNotFoundError, VersionNotFoundError, QueueFullError, UnavailableError: at once.
        """
        model = self.served.now.registry.find(reference)
        query = DecodedQuery(asked) if isinstance(asked, Query) else asked
        record = self._record("Explain", query, deadline)
        item: QueuedRequest[SingleExplanation, Explanation] = QueuedRequest(
            SingleExplanation(model, query), deadline, record=record
        )
        self._put_explanation(model, item)
        return item.answer

    def explain_global(
        self, reference: str, asked: GlobalExplanationRequest | GlobalQuery, report: Report, deadline: Deadline
    ) -> Future[GlobalImportance]:
        """Explain many instances, one at a time, so that other explanations come in between.

        Args:
            reference: the model.
            asked: the instances.
            report: as for `GlobalExplanation`.
            deadline: looked at before every instance and every forward.

        Raises:
            ModelNotFoundError, VersionNotFoundError, QueueFullError, UnavailableError: at once.
        """
        model = self.served.now.registry.find(reference)
        query = DecodedGlobalQuery(asked) if isinstance(asked, GlobalQuery) else asked
        work, record = GlobalExplanation(model, query, report), self._record("ExplainGlobal", query, deadline)
        item: QueuedRequest[GlobalExplanation, GlobalImportance] = QueuedRequest(work, deadline, record=record)
        self._put_explanation(model, item)
        return item.answer

    def close(self) -> None:
        """Accept no more, finish what waits."""
        _close_queues(self._predictions, self._explanations)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _record(self, method: str, asked: SizedRequest, deadline: Deadline) -> RequestRecord | None:
        """For a request that somebody observes."""
        observers = [one for one in (self._observer, deadline.observer) if one is not None]
        return RequestRecord(method, asked.rows, observers) if observers else None

    def _is_answered_alone(self, reference: str, item: Prediction) -> bool:
        try:
            return self.served.now.lane(reference).answer_alone(item)
        except QuantraError as error:
            item.answer.set_exception(error)
            raise

    def _put(self, reference: str, item: Prediction) -> None:
        while True:
            try:
                self.served.now.lane(reference).put(item)
            except ModelQueueClosedError:  # the model was replaced between these two steps: ask its successor
                continue
            except QuantraError as error:
                item.answer.set_exception(error)  # whoever observes hears of it
                raise
            return

    def _put_explanation(self, model: Predictor, item: QueuedRequest[Any, Any]) -> None:
        if item.record is not None:
            item.record.reached(model.identity.name, model.identity.version)
        try:
            self._explaining.put(model.identity.name, item)
        except QuantraError as error:
            item.answer.set_exception(error)
            raise

    def _lane(self, model: Predictor) -> ModelWorker:
        return ModelWorker(
            model,
            self._predictions,
            self._clock,
            most_rows=self._most_rows,
            max_age_sessions=self._max_age_sessions,
        )


def done(value: ResultT) -> Future[ResultT]:
    """A result that is there already."""
    answered: Future[ResultT] = Future()
    answered.set_result(value)
    return answered


def _close_queues(*queues: RequestQueue) -> None:
    """Accept no more, and wait until everything is answered."""
    for queue in queues:
        queue.close()
    for queue in queues:
        queue.join()


def _end_queues(*queues: RequestQueue) -> None:
    """As `_close_queues`, but a thread that answers may run this, too, and would wait for itself."""
    for queue in queues:
        queue.close()
    if threading.current_thread() is threading.main_thread():
        for queue in queues:
            queue.join()
