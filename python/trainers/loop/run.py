"""A training that is running: epochs, validation, early stopping, checkpoints."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from time import perf_counter
from typing import Generic, TypeVar, final

import torch
from torch import nn

from trainers.loop.checkpoint.recorder import Recorder
from trainers.loop.checkpoint.stop import StopSignals
from trainers.loop.data.feeding import Feeder, foreseeable
from trainers.loop.data.reading import Placed, order_digest, read_apart, remarks
from trainers.loop.data.sources import Source, check_source
from trainers.loop.device.memory import peak_bytes
from trainers.loop.device.seeding import mixed
from trainers.loop.errors import EmptyTargetError, ResumeMismatchError, StoppedError
from trainers.loop.group.group import Group, Requests
from trainers.loop.ledger import Worked
from trainers.loop.loss import Loss
from trainers.loop.notices import farewell, shortage, validation_shortage
from trainers.loop.reports import CheckpointReport, EpochReport, Notice, Report, ValidationReport, WindowReport
from trainers.loop.standing import Standing
from trainers.loop.validation import ScoreGuard, Scorer, Validation, evaluating
from trainers.loop.weights.copies import Average, Best
from trainers.loop.weights.named import kept_buffers
from trainers.loop.window.accumulation import windows
from trainers.loop.window.phase_run import PhaseRun
from trainers.loop.window.position import Position
from trainers.loop.window.sharing import SharedForward

Batch = TypeVar("Batch")
Sample = TypeVar("Sample")

NO_WISHES = Requests()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup(Generic[Batch]):
    """The parts of a run.

    Attributes:
        phases: Worked in this order.
        trained: The trained modules by name.
        frozen: The others.
        device: Where everything is.
        accumulate: Batches of this process in a window.
        group: The processes that train together.
        scorer: Scores sources.
        score_guard: Watches what validations come to.
        feeder: Brings batches to the device.
        best: The best value so far and its weights.
        standing: How far the training has come.
        signals: Whether it is asked to stop.
        coupled: The layers that mix the samples of a batch.
        recorder: Writes checkpoints; None for never.
        shared: The forwards that phases own and others may use.
    """

    phases: Sequence[PhaseRun[Batch]]
    trained: Mapping[str, nn.Module]
    frozen: Sequence[nn.Module]
    device: torch.device
    accumulate: int
    group: Group
    scorer: Scorer
    score_guard: ScoreGuard
    feeder: Feeder
    best: Best
    standing: Standing
    signals: StopSignals
    coupled: Sequence[str]
    recorder: Recorder | None
    shared: Sequence[SharedForward[Batch]]


@final
class Run(Generic[Batch]):
    """A training that is running; `Loop.running()` makes it.

    Attributes:
        best: The best value recorded by `stalled` and its weights.
        group: The processes that train together; the first one has rank 0.
    """

    def __init__(self, setup: Setup[Batch], notices: Sequence[Notice]) -> None:
        self._setup = setup
        self._phases = setup.phases
        self._standing = setup.standing
        self._notices = list(notices)
        self.best = setup.best
        self.group = setup.group

    @property
    def epoch(self) -> int:
        """Epochs that are complete."""
        return self._standing.epoch

    @property
    def windows(self) -> int:
        """Windows of the training that were worked, those before a resumption included."""
        return self._standing.windows

    @property
    def history(self) -> tuple[EpochReport, ...]:
        """The reports of all complete epochs, those before a resumption included."""
        return tuple(self._standing.history)

    def epochs(
        self, train: Source[Batch], *, max_epochs: int, validation: Validation[Sample] | None = None
    ) -> Iterator[Report]:
        """Train, and report every window of every phase and then every epoch.

        Nothing happens between two reports, so leaving the `for` loop ends the training. Called again, it goes on after
        the last window that was worked. What is recorded while an epoch's report is handled is part of the checkpoint
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
        yield from self._told()
        while self._standing.epoch < max_epochs:
            yield from self._epoch(train, max_epochs)
            yield self._complete(max_epochs, validation)
            yield from self._told()
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
        started, scorer = perf_counter(), self._setup.scorer
        limit = scorer.limit
        group = self.group
        self._share_buffers()
        with evaluating(self._setup.trained.values()), self._averaged():
            order = self._standing.order_seed
            own = partial(read_apart, source, 0, start=group.rank, step=group.size, seed=order)
            seed = mixed(order, group.rank)
            total = group.total(scorer.total(score, own, self._standing.epoch, seed=seed))
        if scorer.limit != limit:
            self._notices.append(validation_shortage(scorer.limit))
        if not total.count:
            raise EmptyTargetError("the validation has no target: its source is empty or every count is 0")
        self._setup.score_guard.note(total.mean())
        return ValidationReport(
            mean=total.mean(), parts=total.parts(), count=total.count, seconds=perf_counter() - started
        )

    def stalled(self, value: float, *, patience: int) -> bool:
        """Record a value, lower being better, and tell whether the last `patience` values brought no new best.

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

        An average begins anew from them, so that a validation scores what was restored.

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
        """Note how the source will be read, and that all processes read the same.

        Raises:
            ContractError: It is no source.
            ParallelismError: The order of a loader is not the same everywhere.
        """
        check_source(train)
        standing, group = self._standing, self.group
        found = remarks(train, epoch=standing.epoch, window=standing.ledger.windows, processes=group.size)
        self._notices.extend(Notice(message=message) for message in found)
        if group.size > 1:
            digest = order_digest(train, standing.epoch, seed=standing.order_seed)
            group.check_same("the order of the loader's batches", digest)

    def _told(self) -> Iterator[Notice]:
        """What has happened and was not told yet."""
        while self._notices:
            yield self._notices.pop(0)

    def _epoch(self, train: Source[Batch], max_epochs: int) -> Iterator[Report]:
        """The rest of the epoch's windows."""
        ledger = self._standing.ledger
        self._check_order(train)
        length = self.group.agreed_length(train.length)
        total = None if length is None else -(-length // (self._setup.accumulate * self.group.size))
        self._set_modes()
        for window, waited in timed(self._windows(train, total), self._reading):
            started = perf_counter()
            worked, wishes = self._work(window, total, max_epochs, waited)
            ledger.add(worked, seconds=perf_counter() - started + waited, data_seconds=waited)
            yield from [report for report, _ in worked]
            if self._notices:
                yield from self._told()
            if wishes.any:
                yield from self._fulfil(wishes, epoch_end=False)
        if not ledger.windows:
            raise EmptyTargetError(f"the source gave no batch in epoch {self._standing.epoch}")
        for phase in self._phases:
            phase.guard.check_epoch()

    def _check_order(self, train: Source[Batch]) -> None:
        """Note the order that an epoch begins with, and check that it goes on with the same.

        Raises:
            ResumeMismatchError: A sampler gives another one now.
        """
        standing = self._standing
        if self._setup.recorder is None:
            return
        now = order_digest(train, standing.epoch, seed=standing.order_seed)
        if standing.ledger.windows and standing.order not in ("", now):
            raise ResumeMismatchError(
                f"the samplers give epoch {standing.epoch + 1} another order than it was begun with, so that going on "
                "would read some samples twice and others not at all: the order depends on more than seed and epoch, "
                "such as weights that the training changes. Let them change between epochs only, or give "
                "LiveSource(loader), which goes on with what comes next"
            )
        standing.order = now

    def _reading(self) -> str:
        """What is being read, for errors."""
        return f"the reading of epoch {self._standing.epoch}, window {self._standing.ledger.windows}"

    def _windows(self, train: Source[Batch], total: int | None) -> Iterator[tuple[Batch, ...]]:
        """The windows of the epoch that are still to be worked; in a group, as many as the others have."""
        size, done, group = self._setup.accumulate, self._standing.ledger.windows, self.group
        batches = read_apart(
            train,
            self._standing.epoch,
            start=done * size * group.size + group.rank,
            step=group.size,
            seed=self._standing.order_seed,
        )
        found = windows(batches, size, None if group.size == 1 or total is None else total - done)
        return self._setup.feeder.windows(found, ahead=foreseeable(train))

    def _work(
        self, window: tuple[Batch, ...], total: int | None, max_epochs: int, waited: float
    ) -> tuple[list[Worked], Requests]:
        """All phases that are due, before the first of their reports is handed out."""
        standing = self._standing
        number, last = standing.windows + 1, standing.ledger.windows + 1 == total
        wishes, worked = NO_WISHES, list[Worked]()
        for shared in self._setup.shared:
            shared.begin([phase.phase.name for phase in self._phases if phase.phase.is_due(number)])
        try:
            for phase in self._phases:
                if not phase.phase.is_due(number):
                    continue
                started, shortages = perf_counter(), phase.accumulator.shortages
                position = Position(phase.phase.name, standing.epoch, standing.ledger.windows, window)
                outcome = phase.work(window, position, partial(self._wishes, number, last=last))
                wishes = wishes.and_those(outcome.wishes)
                report = WindowReport(
                    phase=phase.phase.name,
                    epoch=standing.epoch,
                    epochs=max_epochs,
                    window=standing.ledger.windows,
                    windows=total,
                    step=phase.step,
                    loss=outcome.loss.mean(),
                    parts=outcome.loss.parts(),
                    count=outcome.loss.count,
                    grad_norm=outcome.norm,
                    learning_rate=outcome.learning_rate,
                    stepped=outcome.stepped,
                    loss_scale=outcome.loss_scale,
                    micro=phase.cutter.limit,
                    shortages=phase.accumulator.shortages - shortages,
                    seconds=perf_counter() - started,
                    data_seconds=waited,
                    zero_gradient=outcome.zero_gradient,
                )
                if report.shortages:
                    self._notices.append(shortage(report, self._setup.coupled))
                worked.append((report, outcome.loss))
        finally:
            for shared in self._setup.shared:
                shared.end()
        standing.windows = number
        if not worked:  # no gradients have told the others
            wishes = self._agreed(self._wishes(number, last=last))
        return worked, wishes

    def _complete(self, max_epochs: int, validation: Validation[Sample] | None) -> EpochReport:
        """Score the epoch and close it."""
        started, standing = perf_counter(), self._standing
        ledger = standing.ledger
        self._share_buffers()
        scored = None if validation is None else self.validate(validation.score, validation.source)
        report = EpochReport(
            epoch=standing.epoch,
            epochs=max_epochs,
            windows=ledger.windows,
            phases=ledger.totals({phase.phase.name: phase.step for phase in self._phases}),
            validation=scored,
            seconds=ledger.seconds + perf_counter() - started,
            data_seconds=ledger.data_seconds,
            peak_bytes=peak_bytes(self._setup.device),
        )
        standing.complete(report)
        return report

    def _wishes(self, number: int, *, last: bool) -> Requests:
        """What this process wants to happen after the window of a number; after the last, the epoch's end is better.

        Asked at the end of each phase's backward, so that the other processes hear of it with the gradients; where
        there is nothing to wish for, the next window is read while a GPU computes.
        """
        recorder, stop = self._setup.recorder, self._setup.signals.requested
        save = recorder is not None and not last and recorder.is_due(number)
        if save or stop:
            return Requests(stop=stop, save=save)
        self._setup.feeder.look_ahead()
        return NO_WISHES

    def _agreed(self, own: Requests) -> Requests:
        """What any process wants."""
        return reduce(Requests.and_those, self.group.gather(own), NO_WISHES)

    def _fulfil(self, wishes: Requests, *, epoch_end: bool) -> Iterator[CheckpointReport | Notice]:
        """Write a checkpoint, and stop if that is wanted.

        Raises:
            StoppedError: It is.
        """
        recorder = self._setup.recorder
        self._share_buffers()
        report = None if recorder is None else recorder.save(epoch_end=epoch_end)
        if report is not None and recorder is not None:
            yield report
            yield from recorder.outgrown()
        if wishes.stop:
            raise StoppedError(farewell(wishes.stop, report), signal=wishes.stop)

    def _recorded(self) -> Iterator[CheckpointReport | Notice]:
        """The checkpoint of an epoch's end, where one is due or the training is to stop.

        Raises:
            StoppedError: It is.
        """
        recorder = self._setup.recorder
        if recorder is None:
            return
        due = recorder.is_due(self._standing.windows, epoch_end=True)
        wishes = self._agreed(Requests(stop=self._setup.signals.requested, save=due))
        if wishes.any:
            yield from self._fulfil(wishes, epoch_end=True)

    def _share_buffers(self) -> None:
        """Give every process the first one's buffers, which each has changed by its own batches."""
        if self.group.size > 1:
            self.group.spread(kept_buffers(self._setup.trained))

    def _set_modes(self) -> None:
        """Frozen modules come last, because they may be parts of trained ones."""
        for module in self._setup.trained.values():
            module.train()
        for module in self._setup.frozen:
            module.eval()

    @contextmanager
    def _averaged(self) -> Generator[None]:
        """The averages in the place of the weights, where there are any."""
        with ExitStack() as stack:
            for average in self._averages():
                stack.enter_context(average.applied())
            yield

    def _averages(self) -> Iterator[Average]:
        return (average for phase in self._phases for average in phase.averages)


def timed(windows: Iterator[tuple[Batch, ...]], place: Callable[[], str]) -> Iterator[tuple[tuple[Batch, ...], float]]:
    """Every window with the seconds it was waited for; an error of the source is told where it was."""
    placed = Placed(place)
    while True:
        started = perf_counter()
        with placed:
            window = next(windows, None)
        if window is None:
            return
        yield window, perf_counter() - started
