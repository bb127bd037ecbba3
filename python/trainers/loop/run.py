"""A training that is running: epochs, validation, early stopping."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Generic, TypeVar, final

import torch
from torch import nn

from trainers.loop.data.sources import Source
from trainers.loop.data.tree import move
from trainers.loop.errors import EmptyTargetError
from trainers.loop.loss import Loss, Tally, check_loss, tally
from trainers.loop.machine.precision import Precision
from trainers.loop.phase import Phase
from trainers.loop.reports import EpochReport, PhaseTotals, Report, ValidationReport, WindowReport
from trainers.loop.weights.best import Best
from trainers.loop.window.accumulation import Accumulator, windows
from trainers.loop.window.guards import GradientGuard, check_finite_score
from trainers.loop.window.position import Position
from trainers.loop.window.update import Outcome, Update

Batch = TypeVar("Batch")
Sample = TypeVar("Sample")


@dataclass(frozen=True)  # no slots: with them, Validation[Batch](…) fails in Python 3.11
class Validation(Generic[Sample]):
    """What to score after every epoch.

    Attributes:
        score: Computes the score of a batch that is on the device.
        source: The batches, read as epoch 0 each time.
    """

    score: Callable[[Sample], Loss]
    source: Source[Sample]


@dataclass(slots=True, kw_only=True)
class PhaseRun(Generic[Batch]):
    """A phase at work: its parts, and how many steps it has taken.

    Attributes:
        phase: What is trained.
        accumulator: Forward and backward of a window.
        update: The step at its end.
        guard: Watches the gradients.
        step: Steps taken so far.
    """

    phase: Phase[Batch]
    accumulator: Accumulator[Batch]
    update: Update
    guard: GradientGuard
    step: int = 0

    def work(self, window: tuple[Batch, ...], position: Position) -> Outcome:
        """Train on one window."""
        with position:
            outcome = self.update.apply(self.accumulator.run(window, position), window)
        self.step += outcome.stepped
        return outcome


@final
class Run(Generic[Batch]):
    """A training that is running; `Loop.running()` makes it.

    Attributes:
        best: The best value recorded by `stalled` and its weights.
        epoch: Epochs that are complete.
    """

    def __init__(
        self,
        phases: Sequence[PhaseRun[Batch]],
        *,
        trained: Mapping[str, nn.Module],
        frozen: Sequence[nn.Module],
        device: torch.device,
        precision: Precision,
        accumulate: int,
    ) -> None:
        self._phases = phases
        self._trained = trained
        self._frozen = frozen
        self._device = device
        self._precision = precision
        self._accumulate = accumulate
        self._windows = 0
        self.best = Best(trained)
        self.epoch = 0

    def epochs(
        self, train: Source[Batch], *, max_epochs: int, validation: Validation[Sample] | None = None
    ) -> Iterator[Report]:
        """Train, and report every window of every phase and then every epoch.

        Nothing happens between two reports, so leaving the `for` loop ends the training. Called again, it goes on after
        the last complete epoch.

        Args:
            train: The batches of every epoch.
            max_epochs: Epochs in all, those already complete included.
            validation: Scored after every epoch; its report is part of the epoch's.

        Raises:
            LoopError: One of its kinds, naming phase, epoch, window and batch shapes.
        """
        while self.epoch < max_epochs:
            yield from self._epoch(train, max_epochs, validation)

    def validate(self, score: Callable[[Sample], Loss], source: Source[Sample]) -> ValidationReport:
        """The score over a source, each batch weighted by its count, in evaluation and inference mode.

        Raises:
            ContractError: The score function returned no proper `Loss`.
            EmptyTargetError: The source has no target.
            NonFiniteError: The score is infinite or not a number.
        """
        started = perf_counter()
        losses: list[Loss] = []
        with evaluating(self._trained.values()), torch.inference_mode():
            for number, batch in enumerate(source.batches(0)):
                with Position("validation", self.epoch, number, (batch,)), self._autocast():
                    loss = check_loss(score(move(batch, self._device)))
                if loss.count:
                    losses.append(loss)
        if not losses:
            raise EmptyTargetError("the validation has no target: its source is empty or every count is 0")
        total, _ = tally(losses)
        check_finite_score(total.mean(), "the validation's mean")
        return ValidationReport(
            mean=total.mean(), parts=total.parts(), count=total.count, seconds=perf_counter() - started
        )

    def stalled(self, value: float, *, patience: int) -> bool:
        """Record a value, lower being better, and tell whether the last `patience` values brought no new best.

        Raises:
            NonFiniteError: The value is infinite or not a number.
        """
        self.best.record(value)
        return self.best.stale >= patience

    def restore_best(self) -> None:
        """Put the weights of the best recorded value back into the modules.

        Raises:
            NoBestWeightsError: No value was recorded.
        """
        self.best.restore()

    def _epoch(self, train: Source[Batch], max_epochs: int, validation: Validation[Sample] | None) -> Iterator[Report]:
        started = perf_counter()
        ledger = Ledger([phase.phase.name for phase in self._phases])
        total = None if train.length is None else -(-train.length // self._accumulate)
        self._set_modes()
        number = 0
        for number, (window, waited) in enumerate(timed(windows(train.batches(self.epoch), self._accumulate)), start=1):
            for report in self._window(window, number - 1, total, max_epochs, waited):
                ledger.add(report)
                yield report
        if not number:
            raise EmptyTargetError(f"the source gave no batch in epoch {self.epoch}")
        for phase in self._phases:
            phase.guard.check_all_used()
        scored = None if validation is None else self.validate(validation.score, validation.source)
        report = EpochReport(
            epoch=self.epoch,
            epochs=max_epochs,
            windows=number,
            phases=ledger.totals({phase.phase.name: phase.step for phase in self._phases}),
            validation=scored,
            seconds=perf_counter() - started,
        )
        self.epoch += 1
        yield report

    def _window(
        self, window: tuple[Batch, ...], number: int, total: int | None, max_epochs: int, waited: float
    ) -> list[WindowReport]:
        """All phases that are due, before the first of their reports is handed out."""
        self._windows += 1
        reports: list[WindowReport] = []
        for phase in self._phases:
            if self._windows % phase.phase.every:
                continue
            started = perf_counter()
            outcome = phase.work(window, Position(phase.phase.name, self.epoch, number, window))
            reports.append(
                WindowReport(
                    phase=phase.phase.name,
                    epoch=self.epoch,
                    epochs=max_epochs,
                    window=number,
                    windows=total,
                    step=phase.step,
                    loss=outcome.loss.mean(),
                    parts=outcome.loss.parts(),
                    count=outcome.loss.count,
                    grad_norm=outcome.norm,
                    learning_rate=outcome.learning_rate,
                    stepped=outcome.stepped,
                    loss_scale=outcome.loss_scale,
                    seconds=perf_counter() - started,
                    data_seconds=waited,
                )
            )
        return reports

    def _set_modes(self) -> None:
        """Frozen modules come last, because they may be parts of trained ones."""
        for module in self._trained.values():
            module.train()
        for module in self._frozen:
            module.eval()

    def _autocast(self) -> torch.autocast | nullcontext[None]:
        dtype = self._precision.dtype
        return nullcontext() if dtype is None else torch.autocast(self._device.type, dtype=dtype)


@final
class Ledger:
    """Adds the windows of an epoch up, phase by phase."""

    def __init__(self, names: Sequence[str]) -> None:
        self._tallies = {name: Tally() for name in names}
        self._skipped = dict.fromkeys(names, 0)

    def add(self, report: WindowReport) -> None:
        """Count a window in; a skipped one counts as skipped only."""
        if report.stepped:
            self._tallies[report.phase].add(report.loss, report.count, report.parts)
        else:
            self._skipped[report.phase] += 1

    def totals(self, steps: Mapping[str, int]) -> dict[str, PhaseTotals]:
        """The totals of every phase, given the steps each has taken."""
        return {
            name: PhaseTotals(
                loss=total.mean(),
                parts=total.parts(),
                count=total.count,
                step=steps[name],
                skipped=self._skipped[name],
            )
            for name, total in self._tallies.items()
        }


@contextmanager
def evaluating(modules: Iterable[nn.Module]) -> Generator[None]:
    """Evaluation mode inside, and afterwards every submodule in the mode it had."""
    modes = [(part, part.training) for module in modules for part in module.modules()]
    for part, _ in modes:
        part.training = False
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def timed(windows: Iterator[tuple[Batch, ...]]) -> Iterator[tuple[tuple[Batch, ...], float]]:
    """Every window with the seconds it was waited for."""
    while True:
        started = perf_counter()
        window = next(windows, None)
        if window is None:
            return
        yield window, perf_counter() - started
