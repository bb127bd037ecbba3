"""The prediction service."""

import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from predictor.adaptive_widths import RecordedWidths
from predictor.catalog import EngineName, ModelInfo
from predictor.errors import ArtifactError, QuantraError
from predictor.forecast import Explanation, Outcome
from predictor.global_importance import GlobalImportance, GlobalQuery
from predictor.inference import choose_device
from predictor.instance import Deadline, PathQuery, Query, ReadInstance
from predictor.limits import ServiceLimits
from predictor.model import Predictor
from predictor.observation import Observer
from predictor.registry import FolderWatcher, ModelsFolder, Registry, Runtime, VersionLock
from predictor.service.adaptive_model import AdaptiveModel
from predictor.service.explanations import (
    GlobalExplanation,
    OneStepJob,
    QueryRequest,
    Report,
    explain_query,
)
from predictor.service.forecast_recorder import ForecastRecorder
from predictor.service.preemption import ExplanationDeadline, PredictionActivity
from predictor.service.request_queue import ModelQueueClosedError, QueuedRequest, RequestQueue
from predictor.service.served_models import ServedModels
from predictor.service.simulations import Simulation, simulate_query
from predictor.service.workers import (
    DecodedInstances,
    ExplanationWorker,
    ModelWorker,
    Prediction,
    PredictionRequest,
    now,
    rows_of,
)

AnswerT = TypeVar("AnswerT")


