"""Agreement of processes: settings, loss terms, and windows in which no phase works."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rank_processes import on_ranks, results_on_ranks
from torch import Tensor, nn

from trainers.loop import (
    CheckpointReport,
    Checkpoints,
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    Phase,
    Report,
    StepReport,
    StoppedError,
    Validation,
)
from trainers.loop.group.processes import launched_rank

Tell = Callable[[Report], object]


def train(
    checkpoints: Checkpoints | None,
    *,
    every: int = 1,
    epochs: int = 1,
    validated: bool = False,
    rare: tuple[int, ...] = (),
    windows: int = 99,
    tell: Tell = lambda _: None,
) -> list[Report]:
    """Train on eight batches per epoch; the rare ones have a loss term that the others lack."""
    torch.manual_seed(0)
    net = nn.Linear(3, 1)

    def loss(batch: tuple[Tensor, bool]) -> Loss:
        parts = {"rare": torch.ones(())} if batch[1] else {}
        return Loss((net(batch[0]) - 1.0).square().mean(), len(batch[0]), parts)

    source = IterableSource([(torch.randn(3, 3), number in rare) for number in range(8)])
    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1), every=every)
    validation = Validation(loss, source) if validated else None
    reports: list[Report] = []
    with Loop([phase], modules={"net": net}, device="cpu").running(checkpoints) as run:
        for report in run.epochs(source, max_epochs=epochs, validation=validation):
            tell(report)
            reports.append(report)
            if len([each for each in reports if isinstance(each, CheckpointReport)]) == windows:
                break
    return reports


def each_window(folder: Path, windows: int = 1) -> Checkpoints:
    return Checkpoints(folder, keep=20, every_windows=windows, every_seconds=None)


def train_with_checkpoints_on_the_first(folder: Path) -> None:
    train(None if launched_rank() else each_window(folder))


def train_with_a_validation_on_the_first() -> None:
    train(None, validated=not launched_rank())


def train_longer_on_the_second() -> None:
    train(None, epochs=1 + launched_rank())


def train_a_rare_part(folder: Path, windows: int) -> list[Report]:
    return train(each_window(folder), rare=(0, 6), windows=windows)


def test_checkpoints_on_one_rank_only_are_refused(tmp_path: Path) -> None:
    for ended in on_ranks(train_with_checkpoints_on_the_first, tmp_path):
        assert "must agree on the checkpoints" in ended.error


@pytest.mark.parametrize("job", [train_with_a_validation_on_the_first, train_longer_on_the_second])
def test_epochs_or_a_validation_of_one_rank_only_are_refused(job: Callable[[], None]) -> None:
    for ended in on_ranks(job):
        assert "must agree on the length of the training and its validation" in ended.error


def test_a_part_that_turned_up_before_a_resumption_may_turn_up_again_after_it(tmp_path: Path) -> None:
    results_on_ranks(train_a_rare_part, tmp_path, 2)
    for reports in results_on_ranks(train_a_rare_part, tmp_path, 99):
        assert [tuple(report.parts) for report in reports if isinstance(report, StepReport)] == [(), ("rare",)]


def test_a_checkpoint_is_written_after_a_window_in_which_no_phase_works(tmp_path: Path) -> None:
    reports = train(each_window(tmp_path, 3), every=2)
    saved = [report.window for report in reports if isinstance(report, CheckpointReport) and report.window]
    assert saved == [3, 6]


def test_a_signal_at_the_end_of_the_last_epoch_stops_after_a_checkpoint(tmp_path: Path) -> None:
    def stop(report: Report) -> None:
        if isinstance(report, EpochReport):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(StoppedError, match="checkpoint is"):
        train(Checkpoints(tmp_path), tell=stop)
    assert not train(Checkpoints(tmp_path))[1:]  # a notice that it resumes from its end
