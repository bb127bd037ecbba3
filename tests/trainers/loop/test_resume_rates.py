"""Resuming with different learning rates: refused unless chosen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from interrupted_training import samples
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)
from training_results import messages

from trainers.loop import (
    Checkpoints,
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    Phase,
    Report,
    ResumeMismatchError,
    SettingsError,
    StepReport,
)
from trainers.loop.checkpoint.recorder import ResumeRates

Schedule = Callable[[Optimizer], LRScheduler]


def by_epoch(optimizer: Optimizer) -> LRScheduler:
    return LambdaLR(optimizer, lambda step: 1.0 / (1 + step))


def warmed(optimizer: Optimizer) -> LRScheduler:
    return SequentialLR(optimizer, [LinearLR(optimizer, 0.5, total_iters=2), ExponentialLR(optimizer, 0.9)], [2])


def halved(optimizer: Optimizer) -> LRScheduler:
    return ExponentialLR(optimizer, 0.5)


def waning(optimizer: Optimizer) -> LRScheduler:
    return CosineAnnealingLR(optimizer, 8)


SCHEDULES: list[Schedule | None] = [None, by_epoch, warmed, halved, waning]


def adamw_of(parameters: Any, **settings: Any) -> Optimizer:
    return AdamW(parameters, **settings)


def train_epochs(
    folder: Path,
    *,
    epochs: int,
    lr: float | Tensor = 0.1,
    choice: ResumeRates = "refuse",
    schedule: Schedule | None = None,
    optimizer: Callable[..., Optimizer] = SGD,
    **settings: Any,
) -> tuple[list[Report], Optimizer]:
    """Train with two windows per epoch."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    made = optimizer(net.parameters(), lr=lr, **settings)
    scheduler = None if schedule is None else schedule(made)
    phase = Phase[Tensor]("main", lambda b: Loss(net(b).square().mean(), len(b)), net.parameters(), made, scheduler)
    loop = Loop([phase], modules={"net": net}, device="cpu", resume_rates=choice)
    with loop.running(Checkpoints(folder)) as run:
        reports = list(run.epochs(IterableSource([samples(3)] * 2), max_epochs=epochs))
    return reports, made


