"""Training with two processes gives the result of one process, also after failures."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
import torch
from interrupted_training import ProcessRun, Training
from rank_processes import on_ranks, results_on_ranks
from shortages import Shortage, Stage
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader, Dataset
from training_results import checkpoint_reports, messages, reported

from trainers.loop import (
    BatchCoupledError,
    CheckpointReport,
    Checkpoints,
    DetachedLossError,
    EpochReport,
    FrozenModule,
    IterableSource,
    Loop,
    Loss,
    NonFiniteError,
    ParallelismError,
    PeerLostError,
    Phase,
    Report,
    ResumeMismatchError,
    Source,
    StepReport,
    StoppedError,
    Validation,
    seed_everything,
)
from trainers.loop.group.processes import launched_rank

EXAMPLE = Path(__file__).parents[3] / "examples" / "train_your_own_module.py"
ENDLESS = 10_000
MISSING = float("nan")


class Rows(NamedTuple):
    """A batch of samples; NaN marks a missing target."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """A training run with everything on: a schedule, an average, clipping, validation, early stopping.

    Attributes:
        sizes: Samples of every batch.
        untargeted: The numbers of the batches without any target.
        infinite: The numbers of the batches with an infinite input, whose gradient is not finite.
        unbounded: The numbers of the batches with an infinite target, whose loss is not finite either.
        accumulate: Batches of a process in a window.
        epochs: At most.
        patience: Epochs without a new best that end it.
        skip_limit: So many skipped steps in a row raise.
        dtype: Of weights and data.
    """

    sizes: tuple[int, ...]
    untargeted: tuple[int, ...] = ()
    infinite: tuple[int, ...] = ()
    unbounded: tuple[int, ...] = ()
    accumulate: int = 1
    epochs: int = 3
    patience: int = ENDLESS
    skip_limit: int = 20
    dtype: torch.dtype = torch.float64

    def batches(self, *, seed: int = 5) -> list[Rows]:
        """The batches of every epoch."""
        generator = torch.Generator().manual_seed(seed)
        draw = partial(torch.randn, generator=generator, dtype=self.dtype)
        batches = [Rows(draw(size, 3), draw(size, 1)) for size in self.sizes]
        for number in self.untargeted:
            batches[number].y.fill_(MISSING)
        for number in self.infinite:
            batches[number].x[0, 0] = torch.inf
        for number in self.unbounded:
            batches[number].y[0, 0] = torch.inf
        return batches

    def alone(self) -> "TrainingConfig":
        """The same training for one process, with the batches of both in each window."""
        return replace(self, accumulate=2 * self.accumulate)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOutcome:
    """Result of a training run.

    Attributes:
        weights: At the end.
        averages: Of the weights.
        best: The weights of the best epoch.
        reports: All of them.
        history: Of all epochs, as the run keeps it.
        stalled: What `stalled` said after every epoch.
    """

    weights: list[Tensor]
    averages: list[Tensor]
    best: list[Tensor]
    reports: list[Report]
    history: tuple[EpochReport, ...]
    stalled: list[bool]

    def windows(self) -> list[StepReport]:
        return [report for report in self.reports if isinstance(report, StepReport)]

    def epochs(self) -> list[EpochReport]:
        return [report for report in self.reports if isinstance(report, EpochReport)]


def unchanged(x: Tensor) -> Tensor:
    return x


def of_rank(rank: int, plant: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """An object for the given rank only."""
    return plant if launched_rank() == rank else unchanged


def small_network(dtype: torch.dtype = torch.float32, *, width: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1)).to(dtype)


def squared_error(net: nn.Module, plant: Callable[[Tensor], Tensor], batch: Rows) -> Loss:
    known = ~batch.y.isnan()
    errors = (net(plant(batch.x.clone().requires_grad_())) - batch.y)[known]
    if not len(errors):
        return Loss(torch.zeros(()), 0)
    return Loss(errors.square().mean(), len(errors), {"absolute": errors.detach().abs().mean()})


def train(course: TrainingConfig, plant: Callable[[Tensor], Tensor] = unchanged) -> TrainingOutcome:
    """Train in this process; rank 1 starts with other weights, which rank 0's must replace."""
    seed_everything(1 + launched_rank())
    net = small_network(course.dtype)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    loss = partial(squared_error, net, plant)
    phase = Phase("main", loss, net.parameters(), optimizer, ExponentialLR(optimizer, 0.95), clip=0.5)
    loop = Loop(
        [phase],
        modules={"net": net},
        device="cpu",
        accumulate=course.accumulate,
        ema=0.8,
        skip_limit=course.skip_limit,
    )
    held_out = replace(course, sizes=(4, 2, 5), untargeted=(), infinite=(), unbounded=()).batches(seed=6)
    validation = Validation(partial(squared_error, net, unchanged), IterableSource(held_out))
    reports: list[Report] = []
    stalled: list[bool] = []
    with loop.running() as run:
        for report in run.epochs(IterableSource(course.batches()), max_epochs=course.epochs, validation=validation):
            reports.append(report)
            if isinstance(report, EpochReport):
                stalled.append(run.stalled(report.monitored, patience=course.patience))
                if stalled[-1]:
                    break
        weights = [parameter.detach().clone() for parameter in net.parameters()]
        run.use_average()
        averages = [parameter.detach().clone() for parameter in net.parameters()]
        run.restore_best()
        return TrainingOutcome(
            weights=weights,
            averages=averages,
            best=[parameter.detach() for parameter in net.parameters()],
            reports=reports,
            history=run.history,
            stalled=stalled,
        )


