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
from typing import Any, Self, TypeVar, overload

from predictor.adaptive_widths import RecordedWidths
from predictor.call_context import CallContext, Deadline, Observer
from predictor.catalog import EngineName, ModelInfo
from predictor.errors import ArtifactError, QuantraError
from predictor.forecast import Explanation, Outcome
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance
from predictor.inference import choose_device
from predictor.instance import ExplanationQuery, InstanceOrError, PathQuery
from predictor.limits import ServiceLimits
from predictor.model import Predictor
from predictor.registry import FolderWatcher, ModelsFolder, Registry, Runtime, VersionLock
from predictor.service.adaptive_model import AdaptiveModel
from predictor.service.explanations import (
    ExplanationDeadline,
    GlobalExplanation,
    PredictionActivity,
    Report,
    Simulation,
    explain_query,
    simulate_query,
)
from predictor.service.forecast_recorder import ForecastRecorder
from predictor.service.request_queue import (
    AnyRequest,
    LazyRequest,
    ModelReplacedError,
    QueuedRequest,
    QueueLoad,
    RequestQueue,
)
from predictor.service.served_models import ServedModels
from predictor.service.workers import (
    ModelWorker,
    PredictionRequest,
    StepWorker,
    create_request,
    now,
    rows_of,
)

ResponseT = TypeVar("ResponseT")