def rates(reports: list[Report]) -> list[float]:
    return [report.learning_rate for report in reports if isinstance(report, StepReport)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_another_learning_rate_is_refused_with_both(tmp_path: Path, schedule: Schedule | None) -> None:
    train_epochs(tmp_path, epochs=1, schedule=schedule)
    with pytest.raises(ResumeMismatchError, match=r"lr of group 0 of phase 'main' was 0\.1 and is now 0\.4; ") as no:
        train_epochs(tmp_path, epochs=2, lr=0.4, schedule=schedule)
    assert 'Loop(resume_rates="saved")' in str(no.value)
    assert 'Loop(resume_rates="new")' in str(no.value)


def test_every_setting_that_is_another_is_named(tmp_path: Path) -> None:
    train_epochs(tmp_path, epochs=1, optimizer=adamw_of, weight_decay=0.1, betas=(0.9, 0.99))
    with pytest.raises(ResumeMismatchError) as refused:
        train_epochs(tmp_path, epochs=2, optimizer=adamw_of, weight_decay=0.2, betas=(0.8, 0.99), eps=1e-6)
    for text in (
        "weight_decay of group 0 of phase 'main' was 0.1 and is now 0.2",
        "betas of group 0 of phase 'main' was (0.9, 0.99) and is now (0.8, 0.99)",
        "eps of group 0 of phase 'main' was 1e-08 and is now 1e-06",
    ):
        assert text in str(refused.value)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_a_schedule_has_made_of_the_learning_rate_is_no_other(tmp_path: Path, schedule: Schedule | None) -> None:
    whole, _ = train_epochs(tmp_path / "whole", epochs=3, schedule=schedule)
    first, _ = train_epochs(tmp_path / "cut", epochs=1, schedule=schedule)
    second, _ = train_epochs(tmp_path / "cut", epochs=3, schedule=schedule)
    assert rates(first) + rates(second) == rates(whole)


def test_what_the_caller_has_made_of_the_learning_rate_is_no_other(tmp_path: Path) -> None:
    def lived(epochs: int) -> float:
        net = nn.Linear(4, 1)
        optimizer = SGD(net.parameters(), lr=0.8)
        plateau = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        phase = Phase[Tensor]("main", lambda b: Loss(net(b).square().mean(), len(b)), net.parameters(), optimizer)
        loop = Loop([phase], modules={"net": net}, device="cpu", state={"plateau": plateau})
        with loop.running(Checkpoints(tmp_path)) as run:
            for report in run.epochs(IterableSource([samples(3)]), max_epochs=epochs):
                if isinstance(report, EpochReport):
                    plateau.step(1.0)
        return optimizer.param_groups[0]["lr"]

    assert [lived(epochs) for epochs in (1, 2, 3)] == [0.8, 0.4, 0.2]


def test_a_loop_that_runs_again_finds_what_it_was_started_with(tmp_path: Path) -> None:
    net = nn.Linear(4, 1)
    optimizer = SGD(net.parameters(), lr=0.8)
    phase = Phase[Tensor]("main", lambda b: Loss(net(b).square().mean(), len(b)), net.parameters(), optimizer)
    loop = Loop([phase], modules={"net": net}, device="cpu")
    for epochs, checkpoints in ((1, None), (1, Checkpoints(tmp_path)), (2, Checkpoints(tmp_path))):
        with loop.running(checkpoints) as run:
            for _ in run.epochs(IterableSource([samples(3)]), max_epochs=epochs):
                optimizer.param_groups[0]["lr"] = 0.1
    another = Loop([phase], modules={"net": net}, device="cpu").running(Checkpoints(tmp_path))
    with pytest.raises(ResumeMismatchError, match=r"was 0\.8 and is now 0\.1"), another:
        pass


def test_how_an_optimizer_computes_may_change(tmp_path: Path) -> None:
    train_epochs(tmp_path, epochs=1, optimizer=adamw_of, foreach=True)
    train_epochs(tmp_path, epochs=2, optimizer=adamw_of, fused=True)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_with_saved_the_training_goes_on_as_before_and_says_so(tmp_path: Path, schedule: Schedule | None) -> None:
    whole, _ = train_epochs(tmp_path / "whole", epochs=3, schedule=schedule)
    first, _ = train_epochs(tmp_path / "cut", epochs=1, schedule=schedule)
    second, _ = train_epochs(tmp_path / "cut", epochs=3, lr=0.4, choice="saved", schedule=schedule)
    assert rates(first) + rates(second) == rates(whole)
    assert messages(second)[0] == (
        "the optimizers continue with the saved settings: lr of group 0 of phase 'main' was 0.1 and is now 0.4"
    )
    with pytest.raises(ResumeMismatchError, match=r"was 0\.1 and is now 0\.4"):  # still the original rate
        train_epochs(tmp_path / "cut", epochs=4, lr=0.4, schedule=schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_with_new_the_schedule_goes_on_from_the_new_learning_rate(tmp_path: Path, schedule: Schedule | None) -> None:
    whole, _ = train_epochs(tmp_path / "whole", epochs=3, lr=0.4, schedule=schedule)
    train_epochs(tmp_path / "cut", epochs=1, schedule=schedule)
    second, _ = train_epochs(tmp_path / "cut", epochs=2, lr=0.4, choice="new", schedule=schedule)
    third, _ = train_epochs(tmp_path / "cut", epochs=3, lr=0.4, schedule=schedule)  # the new rate is now the training's
    assert rates(second) + rates(third) == pytest.approx(rates(whole)[2:], rel=1e-12)
    assert "continue with the new settings: lr of group 0" in messages(second)[0]
    assert len(messages(third)) == 1


def test_with_new_a_cycle_and_all_other_settings_are_taken(tmp_path: Path) -> None:
    def cycle(highest: float) -> Schedule:
        return lambda optimizer: OneCycleLR(optimizer, highest, total_steps=10)

    whole, _ = train_epochs(tmp_path / "whole", epochs=3, schedule=cycle(0.4), optimizer=adamw_of, weight_decay=0.2)
    train_epochs(tmp_path / "cut", epochs=1, schedule=cycle(0.1), optimizer=adamw_of, weight_decay=0.1)
    last, made = train_epochs(
        tmp_path / "cut", epochs=3, choice="new", schedule=cycle(0.4), optimizer=adamw_of, weight_decay=0.2
    )
    assert rates(last) == pytest.approx(rates(whole)[2:], rel=1e-12)
    assert made.param_groups[0]["weight_decay"] == 0.2


def test_a_learning_rate_in_a_tensor_is_compared_and_taken(tmp_path: Path) -> None:
    train_epochs(tmp_path, epochs=1, optimizer=adamw_of, lr=torch.tensor(0.5), foreach=False)
    with pytest.raises(ResumeMismatchError, match=r"was 0\.5 and is now 0\.25"):
        train_epochs(tmp_path, epochs=2, optimizer=adamw_of, lr=torch.tensor(0.25), foreach=False)
    reports, made = train_epochs(
        tmp_path, epochs=2, optimizer=adamw_of, lr=torch.tensor(0.25), foreach=False, choice="new"
    )
    assert rates(reports) == [0.25, 0.25]
    assert isinstance(made.param_groups[0]["lr"], Tensor)


def test_another_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match="resume_rates is 'old'; it must be 'refuse' or 'saved' or 'new'"):
        train_epochs(Path(), epochs=1, choice="old")  # pyright: ignore[reportArgumentType]  what is tested
