"""A training run: epochs, validation, early stopping and checkpoints."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from time import perf_counter
from typing import Any, Generic, TypeVar, final

from torch.nn import Parameter
from torch.utils.data import DataLoader

from trainers.loop.checkpoint.recorder import Recorder
from trainers.loop.checkpoint.store import StopSignals
from trainers.loop.data.sources import (
    IterableSource,
    Source,
    check_source,
    describe_reading,
    hash_order,
    read_batches,
)
from trainers.loop.data.transfer import can_read_ahead
from trainers.loop.device import derive_seed, measure_peak_bytes
from trainers.loop.errors import EmptyTargetError, ResumeMismatchError, StoppedError
from trainers.loop.group.totals import StepRequests
from trainers.loop.loss import Loss
from trainers.loop.reports import (
    CheckpointReport,
    EpochReport,
    PhaseResult,
    Report,
    StepReport,
    TrainingNotice,
    ValidationReport,
    describe_stop,
    make_shortage_notice,
    make_validation_shortage_notice,
)
from trainers.loop.run_parts import RunParts
from trainers.loop.step.accumulation import windows
from trainers.loop.step.guards import Position, add_position
from trainers.loop.validation import Validation, evaluation_mode
from trainers.loop.weights import AveragedWeights, list_named_tensors

Batch = TypeVar("Batch")
Sample = TypeVar("Sample")

NO_REQUESTS = StepRequests()


@final
class TrainingRun(Generic[Batch]):
    """A training run in progress; `Loop.running()` yields it.

    Attributes:
        best: The best value recorded by `stalled`, with its weights.
        group: The processes that train together.
    """

    def __init__(
        self,
        parts: RunParts[Batch],
        recorder: Recorder | None,
        signals: StopSignals,
        notices: Sequence[TrainingNotice],
    ) -> None:
        self._parts = parts
        self._signals = signals
        self._recorder = recorder
        self._phases = parts.phases
        self._training = parts.training
        self._notices = list(notices)
        # One source per loader: reading a loader changes the seeds that the order of its batches is derived from.
        self._loaded: dict[DataLoader[Any], IterableSource[Any]] = {}
        self.best = parts.best
        self.group = parts.group

    @property
    def epoch(self) -> int:
        """Number of complete epochs."""
        return self._training.epoch

    @property
    def windows(self) -> int:
        """Number of complete windows, including those before a resume."""
        return self._training.windows

    @property
    def history(self) -> tuple[EpochReport, ...]:
        """The reports of all complete epochs, including those before a resume."""
        return tuple(self._training.history)

    def epochs(
        self,
        train: Source[Batch] | DataLoader[Any],
        *,
        max_epochs: int,
        validation: Validation[Sample] | None = None,
    ) -> Iterator[Report]:
        """Train, and yield a report per window and phase, then one per epoch.

        The loop trains only while the caller waits for the next report, so leaving the `for` loop ends the training.
        A further call continues after the last complete window. The checkpoint of an epoch is written after the
        caller has handled the epoch's report, so it includes what the caller recorded.

        Args:
            train: The batches of every epoch; a `DataLoader` is read as by `IterableSource(loader)`. In a group, each
                process reads its share of them.
            max_epochs: Total number of epochs, including those already complete.
            validation: What to score after every epoch; its report is part of the epoch's.

        Raises:
            StoppedError: A signal ended the training. A checkpoint was written if there is a folder for it.
            LoopError: Any other error of the loop; it names phase, epoch, window and batch shapes.
        """
        source = self._wrap_source(train)
        # Add notices on how the source is read, and check that all processes read the same order.
        check_source(source)
        training, group = self._training, self.group
        window = training.epoch_totals.windows
        messages = describe_reading(source, epoch=training.epoch, window=window, processes=group.size)
        self._notices.extend(TrainingNotice(message=message) for message in messages)
        if group.size > 1:
            digest = hash_order(source, training.epoch, seed=training.order_seed)
            group.check_same("the order of the loader's batches", digest)
        suffix = "no validation" if validation is None else "a validation"
        self.group.check_same("the length of the training and its validation", f"{max_epochs} epochs, {suffix}")
        yield from self._take_notices()
        while self._training.epoch < max_epochs:
            yield from self._train_epoch(source, max_epochs)
            yield self._finish_epoch(max_epochs, validation)
            yield from self._take_notices()
            if self._recorder is not None:  # write the checkpoint of the epoch if one is due or a stop is requested
                due = self._recorder.is_due(self._training.windows, epoch_end=True)
                requests = self._gather_requests(StepRequests(stop=self._signals.requested, save=due))
                if requests.has_any:
                    yield from self._handle_requests(requests, epoch_end=True)

    def validate(self, score: Callable[[Sample], Loss], source: Source[Sample] | DataLoader[Any]) -> ValidationReport:
        """Score a source in evaluation and inference mode, each batch weighted by its count.

        In a group, every process must call it, and each scores its share of the batches. If the weights are averaged,
        the average is scored. Every call draws the same random numbers and leaves the generators of the training
        unchanged.

        Raises:
            ContractError: The score function did not return a valid `Loss`.
            EmptyTargetError: The source has no target.
            NonFiniteError: The score is not finite, and the settings do not tolerate it.
            OutOfMemoryError: Memory ran out and smaller micro-batches are not possible.
        """
        source = self._wrap_source(source)
        check_source(source)
        started, scorer = perf_counter(), self._parts.scorer
        limit = scorer.cutter.limit
        group = self.group
        self._broadcast_buffers()
        with evaluation_mode(self._parts.settings.trained.values()), self._use_averages():
            order = self._training.order_seed
            batches = partial(read_batches, source, 0, start=group.rank, step=group.size, seed=order)
            seed = derive_seed(order, group.rank)
            total = group.merge_means(scorer.score(score, batches, self._training.epoch, seed=seed))
        if scorer.cutter.limit != limit:
            self._notices.append(make_validation_shortage_notice(scorer.cutter.limit))
        if not total.count:
            raise EmptyTargetError("the validation has no target: its source is empty or every count is 0")
        self._parts.score_guard.note(total.mean())
        return ValidationReport(
            mean=total.mean(), parts=total.parts(), count=total.count, seconds=perf_counter() - started
        )

    def stalled(self, value: float, *, patience: int) -> bool:
        """Record a value, lower is better, and return whether the last `patience` values brought no improvement.

        In a group, every process must call it. Rank 0's value counts, so that all processes stop together. A value
        that is not finite is not an improvement.

        Raises:
            NonFiniteError: The value is not finite, and the loop has `nonfinite="raise"`.
        """
        with self._use_averages():
            self.best.record(self.group.gather(value)[0])
        return self.best.stale >= patience

    def restore_best(self) -> None:
        """Load the weights of the best recorded value into the modules; these are averages if weights are averaged.

        A moving average restarts from them, so that a validation scores the restored weights.

        Raises:
            NoBestWeightsError: No finite value was recorded.
        """
        self.best.restore()
        for average in self._list_averages():
            average.restart()

    def use_average(self) -> None:
        """Replace the weights by their moving average permanently; do nothing without one."""
        for average in self._list_averages():
            average.copy_to_parameters()

    def _wrap_source(self, batches: Source[Sample] | DataLoader[Any]) -> Source[Sample]:
        if not isinstance(batches, DataLoader):
            return batches
        if batches not in self._loaded:
            self._loaded[batches] = IterableSource(batches)
        return self._loaded[batches]

    def _take_notices(self) -> Iterator[TrainingNotice]:
        while self._notices:
            yield self._notices.pop(0)

    def _train_epoch(self, train: Source[Batch], max_epochs: int) -> Iterator[Report]:
        """Train on the remaining windows of the epoch."""
        epoch_totals = self._training.epoch_totals
        self._check_order(train)
        length = self.group.agree_on_length(train.length)
        total = None if length is None else -(-length // (self._parts.settings.accumulate * self.group.size))
        for module in self._parts.settings.trained.values():
            module.train()
        # Frozen modules come last, because they may be parts of trained ones.
        for module in self._parts.settings.frozen.values():
            module.eval()
        windows = time_windows(
            self._read_windows(train, total),
            lambda: f"the reading of epoch {self._training.epoch}, window {epoch_totals.windows}",
        )
        for window, waited in windows:
            started = perf_counter()
            results, requests = self._train_window(window, total, max_epochs, waited)
            epoch_totals.add(results, seconds=perf_counter() - started + waited, data_seconds=waited)
            yield from [report for report, _ in results]
            if self._notices:
                yield from self._take_notices()
            if requests.has_any:
                yield from self._handle_requests(requests, epoch_end=False)
        if not epoch_totals.windows:
            raise EmptyTargetError(f"the source has no batch in epoch {self._training.epoch}")
        for phase in self._phases:
            phase.guard.check_epoch()

    def _check_order(self, train: Source[Batch]) -> None:
        """Record the order of samples at the start of an epoch, or check it when the epoch is resumed."""
        training = self._training
        if self._recorder is None:
            return
        now = hash_order(train, training.epoch, seed=training.order_seed)
        if training.epoch_totals.windows and training.order not in ("", now):
            raise ResumeMismatchError(
                f"the samplers give epoch {training.epoch + 1} a different order than before the interruption, so some "
                "samples would be read twice and others not at all: the order depends on more than seed and epoch, "
                "such as weights that the training changes. Change these only between epochs, or use "
                "LiveSource(loader), which continues with the next batches"
            )
        training.order = now

    def _read_windows(self, train: Source[Batch], total: int | None) -> Iterator[tuple[Batch, ...]]:
        """Return the remaining windows of the epoch; in a group, every process gets the same number."""
        size, window_count, group = self._parts.settings.accumulate, self._training.epoch_totals.windows, self.group
        batches = read_batches(
            train,
            self._training.epoch,
            start=window_count * size * group.size + group.rank,
            step=group.size,
            seed=self._training.order_seed,
        )
        remaining = windows(batches, size, None if group.size == 1 or total is None else total - window_count)
        return self._parts.feeder.windows(remaining, ahead=can_read_ahead(train))

    def _train_window(
        self, window: tuple[Batch, ...], total: int | None, max_epochs: int, waited: float
    ) -> tuple[list[PhaseResult], StepRequests]:
        """Run all phases that are due."""
        training, shared_forwards = self._training, self._parts.shared.values()
        number, window_index = training.windows + 1, training.epoch_totals.windows
        ask = partial(self._find_requests, number, last=window_index + 1 == total)
        due = [phase for phase in self._phases if phase.phase.is_due(number)]
        requests, results = NO_REQUESTS, list[PhaseResult]()
        for shared in shared_forwards:
            shared.begin([phase.phase.name for phase in due])
        try:
            for phase in due:
                started, shortages = perf_counter(), phase.accumulator.shortages
                position = Position(phase.phase.name, training.epoch, window_index, window)
                outcome = phase.step(window, position, ask)
                requests = requests.merge(outcome.requests)
                report = StepReport(
                    phase=phase.phase.name,
                    epoch=training.epoch,
                    epochs=max_epochs,
                    window=window_index,
                    windows=total,
                    step=phase.steps,
                    loss=outcome.loss.mean(),
                    parts=outcome.loss.parts(),
                    count=outcome.loss.count,
                    grad_norm=outcome.norm,
                    learning_rate=outcome.learning_rate,
                    stepped=outcome.stepped,
                    loss_scale=outcome.loss_scale,
                    micro_batch_limit=phase.cutter.limit,
                    shortages=phase.accumulator.shortages - shortages,
                    seconds=perf_counter() - started,
                    data_seconds=waited,
                    zero_gradient=outcome.zero_gradient,
                )
                if report.shortages:
                    self._notices.append(make_shortage_notice(report, self._parts.coupled))
                results.append((report, outcome.loss))
        finally:
            for shared in shared_forwards:
                shared.end()
        training.windows = number
        if not results:  # requests travel with the gradients, and no phase has exchanged any
            requests = self._gather_requests(ask())
        return results, requests

    def _finish_epoch(self, max_epochs: int, validation: Validation[Sample] | None) -> EpochReport:
        """Validate after an epoch and record its report."""
        started, training = perf_counter(), self._training
        epoch_totals = training.epoch_totals
        self._broadcast_buffers()
        validation_loss = None if validation is None else self.validate(validation.score, validation.source)
        report = EpochReport(
            epoch=training.epoch,
            epochs=max_epochs,
            windows=epoch_totals.windows,
            phases=epoch_totals.totals({phase.phase.name: phase.steps for phase in self._phases}),
            validation=validation_loss,
            seconds=epoch_totals.seconds + perf_counter() - started,
            data_seconds=epoch_totals.data_seconds,
            peak_bytes=measure_peak_bytes(self._parts.settings.device),
        )
        training.complete_epoch(report)
        return report

    def _find_requests(self, number: int, *, last: bool) -> StepRequests:
        """Return what this process requests after a window; no checkpoint is due after the last one of an epoch.

        It is called at the end of each phase's backward, so that the requests travel to the other processes with the
        gradients. Without a request, the next window is read while the GPU computes.
        """
        recorder, stop = self._recorder, self._signals.requested
        save = recorder is not None and not last and recorder.is_due(number)
        if save or stop:
            return StepRequests(stop=stop, save=save)
        self._parts.feeder.prefetch()
        return NO_REQUESTS

    def _gather_requests(self, requests: StepRequests) -> StepRequests:
        return reduce(StepRequests.merge, self.group.gather(requests), NO_REQUESTS)

    def _handle_requests(
        self, requests: StepRequests, *, epoch_end: bool
    ) -> Iterator[CheckpointReport | TrainingNotice]:
        """Write a checkpoint, and raise `StoppedError` if a stop is requested."""
        recorder = self._recorder
        self._broadcast_buffers()
        report = None if recorder is None else recorder.save(epoch_end=epoch_end)
        if report is not None:
            yield report
        if requests.stop:
            raise StoppedError(describe_stop(requests.stop, report), signal=requests.stop)

    def _broadcast_buffers(self) -> None:
        """Copy rank 0's buffers to all processes, because each process changes them with different batches."""
        if self.group.size > 1:
            tensors = list_named_tensors(self._parts.settings.trained).values()
            self.group.broadcast(tensor for tensor in tensors if not isinstance(tensor, Parameter))

    @contextmanager
    def _use_averages(self) -> Generator[None]:
        """Replace the weights by their averages, if any, inside the context."""
        with ExitStack() as stack:
            for average in self._list_averages():
                stack.enter_context(average.applied())
            yield

    def _list_averages(self) -> Iterator[AveragedWeights]:
        return (average for phase in self._phases for average in phase.averages)


def time_windows(
    windows: Iterator[tuple[Batch, ...]], describe_position: Callable[[], str]
) -> Iterator[tuple[tuple[Batch, ...], float]]:
    """Yield every window with the seconds spent waiting for it, and add the position to errors of the source."""
    while True:
        started = perf_counter()
        try:
            window = next(windows, None)
        except BaseException as error:
            add_position(error, describe_position())
            raise
        if window is None:
            return
        yield window, perf_counter() - started
