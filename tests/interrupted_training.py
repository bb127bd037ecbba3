"""A small training run that is interrupted and resumed by several processes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau
from training_results import TrainingResult, result_of, until

from trainers.loop import (
    Checkpoints,
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    Phase,
    Report,
    ResidentSource,
    Source,
    Stateful,
    StepReport,
    TrainingRun,
    Validation,
    seed_everything,
)

ENDLESS = 10_000
Moment = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRun:
    """Reports and result of a training process."""

    reports: list[Report]
    left: TrainingResult


class Memory:
    """State of a loop body: a penalty that follows the losses, the highest loss, and a buffer of the last few."""

    def __init__(self) -> None:
        self.penalty = 0.01
        self.highest: float | None = None
        self.recent: list[Tensor] = []

    def see(self, report: StepReport) -> None:
        """Increase the penalty while losses fall."""
        self.penalty *= 1.1 if self.highest is not None and report.loss < self.highest else 0.9
        self.highest = max(report.loss, self.highest or 0.0)
        self.recent = [*self.recent[-2:], torch.tensor([report.loss, self.penalty])]

    def state_dict(self) -> dict[str, Any]:
        return {"penalty": self.penalty, "highest": self.highest, "recent": self.recent}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        self.penalty, self.highest, self.recent = (state_dict[name] for name in ("penalty", "highest", "recent"))


def adapting(reports: Iterator[Report], memory: Memory, plateau: ReduceLROnPlateau) -> Iterator[Report]:
    """Pass the reports on after updating the caller's state."""
    for report in reports:
        if isinstance(report, StepReport):
            memory.see(report)
        elif isinstance(report, EpochReport):
            plateau.step(report.monitored)
        yield report


def samples(number: int, *, seed: int = 0) -> Tensor:
    """Samples of three inputs and one target: float32 [number, 4]."""
    return torch.randn(number, 4, generator=torch.Generator().manual_seed(seed))


def resident(data: Tensor) -> Source[Tensor]:
    """A resident source with three samples per batch."""
    return ResidentSource.of(data, batch_size=3, seed=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A small training with everything on: dropout, schedules, an average, validation, early stopping, a state.

    Attributes:
        accumulate: Batches in a window.
        every_windows: Windows from one checkpoint to the next; None for none but those of epochs.
        epochs: At most.
        patience: Epochs without a new best that end it.
        samples: Of the training data.
        hidden: Width of the network.
        lr: Learning rate.
        clip: Largest norm of the gradient.
        ema: Decay of the average; None for no average.
        optimizer: Its class.
        source: Makes the training's source of the samples.
        identity: Settings that identify the training.
    """

    accumulate: int = 2
    every_windows: int | None = 1
    epochs: int = 4
    patience: int = 2
    samples: int = 17
    hidden: int = 4
    lr: float = 0.2
    clip: float | None = 1.0
    ema: float | None = 0.8
    optimizer: type[torch.optim.AdamW | torch.optim.NAdam] = torch.optim.AdamW
    source: Callable[[Tensor], Source[Tensor]] = resident
    identity: dict[str, Any] | None = None

    def live(self, folder: Path, *, windows: int = ENDLESS, moment: Moment | None = None) -> ProcessRun:
        """Train from the newest checkpoint; its weights and generators must replace the random initial ones.

        Args:
            folder: Of the checkpoints.
            windows: The training is left at the report of this life's window of this number.
            moment: Called in every forward of the training and at every report, with the number of its call.
        """
        seed_everything(99 if any(folder.glob("window-*")) else 1)
        net = nn.Sequential(nn.Linear(3, self.hidden), nn.Dropout(0.4), nn.Tanh(), nn.Linear(self.hidden, 1))
        memory, moments = Memory(), count()

        def pass_moment() -> None:
            if moment is not None:
                moment(next(moments))

        def loss(batch: Tensor) -> Loss:
            pass_moment()
            made = net(batch[:, :3])
            error = (made - batch[:, 3:]).square() + memory.penalty * made.square()
            return Loss(error.mean(), len(batch), {"second": batch.mean()})

        def score(batch: Tensor) -> Loss:
            """A validation score that draws a random number, as for a diffusion model."""
            return Loss((net(batch[:, :3]) - batch[:, 3:]).square().mean() + 0.01 * torch.rand(()), len(batch))

        optimizer = self.optimizer(net.parameters(), lr=self.lr)
        phase = Phase("main", loss, net.parameters(), optimizer, CosineAnnealingLR(optimizer, 10), clip=self.clip)
        plateau = ReduceLROnPlateau(optimizer, factor=0.7, patience=0)
        kept: dict[str, Stateful] = {"plateau": plateau, "memory": memory}
        loop = Loop([phase], modules={"net": net}, device="cpu", accumulate=self.accumulate, ema=self.ema, state=kept)
        validation = Validation(score, IterableSource([samples(4, seed=9)]))
        with loop.running(self._checkpoints(folder)) as run:
            reports = until(adapting(self._followed(run, validation, pass_moment), memory, plateau), windows)
            return ProcessRun(reports=reports, left=result_of(run, kept))

    def _checkpoints(self, folder: Path) -> Checkpoints:
        return Checkpoints(
            folder, keep=2, every_windows=self.every_windows, every_seconds=None, settings=self.identity or {}
        )

    def _followed(
        self, run: TrainingRun[Tensor], validation: Validation[Tensor], pass_moment: Callable[[], None]
    ) -> Iterator[Report]:
        """The reports until the end or early stopping."""
        train = self.source(samples(self.samples))
        for report in run.epochs(train, max_epochs=self.epochs, validation=validation):
            pass_moment()
            yield report
            if isinstance(report, EpochReport) and run.stalled(report.monitored, patience=self.patience):
                return