def of_window(report: StepReport) -> list[float]:
    """A window's report without times and per-process values."""
    place = [report.epoch, report.epochs, report.window, report.windows or 0, report.step, report.count]
    return [*place, report.loss, *report.parts.values(), report.grad_norm, report.learning_rate, report.stepped]


def of_epoch(report: EpochReport) -> list[float]:
    """An epoch's report without times and per-process values."""
    scored = report.validation
    assert scored is not None
    phases = [
        number
        for totals in report.phases.values()
        for number in (totals.loss, *totals.parts.values(), totals.count, totals.step, totals.skipped)
    ]
    return [report.epoch, report.windows, *phases, scored.mean, *scored.parts.values(), scored.count]


def assert_close(found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() <= tolerance


def assert_same_training(found: TrainingOutcome, expected: TrainingOutcome, *, tolerance: float = 1e-11) -> None:
    for name in ("weights", "averages", "best"):
        assert_close(getattr(found, name), getattr(expected, name), tolerance)
    for one, other in zip(found.windows(), expected.windows(), strict=True):
        assert of_window(one) == pytest.approx(of_window(other), rel=10 * tolerance, nan_ok=True)
    for reports in (found.epochs(), found.history):
        for one, other in zip(reports, expected.epochs(), strict=True):
            assert of_epoch(one) == pytest.approx(of_epoch(other), rel=10 * tolerance, nan_ok=True)
    assert found.stalled == expected.stalled


# --- the same as one process ------------------------------------------------------------------------------------------

COURSES = {
    "equal shares": TrainingConfig(sizes=(3, 3, 3, 3)),
    "an odd number of batches": TrainingConfig(sizes=(3, 3, 3, 3, 3)),
    "a last window without a batch for rank 1": TrainingConfig(sizes=(4, 4, 4, 4, 2), accumulate=2),
    "counts that differ": TrainingConfig(sizes=(9, 1, 2, 7, 5, 3, 8), accumulate=2),
    "no target on rank 1 in the first window": TrainingConfig(sizes=(3, 4, 2, 3, 5), untargeted=(1,)),
    "no target on rank 0 in any window": TrainingConfig(sizes=(3, 4, 2, 3), untargeted=(0, 2)),
    "a window of infinite gradients": TrainingConfig(sizes=(3, 4, 2, 3, 4, 4), infinite=(3,)),
    "a window of an infinite loss": TrainingConfig(sizes=(3, 4, 2, 3, 4, 4), unbounded=(3,)),
    "early stopping": TrainingConfig(sizes=(3, 3, 3), epochs=40, patience=2),
}


@pytest.mark.parametrize("course", COURSES.values(), ids=COURSES.keys())
def test_a_training_on_two_ranks_is_that_of_one_process(course: TrainingConfig) -> None:
    expected = train(course.alone())
    for found in results_on_ranks(train, course):
        assert_same_training(found, expected)


def test_in_single_precision_two_ranks_differ_from_one_process_by_rounding_only() -> None:
    course = TrainingConfig(sizes=(9, 1, 2, 7, 5, 3, 8), epochs=2, dtype=torch.float32)
    expected = train(course.alone())
    for found in results_on_ranks(train, course):
        assert_close(found.weights, expected.weights, 1e-6)


def test_the_ranks_end_with_the_same_bits_and_tell_the_same() -> None:
    first, second = results_on_ranks(train, TrainingConfig(sizes=(9, 1, 2, 7, 5), accumulate=2, dtype=torch.float32))
    for name in ("weights", "averages", "best"):
        assert all(map(torch.equal, getattr(first, name), getattr(second, name)))
    assert [of_window(report) for report in first.windows()] == [of_window(report) for report in second.windows()]
    assert [of_epoch(report) for report in first.history] == [of_epoch(report) for report in second.history]


def test_early_stopping_ends_the_course_that_the_tests_compare() -> None:
    stalled = train(COURSES["early stopping"].alone()).stalled
    assert stalled == [False] * (len(stalled) - 1) + [True]
    assert len(stalled) < COURSES["early stopping"].epochs


def judge_by_values_of_their_own() -> list[bool]:
    net = small_network()
    phase = Phase[Rows](
        "main", partial(squared_error, net, unchanged), net.parameters(), torch.optim.SGD([*net.parameters()])
    )
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        values = [[3.0, 4.0, 2.0, 5.0, 6.0], [3.0, 2.0, 1.0, 0.5, 0.1]][run.group.rank]
        return [run.stalled(value, patience=2) for value in values]


def test_values_that_differ_from_rank_to_rank_stall_on_all_of_them_together() -> None:
    assert results_on_ranks(judge_by_values_of_their_own) == [[False, False, False, False, True]] * 2


class AdversarialPair(NamedTuple):
    """Two adversarial networks and their phases."""

    networks: dict[str, nn.Module]
    phases: list[Phase[Rows]]


def adversaries() -> AdversarialPair:
    """A critic that separates real from generated samples, and a generator trained in every second window."""
    maker, critic = small_network(torch.float64).append(nn.Linear(1, 3).double()), small_network(torch.float64)

    def told_apart(batch: Rows) -> Loss:
        made = maker(batch.x).detach()
        mean = nn.functional.softplus(-critic(batch.x)).mean() + nn.functional.softplus(critic(made)).mean()
        return Loss(mean, len(batch.x), {"made": critic(made).mean().detach()})

    def taken_for_real(batch: Rows) -> Loss:
        return Loss(nn.functional.softplus(-critic(maker(batch.x))).mean(), len(batch.x))

    phases = [
        Phase("critic", told_apart, critic.parameters(), torch.optim.Adam(critic.parameters(), lr=0.05)),
        Phase("maker", taken_for_real, maker.parameters(), torch.optim.Adam(maker.parameters(), lr=0.02), every=2),
    ]
    return AdversarialPair({"maker": maker, "critic": critic}, phases)


def train_adversaries(course: TrainingConfig) -> tuple[list[Tensor], list[tuple[str, list[float]]]]:
    seed_everything(1 + launched_rank())
    networks, phases = adversaries()
    loop = Loop(phases, modules=networks, device="cpu", accumulate=course.accumulate)
    with loop.running() as run:
        reports = list(run.epochs(IterableSource(course.batches()), max_epochs=course.epochs))
    weights = [parameter.detach() for network in networks.values() for parameter in network.parameters()]
    return weights, [(report.phase, of_window(report)) for report in reports if isinstance(report, StepReport)]


def test_two_adversaries_on_two_ranks_train_as_in_one_process() -> None:
    course = TrainingConfig(sizes=(5, 2, 4, 3, 6), epochs=3)
    weights, windows = train_adversaries(course.alone())
    assert [phase for phase, _ in windows] == [*["critic", "critic", "maker"] * 4, "critic"]
    for found_weights, found_windows in results_on_ranks(train_adversaries, course):
        assert_close(found_weights, weights, 1e-11)
        for (phase, numbers), (other_phase, others) in zip(found_windows, windows, strict=True):
            assert phase == other_phase
            assert numbers == pytest.approx(others, rel=1e-10)


# --- memory that runs out on one rank ---------------------------------------------------------------------------------


def train_short(course: TrainingConfig, stage: Stage) -> TrainingOutcome:
    """Train with short memory on rank 1, from its second window on."""
    return train(course, of_rank(1, Shortage(stage, 2, since=2)))


@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_memory_that_runs_out_on_one_rank_changes_nothing_but_its_micro_batches(stage: Stage) -> None:
    course = TrainingConfig(sizes=(8, 8, 8, 8, 8, 8), epochs=2)
    expected = train(course.alone())
    spared, short = results_on_ranks(train_short, course, stage)
    for found in (spared, short):
        assert_same_training(found, expected)
    assert [(report.micro_batch_limit, report.shortages) for report in spared.windows()] == [(None, 0)] * 6
    assert [(report.micro_batch_limit, report.shortages) for report in short.windows()] == [
        (None, 0),
        (2, 2),
        *[(2, 0)] * 4,
    ]
    assert [report.phases["main"].shortages for report in short.epochs()] == [2, 0]
    assert not messages(spared.reports)
    (notice,) = messages(short.reports)
    assert "epoch 1, window 2; no sample was skipped: batches are processed in micro-batches of at most 2" in notice


def test_in_single_precision_a_shortage_on_one_rank_changes_rounding_only() -> None:
    course = TrainingConfig(sizes=(8, 8, 8, 8), epochs=1, dtype=torch.float32)
    expected = train(course.alone())
    for found in results_on_ranks(train_short, course, "backward"):
        assert_close(found.weights, expected.weights, 3e-8)


def train_crowded() -> TrainingOutcome:
    """Train with rank 1 unable to fit a single sample."""
    return train(TrainingConfig(sizes=(4, 4)), of_rank(1, Shortage("forward", 0)))


def test_a_sample_that_fits_on_no_account_ends_both() -> None:
    lost, crowded = on_ranks(train_crowded)
    assert lost.error.startswith(PeerLostError.__name__)
    assert crowded.error.startswith("OutOfMemoryError: memory ran out in the forward")


def validate_short() -> tuple[float, int, list[int]]:
    """Validate with short memory on rank 1."""
    seed_everything(1)
    net, shortage = small_network(torch.float64), Shortage("forward", 3)
    optimizer = torch.optim.SGD(net.parameters())
    phase = Phase[Rows]("main", partial(squared_error, net, unchanged), net.parameters(), optimizer)
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        score = partial(squared_error, net, of_rank(1, shortage))
        report = run.validate(score, IterableSource(TrainingConfig(sizes=(5, 7, 2)).batches()))
    return report.mean, report.count, shortage.sizes


def test_memory_that_runs_out_in_the_validation_of_one_rank_changes_nothing() -> None:
    mean, count, _ = validate_short()
    (first, first_count, spared), (second, second_count, short) = results_on_ranks(validate_short)
    assert (first_count, second_count) == (count, count)
    assert [first, second] == pytest.approx([mean] * 2, rel=1e-12)
    assert (spared, short) == ([], [7, 3, 3, 1])


# --- non-finite values -----------------------------------------------------------------------------------------------


def test_a_gradient_that_is_infinite_on_one_rank_skips_the_step_on_both() -> None:
    for found in results_on_ranks(train, TrainingConfig(sizes=(3, 4, 2, 3, 4, 4), infinite=(3,), epochs=1)):
        assert [report.stepped for report in found.windows()] == [True, False, True]
        assert [report.step for report in found.windows()] == [1, 1, 2]
        assert found.epochs()[0].phases["main"].skipped == 1


def test_too_many_skipped_steps_in_a_row_end_both() -> None:
    course = TrainingConfig(sizes=(3, 4) * 6, infinite=(3, 7, 9), skip_limit=2)
    for ended in on_ranks(train, course):
        assert ended.error.startswith(NonFiniteError.__name__)
        assert "in 2 steps in a row" in ended.error
        assert "window 4 of 1 batches" in ended.error


# --- errors of one rank -----------------------------------------------------------------------------------------------


def fail(_: Tensor) -> Tensor:
    raise ValueError("a bad sample")


def later(plant: Callable[[Tensor], Tensor], first: int) -> Callable[[Tensor], Tensor]:
    """A fault that starts at a given call, counted from 0."""
    calls = count()
    return lambda x: plant(x) if next(calls) >= first else x


def train_failing() -> TrainingOutcome:
    return train(TrainingConfig(sizes=(3,) * 8), of_rank(1, later(fail, 2)))


def test_an_error_in_the_loss_of_one_rank_ends_the_other_with_advice() -> None:
    lost, failed = on_ranks(train_failing)
    assert failed.error == "ValueError: a bad sample"
    assert lost.error.startswith(PeerLostError.__name__)
    assert "Look for the first error in the output of the other ranks" in lost.error
    assert "start the group again: it resumes from the last checkpoint" in lost.error
    assert "in phase 'main', epoch 0, window 2" in lost.error


class DetachedNetwork(nn.Module):
    """A network that one rank detaches."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).detach() if launched_rank() == 1 else self.inner(x)


def fit(net: nn.Module, source: Source[Rows], *, epochs: int = 1, **chosen: object) -> list[Report]:
    """Train a network with default settings."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    phase = Phase("main", partial(squared_error, net, unchanged), net.parameters(), optimizer)
    loop = Loop([phase], modules={"net": net}, device="cpu", **chosen)  # pyright: ignore[reportArgumentType]
    with loop.running() as run:
        return list(run.epochs(source, max_epochs=epochs))


def rows(*sizes: int) -> Source[Rows]:
    return IterableSource(TrainingConfig(sizes=sizes, dtype=torch.float32).batches())


def train_severed() -> None:
    fit(DetachedNetwork(), rows(3, 3, 3, 3))


def test_a_loss_that_is_detached_on_one_rank_only_ends_both() -> None:
    lost, severed = on_ranks(train_severed)
    assert severed.error.startswith(DetachedLossError.__name__)
    assert lost.error.startswith(PeerLostError.__name__)


# --- data per rank --------------------------------------------------------------------------------------------------


class Numbers(Dataset[Tensor]):
    """The numbers from 1 on."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([float(index + 1)])


def shuffled_numbers() -> Source[Tensor]:
    return IterableSource(DataLoader(Numbers(11), batch_size=2, shuffle=True))


def read_shuffled(accumulate: int) -> tuple[list[list[float]], list[list[float]]]:
    """Batches that this process trains on in two epochs and then validates on."""
    seed_everything(7 + 3 * launched_rank())
    net = nn.Linear(1, 1)
    seen: list[list[float]] = []
    scored: list[list[float]] = []

    def loss(seen: list[list[float]], batch: Tensor) -> Loss:
        seen.append(batch.flatten().tolist())
        return Loss(net(batch).square().mean(), len(batch))

    phase = Phase("main", partial(loss, seen), net.parameters(), torch.optim.SGD(net.parameters(), lr=1e-3))
    with Loop([phase], modules={"net": net}, device="cpu", accumulate=accumulate).running() as run:
        list(run.epochs(shuffled_numbers(), max_epochs=2))
        run.validate(partial(loss, scored), shuffled_numbers())
    return seen, scored


def test_the_ranks_share_a_shuffled_epoch_out_among_them() -> None:
    (first, _), (second, _) = results_on_ranks(read_shuffled, 1)
    whole, _ = read_shuffled(2)
    assert (first, second) == (whole[0:6:2] + whole[6::2], whole[1:6:2] + whole[7::2])
    for epoch in (whole[:6], whole[6:]):
        assert sorted(number for batch in epoch for number in batch) == list(range(1, 12))
    assert whole[:6] != whole[6:]


def test_the_ranks_share_a_shuffled_validation_out_among_them() -> None:
    (_, first), (_, second) = results_on_ranks(read_shuffled, 1)
    assert sorted(number for batch in first + second for number in batch) == list(range(1, 12))


class StreamedBatches:
    """A stream of batches of unknown length."""

    def __iter__(self) -> Iterator[Rows]:
        return iter(TrainingConfig(sizes=(3, 3), dtype=torch.float32).batches())


def train_streamed() -> None:
    fit(small_network(), IterableSource(StreamedBatches()))


def test_a_source_of_unknown_length_is_refused() -> None:
    for ended in on_ranks(train_streamed):
        assert ended.error.startswith(ParallelismError.__name__)
        assert "IterableSource(batches, length=...)" in ended.error


# --- random numbers ---------------------------------------------------------------------------------------------------


def train_with_dropout() -> tuple[list[list[bool]], list[Tensor], list[StepReport]]:
    """Dropped units of every window, final weights, and reports."""
    seed_everything(3)
    net = nn.Sequential(nn.Linear(3, 16), nn.Dropout(0.5), nn.Linear(16, 1))
    masks: list[list[bool]] = []
    net[1].register_forward_hook(lambda _, __, out: masks.append((out == 0).flatten().tolist()))
    reports = fit(net, rows(2, 2, 2, 2), epochs=2)
    windows = [report for report in reports if isinstance(report, StepReport)]
    return masks, [parameter.detach() for parameter in net.parameters()], windows


def test_the_ranks_drop_different_units() -> None:
    (first, *_), (second, *_) = results_on_ranks(train_with_dropout)
    masks = [tuple(mask) for mask in first + second]
    assert len(masks) == 8
    assert len(set(masks)) == 8


def test_the_same_training_on_two_ranks_gives_the_same_bits_twice() -> None:
    once, again = results_on_ranks(train_with_dropout), results_on_ranks(train_with_dropout)
    for (masks, weights, reports), (other_masks, others, other_reports) in zip(once, again, strict=True):
        assert masks == other_masks
        assert all(map(torch.equal, weights, others))
        assert [of_window(report) for report in reports] == [of_window(report) for report in other_reports]


# --- checkpoints ------------------------------------------------------------------------------------------------------


def in_order(data: Tensor) -> Source[Tensor]:
    return IterableSource(data.split(3))


def shuffled(data: Tensor) -> Source[Tensor]:
    return IterableSource(DataLoader(data, batch_size=3, shuffle=True))  # pyright: ignore[reportArgumentType]  a tensor is a dataset


def skip_fsync(_: int) -> None:
    """Replaces fsync: written data outlives the process anyway."""


def train_interrupted(training: Training, folder: Path, windows: int = ENDLESS) -> ProcessRun:
    os.fsync = skip_fsync
    return training.live(folder, windows=windows)


def die(training: Training, folder: Path, moment: int) -> ProcessRun:
    """Kill rank 1 at a moment; the other one runs as long as it can."""

    def kill(now: int) -> None:
        if now == moment and launched_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = skip_fsync
    return training.live(folder, moment=kill)


def assert_continued(whole: Sequence[ProcessRun], last: Sequence[ProcessRun]) -> None:
    """Assert that resumed runs end like uninterrupted ones, with the same reports."""
    for one, other in zip(last, whole, strict=True):
        again = reported(one.reports)
        assert again
        assert again == reported(other.reports)[-len(again) :]
        assert one.left == other.left


@pytest.mark.slow
@pytest.mark.parametrize("source", [in_order, shuffled])
def test_a_group_of_which_one_was_killed_resumes_to_the_same_bits(
    tmp_path: Path, source: Callable[[Tensor], Source[Tensor]]
) -> None:
    training = Training(accumulate=1, patience=ENDLESS, source=source)
    whole = results_on_ranks(train_interrupted, training, tmp_path / "whole")
    assert whole[0].left.generator != whole[1].left.generator
    for moment in (7, 9):
        lost, killed = on_ranks(die, training, tmp_path / "cut", moment)
        assert killed.exit_code == -signal.SIGKILL
        assert lost.error.startswith(PeerLostError.__name__)
    assert_continued(whole, results_on_ranks(train_interrupted, training, tmp_path / "cut"))


def test_both_ranks_resume_before_a_damaged_checkpoint_and_say_so(tmp_path: Path) -> None:
    training = Training(accumulate=1, epochs=2)
    whole = results_on_ranks(train_interrupted, training, tmp_path / "whole")
    results_on_ranks(train_interrupted, training, tmp_path / "cut", 3)
    newest = max((tmp_path / "cut").glob("window-*"))
    (newest / "state.pt").write_bytes(b"no archive")
    last = results_on_ranks(train_interrupted, training, tmp_path / "cut")
    assert_continued(whole, last)
    for life in last:
        damage, _ = messages(life.reports)
        assert newest.name in damage


def test_one_process_does_not_resume_two_with_steps_of_half_the_batches(tmp_path: Path) -> None:
    results_on_ranks(train_interrupted, Training(accumulate=1), tmp_path, 2)
    with pytest.raises(ResumeMismatchError, match=r"accumulate x processes\) is 2 in the checkpoint and 1 here"):
        Training(accumulate=1).live(tmp_path)


def test_one_process_does_not_resume_the_callers_state_of_two(tmp_path: Path) -> None:
    results_on_ranks(train_interrupted, Training(accumulate=1), tmp_path, 2)
    with pytest.raises(ResumeMismatchError, match=r"\(.*memory\) was saved by 2 processes, and 1 are here"):
        Training(accumulate=2).live(tmp_path)


def train_in_part(config: TrainingConfig, folder: Path, windows: int) -> list[Tensor]:
    """Train from the newest checkpoint, leave at this window, and return the weights."""
    seed_everything(1 + launched_rank())
    net = small_network(config.dtype)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    phase = Phase("main", partial(squared_error, net, unchanged), net.parameters(), optimizer, clip=0.5)
    loop = Loop([phase], modules={"net": net}, device="cpu", accumulate=config.accumulate, ema=0.8)
    with loop.running(Checkpoints(folder, every_windows=1)) as run:
        for _ in run.epochs(IterableSource(config.batches()), max_epochs=config.epochs):
            if run.windows == windows:
                break
    return [parameter.detach() for parameter in net.parameters()]


def test_one_process_resumes_what_two_have_begun(tmp_path: Path) -> None:
    config = TrainingConfig(sizes=(9, 1, 2, 7, 5, 3, 8))
    results_on_ranks(train_in_part, config, tmp_path / "cut", 6)
    assert Checkpoints(tmp_path / "cut").batches_per_step() == 2
    resumed = train_in_part(config.alone(), tmp_path / "cut", ENDLESS)
    assert_close(resumed, train_in_part(config.alone(), tmp_path / "whole", ENDLESS), 1e-11)


def test_two_processes_resume_what_one_has_begun(tmp_path: Path) -> None:
    config = TrainingConfig(sizes=(9, 1, 2, 7, 5, 3, 8))
    train_in_part(config.alone(), tmp_path / "cut", 6)
    resumed, _ = results_on_ranks(train_in_part, config, tmp_path / "cut", ENDLESS)
    assert_close(resumed, train_in_part(config.alone(), tmp_path / "whole", ENDLESS), 1e-11)


def test_a_group_does_not_resume_with_another_accumulation(tmp_path: Path) -> None:
    results_on_ranks(train_interrupted, Training(accumulate=1), tmp_path, 2)
    for ended in on_ranks(train_interrupted, Training(accumulate=2), tmp_path):
        assert ended.error.startswith(ResumeMismatchError.__name__)
        assert "accumulate x processes) is 2 in the checkpoint and 4 here" in ended.error


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointedRun:
    """Reports, micro-batch sizes and weights of a run with checkpoints."""

    reports: list[Report]
    limit: int | None
    weights: list[bytes]


def keep(
    checkpoints: Checkpoints,
    plant: Callable[[Tensor], Tensor] = unchanged,
    *,
    every: int = 1,
    windows: int = ENDLESS,
    tell: Callable[[Report], object] = lambda _: None,
) -> CheckpointedRun:
    """Train for two epochs of four windows each."""
    seed_everything(2)
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    phase = Phase("main", partial(squared_error, net, plant), net.parameters(), optimizer, every=every)
    reports: list[Report] = []
    with Loop([phase], modules={"net": net}, device="cpu").running(checkpoints) as run:
        for report in run.epochs(rows(*[8] * 8), max_epochs=2):
            reports.append(report)
            tell(report)
            if sum(isinstance(each, StepReport) for each in reports) == windows:
                break
    micro_batch_limit = [report.micro_batch_limit for report in reports if isinstance(report, StepReport)][-1]
    return CheckpointedRun(
        reports=reports,
        limit=micro_batch_limit,
        weights=[parameter.detach().numpy().tobytes() for parameter in net.parameters()],
    )


def keep_short(folder: Path, fits: Sequence[int], windows: int) -> CheckpointedRun:
    """Train with short memory on both ranks, to different degrees."""
    os.fsync = skip_fsync
    checkpoints = Checkpoints(folder, every_windows=1, every_seconds=None)
    return keep(checkpoints, Shortage("forward", fits[launched_rank()]), windows=windows)


def test_every_rank_resumes_with_micro_batches_of_its_own_size(tmp_path: Path) -> None:
    whole = results_on_ranks(keep_short, tmp_path / "whole", (2, 4), ENDLESS)
    results_on_ranks(keep_short, tmp_path / "cut", (2, 4), 3)
    last = results_on_ranks(keep_short, tmp_path / "cut", (8, 8), ENDLESS)
    assert [life.limit for life in last] == [2, 4]
    assert [life.weights for life in last] == [life.weights for life in whole]


def keep_apart(folder: Path) -> CheckpointedRun:
    """Train with a different folder on each rank."""
    return keep(Checkpoints(folder / str(launched_rank()), keep=20, every_windows=3, every_seconds=None))


def test_only_the_first_rank_writes_and_all_report_it(tmp_path: Path) -> None:
    first, second = results_on_ranks(keep_apart, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    written = [(report.folder, report.bytes) for report in checkpoint_reports(first.reports)]
    assert written == [(report.folder, report.bytes) for report in checkpoint_reports(second.reports)]
    assert {Path(folder) for folder, _ in written} == set((tmp_path / "0").glob("window-*"))


def refuse(_: int) -> None:
    raise OSError(28, "No space left on device")


def keep_on_a_full_disk(folder: Path) -> CheckpointedRun:
    os.fsync = refuse
    return keep(Checkpoints(folder, every_windows=3, every_seconds=None))


def test_a_checkpoint_that_cannot_be_written_is_a_problem_on_every_rank(tmp_path: Path) -> None:
    for found in results_on_ranks(keep_on_a_full_disk, tmp_path):
        problems = [report.problem or "" for report in checkpoint_reports(found.reports)]
        assert problems
        assert all("space" in problem for problem in problems)
        assert sum(isinstance(report, StepReport) for report in found.reports) == 8


def keep_by_the_clock(folder: Path) -> CheckpointedRun:
    """Train with fake clocks: on rank 0 ten seconds pass in the second window, on rank 1 a year in each."""
    seconds = 0.0

    def tick(report: Report) -> None:
        nonlocal seconds
        if isinstance(report, StepReport):
            seconds += 3e7 if launched_rank() else 10.0 * (report.epoch == 0 and report.window == 1)

    checkpoints = Checkpoints(folder, keep=20, every_seconds=5.0, clock=lambda: seconds)
    return keep(checkpoints, tell=tick)


def test_the_clock_of_the_first_rank_decides_when_both_write(tmp_path: Path) -> None:
    first, second = (checkpoint_reports(found.reports) for found in results_on_ranks(keep_by_the_clock, tmp_path))
    assert [(report.epoch, report.window) for report in first if report.window] == [(0, 3)]
    assert [report.folder for report in first] == [report.folder for report in second]


# --- a signal ---------------------------------------------------------------------------------------------------------


def ask_to_stop(x: Tensor) -> Tensor:
    os.kill(os.getpid(), signal.SIGTERM)
    return x


def keep_until_asked(folder: Path, every: int) -> CheckpointedRun:
    """Train with a stop request on rank 1 only, in the phase's second window."""
    calls = count()
    plant = of_rank(1, lambda x: ask_to_stop(x) if next(calls) == 1 else x)
    return keep(Checkpoints(folder, keep=20, every_seconds=None), plant, every=every)


@pytest.mark.parametrize(
    ("every", "place"),
    [(1, "after window 2 of epoch 1"), (2, "after window 4 of epoch 1")],
    ids=["in every window", "in every second window"],
)
def test_a_signal_to_one_rank_stops_both_after_the_same_window_with_one_checkpoint(
    tmp_path: Path, every: int, place: str
) -> None:
    first, second = on_ranks(keep_until_asked, tmp_path, every)
    (newest,) = tmp_path.glob("window-*")
    assert first.error == f"{StoppedError.__name__}: stopped by SIGTERM {place}; the checkpoint is {newest}"
    assert second.error == first.error


# --- mismatched processes --------------------------------------------------------------------------------------------

Difference = Literal["width", "dtype", "precision", "accumulate", "lr", "clip", "every", "name", "ema"]


def differ(what: Difference) -> None:
    """Start a run with one setting changed on rank 1."""
    other = launched_rank() == 1 and what
    dtype = torch.float64 if other == "dtype" else torch.float32
    net = small_network(dtype, width=5 if other == "width" else 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2 if other == "lr" else 0.1)
    phase = Phase[Rows](
        "other" if other == "name" else "main",
        partial(squared_error, net, unchanged),
        net.parameters(),
        optimizer,
        clip=None if other == "clip" else 1.0,
        every=2 if other == "every" else 1,
    )
    loop = Loop(
        [phase],
        modules={"net": net},
        device="cpu",
        precision="bf16" if other == "precision" else "fp32",
        accumulate=2 if other == "accumulate" else 1,
        ema=0.9 if other == "ema" else None,
    )
    with loop.running():
        pass


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("width", "the networks"),
        ("dtype", "the networks"),
        ("precision", "the precision"),
        ("accumulate", "the accumulation window"),
        ("lr", "the optimizer's settings in phase 'main'"),
        ("clip", "the phases"),
        ("every", "the phases"),
        ("name", "the phases"),
        ("ema", "the phases"),
    ],
)
def test_ranks_that_do_not_train_alike_are_refused(what: Difference, named: str) -> None:
    for ended in on_ranks(differ, what):
        assert ended.error.startswith(f"{ParallelismError.__name__}: the processes of a group must agree on {named}, ")