class PredictionService:
    """Forecasts and explanations from every model of a registry. Thread-safe; `close` finishes queued requests.

    Args:
        registry: The models.
        limits: Limits of the queues.
        clock: The current time, with a time zone.
        most_rows: Rows of one forward pass, and about the rows of one batch.
        max_age_sessions: Largest number of sessions closed since the last bar of an instance; None: any.
        folder: Source of the models; None if they cannot change.
        watch: Watcher created before the folder was opened.
        observer: Notified of every request that reaches a model, in addition to its deadline's observer.
        wake: Called with the worker of each queued request; must soon call its `wake` or `answer_waiting`.
        recorder: Records every forecast; closed with the service.
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
        wake: Callable[[ModelWorker], None] = ModelWorker.wake,
        recorder: ForecastRecorder | None = None,
    ) -> None:
        limits = limits or ServiceLimits()
        self.recorder = recorder
        """None without a ledger."""
        self._observer, self._wake = observer, wake
        self._clock = clock
        self._most_rows, self._max_age_sessions = most_rows, max_age_sessions
        self._predictions = RequestQueue(limits.predictions)
        self._explanations = RequestQueue(limits.explanations)
        activity, longest_s = PredictionActivity(self._predictions), limits.explanation_s
        self._explaining = ExplanationWorker(
            "explain",
            self._explanations,
            clock=self._clock,
            deadline_of=lambda deadline: ExplanationDeadline(deadline, activity, longest_s),
        )
        self.served = ServedModels(registry, self._worker, folder, watch)
        # A process that exits during a forward pass would crash, even if the caller forgets to close.
        weakref.finalize(self, _end_queues, self._predictions, self._explanations)

    @classmethod
    def open(  # noqa: PLR0913 - one argument per setting
        cls,
        models: Path,
        *,
        device: str = "auto",
        max_batch_rows: int = 256,
        limits: ServiceLimits | None = None,
        lock: Path | None = None,
        max_age_sessions: int | None = None,
        observer: Observer | None = None,
        engine: EngineName = "eager",
        wake: Callable[[ModelWorker], None] = ModelWorker.wake,
        recorder: ForecastRecorder | None = None,
        widths: RecordedWidths | None = None,
        may_be_empty: bool = False,
    ) -> Self:
        """Verify every model of a folder and load the version that each plain name refers to.

        A loaded model must first reproduce its golden instance.

        Args:
            models: Folder of NAME/VERSION artifacts.
            device: `auto`, `cpu`, `cuda` or `cuda:N`.
            max_batch_rows: Largest number of rows of one forward pass.
            limits: Limits of the queues.
            lock: File that pins the manifests of the versions allowed to be served; None allows all.
            max_age_sessions: As for the class.
            observer: Notified of every request that reaches a model.
            engine: `eager`, or `onnxruntime` for the batch sizes at which it is faster.
            wake: As for the class.
            recorder: As for the class.
            widths: Adaptive widths of the models' bands; None: as calibrated.
            may_be_empty: Whether the folder may be missing or hold no model yet.

        Raises:
            MissingPackageError: A package of the engine is not installed.
            ConfigurationError: The folder, device or lock does not exist, or no model can be served.
        """
        runtime = Runtime(choose_device(device), max_batch_rows, engine)
        if widths is not None:
            runtime = replace(runtime, wrap=partial(AdaptiveModel, widths=widths))
        folder = ModelsFolder(models, runtime, None if lock is None else VersionLock.read(lock))
        watch = FolderWatcher(folder)
        return cls(
            folder.open(may_be_empty=may_be_empty),
            limits=limits,
            most_rows=max_batch_rows,
            max_age_sessions=max_age_sessions,
            folder=folder,
            watch=watch,
            observer=observer,
            wake=wake,
            recorder=recorder,
        )

    @property
    def problems(self) -> tuple[ArtifactError, ...]:
        """Artifacts that were refused."""
        return self.served.now.registry.problems

    @property
    def waiting(self) -> tuple[int, int, int]:
        """Calls, symbols and request bytes of predictions without a response yet."""
        return self._predictions.held

    @property
    def explaining(self) -> tuple[int, int, int]:
        """As `waiting`, for explanations."""
        return self._explanations.held

    def models(self) -> tuple[ModelInfo, ...]:
        """List every version of every model."""
        return self.served.infos()

    def model(self, reference: str) -> ModelInfo:
        """Describe one model.

        Raises:
            ModelNotFoundError, VersionNotFoundError: No such model or version; the message lists those that exist.
        """
        registry = self.served.now.registry
        return registry.info(registry.find(reference))

    def predict(
        self, reference: str, request: PredictionRequest | Sequence[ReadInstance], deadline: Deadline
    ) -> Future[tuple[Outcome, ...]]:
        """Forecast each instance, in order; the outcome of an invalid instance is its error.

        Cancelling the future drops a queued request. Once work has begun, cancel the deadline instead.

        Args:
            reference: Reference of the model.
            request: The instances.
            deadline: Deadline of the request.

        Raises:
            ModelNotFoundError, VersionNotFoundError, QueueFullError, UnavailableError: Immediately.
        """
        if isinstance(request, Sequence):
            request = DecodedInstances(request)
        return self._predict(reference, request, deadline, None, here=False)

    def predict_here(
        self, reference: str, instances: Sequence[ReadInstance], deadline: Deadline
    ) -> tuple[Outcome, ...]:
        """Forecast like `predict`, but wait; compute in the calling thread if no other request waits.

        Raises:
            QuantraError: As `predict`, or the whole request failed.
        """
        return self._predict(reference, DecodedInstances(instances), deadline, None, here=True).result()

    def answer(
        self,
        reference: str,
        request: PredictionRequest,
        deadline: Deadline,
        encode: Callable[[tuple[Outcome, ...]], AnswerT],
        *,
        here: bool = False,
    ) -> Future[AnswerT]:
        """Forecast like `predict`, and encode the outcomes on the thread that computes them.

        Args:
            reference: Reference of the model.
            request: The instances.
            deadline: Deadline of the request.
            encode: Makes the response of the outcomes.
            here: Compute in the calling thread if no other request waits; the future is then done.

        Returns:
            The response; every error is a QuantraError.

        Raises:
            ModelNotFoundError, VersionNotFoundError, QueueFullError, UnavailableError: Immediately.
        """
        return self._predict(reference, request, deadline, encode, here=here)

    def explain(self, reference: str, query: QueryRequest[Query] | Query, deadline: Deadline) -> Future[Explanation]:
        """Explain one forecast; raises as `predict`."""
        model = self.served.now.registry.find(reference)
        if isinstance(query, Query):
            decoded = query
            query = QueryRequest(lambda: decoded, len(decoded.instance.input.symbols))
        job = OneStepJob(partial(explain_query, model, query.query, time.perf_counter()), query.rows, query.size)
        item: QueuedRequest[OneStepJob[Explanation], Explanation] = QueuedRequest(
            job, deadline, "Explain", self._observers_of(deadline)
        )
        self._put_explanation(model, item)
        return item

    def explain_global(
        self, reference: str, query: QueryRequest[GlobalQuery] | GlobalQuery, report: Report, deadline: Deadline
    ) -> Future[GlobalImportance]:
        """Explain many instances, one per step, so that other explanations can run in between.

        Args:
            reference: Reference of the model.
            query: The instances and targets.
            report: As for `GlobalExplanation`.
            deadline: Checked before every instance and every forward pass.

        Raises:
            ModelNotFoundError, VersionNotFoundError, QueueFullError, UnavailableError: Immediately.
        """
        model = self.served.now.registry.find(reference)
        if isinstance(query, GlobalQuery):
            decoded = query
            query = QueryRequest(lambda: decoded, rows_of(decoded.instances))
        item: QueuedRequest[GlobalExplanation, GlobalImportance] = QueuedRequest(
            GlobalExplanation(model, query, report), deadline, "ExplainGlobal", self._observers_of(deadline)
        )
        self._put_explanation(model, item)
        return item

    def simulate(self, reference: str, request: QueryRequest[PathQuery], deadline: Deadline) -> Future[Simulation]:
        """Simulate price paths; like an explanation, it never delays a prediction. Raises as `predict`."""
        model = self.served.now.registry.find(reference)
        job = OneStepJob(partial(simulate_query, model, request.query), request.rows, request.size)
        item: QueuedRequest[OneStepJob[Simulation], Simulation] = QueuedRequest(
            job, deadline, "SimulatePaths", self._observers_of(deadline)
        )
        self._put_explanation(model, item)
        return item

    def close(self) -> None:
        """Reject new requests and finish queued ones."""
        _close_queues(self._predictions, self._explanations)
        if self.recorder is not None:
            self.recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _observers_of(self, deadline: Deadline) -> Sequence[Observer]:
        own, other = self._observer, deadline.observer
        if own is None or other is None:
            return () if (only := own or other) is None else (only,)
        return own, other

    def _predict(
        self,
        reference: str,
        request: PredictionRequest,
        deadline: Deadline,
        encode: Callable[[tuple[Outcome, ...]], Any] | None,
        *,
        here: bool,
    ) -> Future[Any]:
        item: Prediction = QueuedRequest(request, deadline, "Predict", self._observers_of(deadline), encode)
        worker = self._put(reference, item)
        if here:
            worker.answer_waiting(math.inf)
        else:
            self._wake(worker)
        return item

    def _put(self, reference: str, item: Prediction) -> ModelWorker:
        while True:
            try:
                worker = self.served.now.worker(reference)
                worker.put(item)
            except ModelQueueClosedError:  # the model was just replaced: use its successor
                continue
            except QuantraError as error:
                item.fail(error)  # notifies observers
                raise
            return worker

    def _put_explanation(self, model: Predictor, item: QueuedRequest[Any, Any]) -> None:
        item.reached(model.identity.name, model.identity.version)
        try:
            self._explaining.put(model.identity.name, item)
        except QuantraError as error:
            item.fail(error)
            raise

    def _worker(self, model: Predictor) -> ModelWorker:
        return ModelWorker(
            model,
            self._predictions,
            self._clock,
            most_rows=self._most_rows,
            max_age_sessions=self._max_age_sessions,
            recorder=self.recorder,
        )


def _close_queues(*queues: RequestQueue) -> None:
    """Close the queues and wait until every request has a response."""
    for queue in queues:
        queue.close()
    for queue in queues:
        queue.join()


def _end_queues(*queues: RequestQueue) -> None:
    """Close the queues; wait only on the main thread, because a worker that runs this would wait for itself."""
    for queue in queues:
        queue.close()
    if threading.current_thread() is threading.main_thread():
        for queue in queues:
            queue.join()
