"""A training run: epochs, validation, early stopping and checkpoints."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from time import perf_counter
from typing import Generic, TypeVar, final

from trainers.loop.checkpoint.recorder import Recorder
from trainers.loop.data.sources import Source, check_source, order_digest, read_apart, remarks
from trainers.loop.data.transfer import foreseeable
from trainers.loop.device import mixed, peak_bytes
from trainers.loop.errors import EmptyTargetError, ResumeMismatchError, StoppedError
from trainers.loop.group.group import WindowRequests
from trainers.loop.loss import Loss
from trainers.loop.reports import (
    CheckpointReport,
    EpochReport,
    Report,
    TrainingNotice,
    ValidationReport,
    farewell,
    shortage,
    validation_shortage,
)
from trainers.loop.run_parts import RunParts
from trainers.loop.training_state import PhaseResult
from trainers.loop.validation import Validation, evaluating
from trainers.loop.weights.initial_weights import kept_buffers
from trainers.loop.weights.weight_copies import AveragedWeights
from trainers.loop.window.accumulation import windows
from trainers.loop.window.position import Position, add_place

Batch = TypeVar("Batch")
Sample = TypeVar("Sample")

NO_REQUESTS = WindowRequests()


@final
class TrainingRun(Generic[Batch]):
    """A training that is running; `Loop.running()` makes it.

    Attributes:
        best: The best value recorded by `stalled` and its weights.
        group: The processes that train together; the first one has rank 0.
    """

    def __init__(self, parts: RunParts[Batch], recorder: Recorder | None, notices: Sequence[TrainingNotice]) -> None:
        self._parts = parts
        self._recorder = recorder
        self._phases = parts.phases
        self._training = parts.training
        self._notices = list(notices)
        self.best = parts.best
        self.group = parts.group

    @property
    def epoch(self) -> int:
        """Epochs that are complete."""
        return self._training.epoch

    @property
    def windows(self) -> int:
        """Windows of the training that are done, those before a resume included."""
        return self._training.windows

    @property
    def history(self) -> tuple[EpochReport, ...]:
        """The reports of all complete epochs, those before a resume included."""
        return tuple(self._training.history)

    def epochs(
        self, train: Source[Batch], *, max_epochs: int, validation: Validation[Sample] | None = None
    ) -> Iterator[Report]:
        """Train, and report every window of every phase and then every epoch.

        Nothing happens between two reports, so leaving the `for` loop ends the training. Called again, it goes on after
        the last window that was done. What is recorded while an epoch's report is handled is part of the checkpoint
        after it.

        Args:
            train: The batches of every epoch; in a group of processes each takes its share of them.
            max_epochs: Epochs in all, those already complete included.
            validation: Scored after every epoch; its report is part of the epoch's.

        Raises:
            StoppedError: A signal asked for it; a checkpoint was written if there is a folder for it.
            LoopError: One of its other kinds, naming phase, epoch, window and batch shapes.
        """
        self._look_at(train)
        scored = "no validation" if validation is None else "a validation"
        self.group.check_same("the length of the training and its validation", f"{max_epochs} epochs, {scored}")
        yield from self._pending_notices()
        while self._training.epoch < max_epochs:
            yield from self._epoch(train, max_epochs)
            yield self._complete(max_epochs, validation)
            yield from self._pending_notices()
            yield from self._recorded()

    def validate(self, score: Callable[[Sample], Loss], source: Source[Sample]) -> ValidationReport:
        """The score over a source, each batch weighted by its count, in evaluation and inference mode.

        In a group every process calls it and scores its share of the batches.

        Where weights are averaged, it is the average that is scored. Random numbers are the same every time, and the
        training goes on as if none had been drawn.

        Raises:
            ContractError: The score function returned no proper `Loss`.
            EmptyTargetError: The source has no target.
            NonFiniteError: The score is infinite or not a number, and that is not, or no longer, tolerated.
            OutOfMemoryError: Memory ran out and smaller pieces are not possible.
        """
        check_source(source)
        started, scorer = perf_counter(), self._parts.scorer
        limit = scorer.cutter.limit
        group = self.group
        self._share_buffers()
        with evaluating(self._parts.settings.trained.values()), self._averaged():
            order = self._training.order_seed
            own = partial(read_apart, source, 0, start=group.rank, step=group.size, seed=order)
            seed = mixed(order, group.rank)
            total = group.total(scorer.total(score, own, self._training.epoch, seed=seed))
        if scorer.cutter.limit != limit:
            self._notices.append(validation_shortage(scorer.cutter.limit))
        if not total.count:
            raise EmptyTargetError("the validation has no target: its source is empty or every count is 0")
        self._parts.score_guard.note(total.mean())
        return ValidationReport(
            mean=total.mean(), parts=total.parts(), count=total.count, seconds=perf_counter() - started
        )

    def stalled(self, value: float, *, patience: int) -> bool:
        """Record a value, lower being better, and say whether the last `patience` values brought no new best.

        In a group every process calls it, and the first one's value counts, so that all of them stop together. A value
        that is not finite is no new best.

        Raises:
            NonFiniteError: The value is not finite, and the loop has `nonfinite="raise"`.
        """
        with self._averaged():
            self.best.record(self.group.gather(value)[0])
        return self.best.stale >= patience

    def restore_best(self) -> None:
        """Put the weights of the best recorded value back into the modules, those of the average if there is one.

        An average starts again from them, so that a validation scores what was restored.

        Raises:
            NoBestWeightsError: No value was recorded that is finite.
        """
        self.best.restore()
        for average in self._averages():
            average.restart()

    def use_average(self) -> None:
        """Put the moving average of the weights into the modules for good; without one, nothing happens."""
        for average in self._averages():
            average.settle()

    def _look_at(self, train: Source[Batch]) -> None:
        """Note how the source will be read, and check that all processes read the same."""
        check_source(train)
        training, group = self._training, self.group
        messages = remarks(train, epoch=training.epoch, window=training.epoch_totals.windows, processes=group.size)
        self._notices.extend(TrainingNotice(message=message) for message in messages)
        if group.size > 1:
            digest = order_digest(train, training.epoch, seed=training.order_seed)
            group.check_same("the order of the loader's batches", digest)

    def _pending_notices(self) -> Iterator[TrainingNotice]:
        """What was not reported yet."""
        while self._notices:
            yield self._notices.pop(0)

    def _epoch(self, train: Source[Batch], max_epochs: int) -> Iterator[Report]:
        """The rest of the epoch's windows."""
        epoch_totals = self._training.epoch_totals
        self._check_order(train)
        length = self.group.agreed_length(train.length)
        total = None if length is None else -(-length // (self._parts.settings.accumulate * self.group.size))
        self._set_modes()
        for window, waited in timed(self._windows(train, total), self._reading):
            started = perf_counter()
            worked, requests = self._work(window, total, max_epochs, waited)
            epoch_totals.add(worked, seconds=perf_counter() - started + waited, data_seconds=waited)
            yield from [report for report, _ in worked]
            if self._notices:
                yield from self._pending_notices()
            if requests.any:
                yield from self._fulfil(requests, epoch_end=False)
        if not epoch_totals.windows:
            raise EmptyTargetError(f"the source gave no batch in epoch {self._training.epoch}")
        for phase in self._phases:
            phase.guard.check_epoch()

    def _check_order(self, train: Source[Batch]) -> None:
        """Record the order of samples at the start of an epoch, and check it when the epoch is resumed."""
        training = self._training
        if self._recorder is None:
            return
        now = order_digest(train, training.epoch, seed=training.order_seed)
        if training.epoch_totals.windows and training.order not in ("", now):
            raise ResumeMismatchError(
                f"the samplers give epoch {training.epoch + 1} another order than it was begun with, so that going on "
                "would read some samples twice and others not at all: the order depends on more than seed and epoch, "
                "such as weights that the training changes. Let them change between epochs only, or give "
                "LiveSource(loader), which goes on with what comes next"
            )
        training.order = now

    def _reading(self) -> str:
        """What is being read, for errors."""
        return f"the reading of epoch {self._training.epoch}, window {self._training.epoch_totals.windows}"

    def _windows(self, train: Source[Batch], total: int | None) -> Iterator[tuple[Batch, ...]]:
        """The windows of the epoch that are left; in a group, as many as the others have."""
        size, done, group = self._parts.settings.accumulate, self._training.epoch_totals.windows, self.group
        batches = read_apart(
            train,
            self._training.epoch,
            start=done * size * group.size + group.rank,
            step=group.size,
            seed=self._training.order_seed,
        )
        read = windows(batches, size, None if group.size == 1 or total is None else total - done)
        return self._parts.feeder.windows(read, ahead=foreseeable(train))

    def _work(
        self, window: tuple[Batch, ...], total: int | None, max_epochs: int, waited: float
    ) -> tuple[list[PhaseResult], WindowRequests]:
        """All phases that are due, before the first of their reports is handed out."""
        training, shared_forwards = self._training, self._parts.shared
        number, done = training.windows + 1, training.epoch_totals.windows
        ask = partial(self._requests, number, last=done + 1 == total)
        due = [phase for phase in self._phases if phase.phase.is_due(number)]
        requests, worked = NO_REQUESTS, list[PhaseResult]()
        for shared in shared_forwards:
            shared.begin([phase.phase.name for phase in due])
        try:
            for phase in due:
                started, shortages = perf_counter(), phase.accumulator.shortages
                position = Position(phase.phase.name, training.epoch, done, window)
                outcome = phase.step(window, position, ask)
                requests = requests.and_those(outcome.requests)
                report = phase.report(
                    outcome,
                    position,
                    epochs=max_epochs,
                    windows=total,
                    shortages=phase.accumulator.shortages - shortages,
                    seconds=perf_counter() - started,
                    data_seconds=waited,
                )
                if report.shortages:
                    self._notices.append(shortage(report, self._parts.coupled))
                worked.append((report, outcome.loss))
        finally:
            for shared in shared_forwards:
                shared.end()
        training.windows = number
        if not worked:  # no gradients have told the others
            requests = self._agreed(ask())
        return worked, requests

    def _complete(self, max_epochs: int, validation: Validation[Sample] | None) -> EpochReport:
        """Score the epoch and close it."""
        started, training = perf_counter(), self._training
        epoch_totals = training.epoch_totals
        self._share_buffers()
        scored = None if validation is None else self.validate(validation.score, validation.source)
        report = EpochReport(
            epoch=training.epoch,
            epochs=max_epochs,
            windows=epoch_totals.windows,
            phases=epoch_totals.totals({phase.phase.name: phase.steps for phase in self._phases}),
            validation=scored,
            seconds=epoch_totals.seconds + perf_counter() - started,
            data_seconds=epoch_totals.data_seconds,
            peak_bytes=peak_bytes(self._parts.settings.device),
        )
        training.complete(report)
        return report

    def _requests(self, number: int, *, last: bool) -> WindowRequests:
        """What this process asks for after the window of a number; after the last, the epoch's end is better.

        Asked at the end of each phase's backward, so that the other processes hear of it with the gradients; where
        there is nothing to ask for, the next window is read while a GPU computes.
        """
        recorder, stop = self._recorder, self._parts.signals.requested
        save = recorder is not None and not last and recorder.is_due(number)
        if save or stop:
            return WindowRequests(stop=stop, save=save)
        self._parts.feeder.look_ahead()
        return NO_REQUESTS

    def _agreed(self, own: WindowRequests) -> WindowRequests:
        """The requests of all processes."""
        return reduce(WindowRequests.and_those, self.group.gather(own), NO_REQUESTS)

    def _fulfil(self, requests: WindowRequests, *, epoch_end: bool) -> Iterator[CheckpointReport | TrainingNotice]:
        """Write a checkpoint, and stop by a `StoppedError` if that is requested."""
        recorder = self._recorder
        self._share_buffers()
        report = None if recorder is None else recorder.save(epoch_end=epoch_end)
        if report is not None and recorder is not None:
            yield report
            yield from recorder.outgrown()
        if requests.stop:
            raise StoppedError(farewell(requests.stop, report), signal=requests.stop)

    def _recorded(self) -> Iterator[CheckpointReport | TrainingNotice]:
        """The checkpoint of an epoch's end, where one is due or the training is to stop."""
        recorder = self._recorder
        if recorder is None:
            return
        due = recorder.is_due(self._training.windows, epoch_end=True)
        requests = self._agreed(WindowRequests(stop=self._parts.signals.requested, save=due))
        if requests.any:
            yield from self._fulfil(requests, epoch_end=True)

    def _share_buffers(self) -> None:
        """Give every process the first one's buffers, which each has changed by its own batches."""
        if self.group.size > 1:
            self.group.spread(kept_buffers(self._parts.settings.trained))

    def _set_modes(self) -> None:
        """Frozen modules come last, because they may be parts of trained ones."""
        for module in self._parts.settings.trained.values():
            module.train()
        for module in self._parts.settings.frozen.values():
            module.eval()

    @contextmanager
    def _averaged(self) -> Generator[None]:
        """The averages in the place of the weights, where there are any."""
        with ExitStack() as stack:
            for average in self._averages():
                stack.enter_context(average.applied())
            yield

    def _averages(self) -> Iterator[AveragedWeights]:
        return (average for phase in self._phases for average in phase.averages)


def timed(windows: Iterator[tuple[Batch, ...]], place: Callable[[], str]) -> Iterator[tuple[tuple[Batch, ...], float]]:
    """Every window with the seconds it was waited for; an error of the source says where it happened."""
    while True:
        started = perf_counter()
        try:
            window = next(windows, None)
        except BaseException as error:
            add_place(error, place())
            raise
        if window is None:
            return
        yield window, perf_counter() - started