class PredictionService:
    """Forecasts and explanations from every model of a registry. Thread-safe; `close` finishes queued requests.

    Args:
        registry: The models.
        limits: Limits of the queues.
        clock: The current time, with a time zone.
        max_rows: Rows of one forward pass, and about the rows of one batch.
        max_age_sessions: Largest number of sessions closed since the last bar of an instance; None: any.
        folder: Source of the models; None if they cannot change.
        watch: Watcher created before the folder was opened.
        observer: Notified of every request that reaches a model, in addition to its context's observer.
        schedule: Decides where the worker's queued requests run; by default, on its thread. Must soon call `wake` or
            `run_waiting`.
        recorder: Records every forecast; closed with the service.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        limits: ServiceLimits | None = None,
        clock: Callable[[], datetime] = now,
        max_rows: int = 256,
        max_age_sessions: int | None = None,
        folder: ModelsFolder | None = None,
        watch: FolderWatcher | None = None,
        observer: Observer | None = None,
        schedule: Callable[[ModelWorker], None] = ModelWorker.wake,
        recorder: ForecastRecorder | None = None,
    ) -> None:
        limits = limits or ServiceLimits()
        self.recorder = recorder
        """None without a ledger."""
        self._observer, self._schedule = observer, schedule
        self._clock = clock
        self._max_rows, self._max_age_sessions = max_rows, max_age_sessions
        self._predictions = RequestQueue(limits.predictions)
        self._explanations = RequestQueue(limits.explanations)
        activity, max_s = PredictionActivity(self._predictions), limits.explanation_s
        self._explanation_worker = StepWorker(
            "explain",
            self._explanations,
            clock=self._clock,
            deadline_of=lambda context: ExplanationDeadline(context, activity, max_s),
        )
        self.served = ServedModels(registry, self._create_worker, folder, watch)
        # If the caller forgets to close: a process that exits during a forward pass crashes, so close the queues first.
        weakref.finalize(self, _close_queues, [self._predictions, self._explanations], is_at_exit=True)

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
        schedule: Callable[[ModelWorker], None] = ModelWorker.wake,
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
            schedule: As for the class.
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
            max_rows=max_batch_rows,
            max_age_sessions=max_age_sessions,
            folder=folder,
            watch=watch,
            observer=observer,
            schedule=schedule,
            recorder=recorder,
        )

    @property
    def problems(self) -> tuple[ArtifactError, ...]:
        """Artifacts that were refused."""
        return self.served.current.registry.problems

    @property
    def prediction_load(self) -> QueueLoad:
        """Predictions without a response yet."""
        return self._predictions.load

    @property
    def explanation_load(self) -> QueueLoad:
        """Explanations without a response yet."""
        return self._explanations.load

    def models(self) -> tuple[ModelInfo, ...]:
        """List every version of every model."""
        return self.served.infos()

    def model(self, reference: str) -> ModelInfo:
        """Describe one model.

        Raises:
            ModelNotFoundError, VersionNotFoundError: No such model or version; the message lists those that exist.
        """
        registry = self.served.current.registry
        return registry.info(registry.find(reference))

    @overload
    def predict(
        self,
        reference: str,
        request: PredictionRequest | Sequence[InstanceOrError],
        context: CallContext,
        encode: None = None,
        *,
        inline: bool = False,
    ) -> Future[tuple[Outcome, ...]]: ...

    @overload
    def predict(
        self,
        reference: str,
        request: PredictionRequest | Sequence[InstanceOrError],
        context: CallContext,
        encode: Callable[[tuple[Outcome, ...]], ResponseT],
        *,
        inline: bool = False,
    ) -> Future[ResponseT]: ...

    def predict(
        self,
        reference: str,
        request: PredictionRequest | Sequence[InstanceOrError],
        context: CallContext,
        encode: Callable[[tuple[Outcome, ...]], Any] | None = None,
        *,
        inline: bool = False,
    ) -> Future[Any]:
        """Forecast each instance, in order; the outcome of an invalid instance is its error.

        Cancelling the future drops a queued request. Once work has begun, cancel the context instead.

        Args:
            reference: Reference of the model.
            request: The instances.
            context: Context of the call.
            encode: Makes the response of the outcomes, on the thread that computes them; every error is then a
                QuantraError. None: the outcomes are the response.
            inline: Whether to compute in the calling thread if no other request waits.

        Raises:
            ModelNotFoundError, VersionNotFoundError, QueueFullError, UnavailableError: Immediately.
        """
        if isinstance(request, Sequence):
            request = create_request(request)
        queued: AnyRequest = QueuedRequest(request, context, "Predict", self._observers_of(context), encode)
        worker = self._put(reference, queued)
        if inline:
            worker.run_waiting(math.inf)
        else:
            self._schedule(worker)  # in the server: InlineBatcher.schedule, one batch per turn of the loop
        return queued

    def predict_inline(
        self, reference: str, instances: Sequence[InstanceOrError], context: CallContext
    ) -> tuple[Outcome, ...]:
        """Forecast like `predict` with `inline`, and wait.

        Raises:
            QuantraError: As `predict`, or the whole request failed.
        """
        return self.predict(reference, instances, context, inline=True).result()

    def explain(
        self, reference: str, request: LazyRequest[ExplanationQuery] | ExplanationQuery, context: CallContext
    ) -> Future[Explanation]:
        """Explain one forecast; raises as `predict`."""
        if isinstance(request, ExplanationQuery):
            request = LazyRequest.of(request, len(request.instance.input.symbols))
        model = self.served.current.registry.find(reference)
        step = partial(explain_query, model, request.decode, time.perf_counter())
        return self._run_steps("Explain", model, request, step, context)

    def explain_global(
        self,
        reference: str,
        request: LazyRequest[GlobalExplanationQuery] | GlobalExplanationQuery,
        report: Report,
        context: CallContext,
    ) -> Future[GlobalImportance]:
        """Explain many instances, one per step, so that other explanations can run in between.

        Args:
            reference: Reference of the model.
            request: The instances and targets.
            report: As for `GlobalExplanation`.
            context: Checked before every instance and every forward pass.

        Raises:
            ModelNotFoundError, VersionNotFoundError, QueueFullError, UnavailableError: Immediately.
        """
        if isinstance(request, GlobalExplanationQuery):
            request = LazyRequest.of(request, rows_of(request.instances))
        model = self.served.current.registry.find(reference)
        step = GlobalExplanation(model, request.decode, report).step
        return self._run_steps("ExplainGlobal", model, request, step, context)

    def simulate(self, reference: str, request: LazyRequest[PathQuery], context: CallContext) -> Future[Simulation]:
        """Simulate price paths; like an explanation, it never delays a prediction. Raises as `predict`."""
        model = self.served.current.registry.find(reference)
        return self._run_steps("SimulatePaths", model, request, partial(simulate_query, model, request.decode), context)

    def close(self) -> None:
        """Reject new requests and finish queued ones."""
        _close_queues([self._predictions, self._explanations])
        if self.recorder is not None:
            self.recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _observers_of(self, context: CallContext) -> Sequence[Observer]:
        service_observer, call_observer = self._observer, context.observer
        if service_observer is None or call_observer is None:
            return () if (observer := service_observer or call_observer) is None else (observer,)
        return service_observer, call_observer

    def _put(self, reference: str, queued: AnyRequest) -> ModelWorker:
        while True:
            try:
                worker = self.served.current.find_worker(reference)
                worker.put(queued)
            except ModelReplacedError:  # the model was just replaced: use its successor
                continue
            except QuantraError as error:
                queued.fail(error)  # notifies observers
                raise
            return worker

    def _run_steps(
        self,
        method: str,
        model: Predictor,
        request: LazyRequest[Any],
        step: Callable[[datetime, Deadline], ResponseT | None],
        context: CallContext,
    ) -> Future[ResponseT]:
        """Queue a request for the explanation worker."""
        queued: QueuedRequest[ResponseT] = QueuedRequest(request, context, method, self._observers_of(context))
        queued.set_model(model.identity.name, model.identity.version)
        try:
            self._explanation_worker.put(model.identity.name, queued, step)
        except QuantraError as error:
            queued.fail(error)
            raise
        return queued

    def _create_worker(self, model: Predictor) -> ModelWorker:
        return ModelWorker(
            model,
            self._predictions,
            self._clock,
            max_rows=self._max_rows,
            max_age_sessions=self._max_age_sessions,
            recorder=self.recorder,
        )


def _close_queues(queues: Sequence[RequestQueue], *, is_at_exit: bool = False) -> None:
    """Close the queues and wait until every request has a response.

    At exit, wait only on the main thread: a worker that runs this would wait for itself.
    """
    for queue in queues:
        queue.close()
    if not is_at_exit or threading.current_thread() is threading.main_thread():
        for queue in queues:
            queue.join()