# --- buffers and frozen parts -----------------------------------------------------------------------------------------


def normalized() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def train_normalized() -> None:
    fit(normalized(), rows(3, 3))


def test_layers_that_mix_the_samples_of_a_batch_are_refused() -> None:
    for ended in on_ranks(train_normalized):
        assert ended.error.startswith(BatchCoupledError.__name__)
        assert "one process" in ended.error


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferStatistics:
    """Running statistics after every epoch, their validation, and rank 0's statistics alone."""

    statistics: list[list[float]]
    scores: list[float]
    alone: list[float]


def train_normalized_all_the_same() -> BufferStatistics:
    seed_everything(4)
    net, held_out = normalized(), TrainingConfig(sizes=(6, 5, 7), dtype=torch.float32).batches(seed=8)
    measured = BufferStatistics(statistics=[], scores=[], alone=[])
    score = partial(squared_error, net, unchanged)
    phase = Phase("main", score, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    loop = Loop([phase], modules={"net": net}, device="cpu", batch_coupled="accept")
    with loop.running() as run:
        validation = Validation(score, IterableSource(held_out))
        for report in run.epochs(rows(3, 8, 5, 4), max_epochs=2, validation=validation):
            if isinstance(report, EpochReport):
                measured.statistics.append(statistics_of(net))
                measured.scores.append(report.monitored)
                measured.alone.append(score_alone(net, held_out))
    return measured


def statistics_of(net: nn.Module) -> list[float]:
    return [value for buffer in net.buffers() for value in buffer.flatten().tolist()]


def score_alone(net: nn.Module, batches: Sequence[Rows]) -> float:
    """The mean squared error in evaluation mode, computed without the loop."""
    modes = [(part, part.training) for part in net.modules()]
    net.eval()
    errors = torch.cat([net(batch.x) - batch.y for batch in batches])
    for part, mode in modes:
        part.training = mode
    return errors.square().mean().item()


def test_all_ranks_validate_with_the_running_statistics_of_the_first() -> None:
    first, second = results_on_ranks(train_normalized_all_the_same)
    assert first.statistics == second.statistics
    assert first.scores == second.scores
    assert first.scores == pytest.approx(first.alone, rel=1e-6)


def keep_normalized(folder: Path) -> list[list[float]]:
    """Running statistics after every checkpoint; resumes if there is one."""
    seed_everything(4)
    net = normalized()
    statistics: list[list[float]] = []
    score = partial(squared_error, net, unchanged)
    phase = Phase("main", score, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    loop = Loop([phase], modules={"net": net}, device="cpu", batch_coupled="accept")
    with loop.running(Checkpoints(folder, every_windows=1, every_seconds=None)) as run:
        statistics.append(statistics_of(net))
        reports = run.epochs(rows(3, 8, 5, 4), max_epochs=1)
        statistics.extend(statistics_of(net) for report in reports if isinstance(report, CheckpointReport))
    return statistics


def test_a_checkpoint_holds_the_running_statistics_that_all_ranks_use(tmp_path: Path) -> None:
    first, second = results_on_ranks(keep_normalized, tmp_path)
    assert first == second
    assert len({tuple(statistics) for statistics in first}) == 3
    assert results_on_ranks(keep_normalized, tmp_path) == [[first[-1]]] * 2


class CachingModule(nn.Module):
    """A module that caches its last batch, whose size differs per rank."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 1)
        self.register_buffer("last", torch.zeros(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.last = x.detach()
        return self.inner(x)


def train_remembering() -> Tensor:
    net = CachingModule()
    fit(net, rows(3, 5))
    return net.last


def test_caches_stay_what_they_are_on_every_rank() -> None:
    batches = TrainingConfig(sizes=(3, 5), dtype=torch.float32).batches()
    for last, batch in zip(results_on_ranks(train_remembering), batches, strict=True):
        assert torch.equal(last, batch.x)


def freeze() -> list[float]:
    """Weights of a frozen network that each rank initialises differently."""
    seed_everything(launched_rank())
    net, frozen = small_network(), nn.Linear(3, 3)
    phase = Phase[Rows](
        "main", partial(squared_error, net, unchanged), net.parameters(), torch.optim.SGD([*net.parameters()])
    )
    with Loop([phase], modules={"net": net, "frozen": FrozenModule(frozen)}, device="cpu").running():
        return frozen.weight.flatten().tolist()


def test_frozen_parts_are_those_of_the_first_rank() -> None:
    first, second = results_on_ranks(freeze)
    assert first == second


# --- torchrun ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_torchrun_trains_the_example_without_a_warning() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(EXAMPLE)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert ended.stderr == ""
    assert "best 0.00" in ended.stdout
