"""Resuming: a training that was interrupted ends as one that was not, to the bit."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import Remains, remains, told, until
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from trainers.loop import (
    Checkpoints,
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    Phase,
    Report,
    ResidentSource,
    Run,
    Source,
    Validation,
    seed_everything,
)

DYING_TRAINER = Path(__file__).with_name("dying_trainer.py")
ALL = 10_000


@pytest.fixture(autouse=True, scope="module")
def unflushed() -> Iterator[None]:
    """What is written outlives the process; flushing it to the disk would only take time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A small training with everything on: dropout, a schedule, an average, validation, early stopping.

    Attributes:
        accumulate: Batches in a window.
        every_windows: Windows from one checkpoint to the next.
        epochs: At most.
        samples: Of the training data; 3 in a batch.
        hidden: Width of the network.
        lr: Learning rate.
        ema: Decay of the average.
        optimizer: Its class.
        source: Makes the training's source of a tensor of samples.
        identity: What identifies the training.
    """

    accumulate: int = 2
    every_windows: int | None = 1
    epochs: int = 4
    samples: int = 17
    hidden: int = 4
    lr: float = 0.2
    ema: float | None = 0.8
    optimizer: type[torch.optim.AdamW | torch.optim.NAdam] = torch.optim.AdamW
    source: Callable[[Tensor], Source[Tensor]] = lambda data: ResidentSource.of(data, batch_size=3, seed=5)
    identity: dict[str, Any] | None = None

    def live(self, folder: Path, *, windows: int = ALL, seed: int = 1, interrupt: Callable[[int], None] | None = None) -> "Life":
        """Train from the newest checkpoint in the folder, up to some window of this life.

        Args:
            folder: Of the checkpoints.
            windows: The training is left at the report of this life's window of this number.
            seed: Of the fresh weights and generators.
            interrupt: Called in the forward with the number of the forward in this life.
        """
        seed_everything(seed)
        net = nn.Sequential(nn.Linear(3, self.hidden), nn.Dropout(0.4), nn.Tanh(), nn.Linear(self.hidden, 1))
        forwards = iter(range(ALL))

        def loss(batch: Tensor) -> Loss:
            if interrupt is not None and net.training:
                interrupt(next(forwards))
            return Loss((net(batch[:, :3]) - batch[:, 3:]).square().mean(), len(batch), {"bias": net[3].bias.mean()})

        optimizer = self.optimizer(net.parameters(), lr=self.lr)
        phase = Phase("main", loss, net.parameters(), optimizer, CosineAnnealingLR(optimizer, 10))
        loop = Loop([phase], modules={"net": net}, device="cpu", accumulate=self.accumulate, ema=self.ema)
        checkpoints = Checkpoints(
            folder, keep=2, every_windows=self.every_windows, every_seconds=None, settings=self.identity or {}
        )
        validation = Validation[Tensor](lambda batch: noisy(loss(batch)), IterableSource([samples(4, seed=9)]))
        with loop.running(checkpoints) as run:
            reports = until(self._followed(run, validation, self.source(samples(self.samples))), windows)
            return Life(reports=reports, left=remains(run))

    def _followed(self, run: Run[Tensor], validation: Validation[Tensor], source: Source[Tensor]) -> Iterator[Report]:
        """The reports, and the end where validation no longer gets better."""
        for report in run.epochs(source, max_epochs=self.epochs, validation=validation):
            yield report
            if isinstance(report, EpochReport) and run.stalled(report.monitored, patience=2):
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What a process's training told and left."""

    reports: list[Report]
    left: Remains


def samples(count: int, *, seed: int = 0) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def noisy(score: Loss) -> Loss:
    """A validation that draws random numbers, as that of a diffusion model does."""
    return Loss(score.mean + 0.01 * torch.rand(()), score.count, score.parts)


def assert_continued(whole: Life, *lives: Life) -> None:
    """The last life ended as the whole one did, and told the same of what it worked."""
    last = lives[-1]
    assert last.left == whole.left
    assert told(last.reports) == told(whole.reports)[-len(told(last.reports)) :]


@settings(max_examples=12, deadline=None)
@given(
    training=st.builds(
        Training,
        accumulate=st.integers(1, 4),
        every_windows=st.integers(1, 3),
        samples=st.integers(4, 17),
        ema=st.sampled_from([None, 0.8]),
    ),
    cuts=st.lists(st.integers(1, 6), min_size=1, max_size=3),
)
def test_a_training_left_after_any_windows_resumes_to_the_same_bits(training: Training, cuts: list[int]) -> None:
    with TemporaryDirectory() as folder:
        whole = training.live(Path(folder) / "whole")
        for number, windows in enumerate(cuts):
            training.live(Path(folder) / "cut", windows=windows, seed=2 + number)
        assert_continued(whole, training.live(Path(folder) / "cut", seed=99))
