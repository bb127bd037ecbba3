"""Resuming: bit for bit the result of an uninterrupted training run."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from interrupted_training import ProcessRun, Training, samples
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader, Dataset
from training_results import checkpoint_reports, messages, reported, result_of, until

from trainers.loop import (
    Checkpoints,
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    Phase,
    ResumeMismatchError,
    Source,
    StoppedError,
    Validation,
    seed_everything,
)

TESTS = Path(__file__).parents[2]
DYING_TRAINER = Path(__file__).with_name("dying_trainer.py")
KILLS = 20


def skip_fsync(_: int) -> None:
    """Replaces flushing a file."""


@pytest.fixture(autouse=True, scope="module")
def without_fsync() -> Iterator[None]:
    """Skip fsync: written data outlives the process anyway."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", skip_fsync)
        yield


def assert_continued(whole: ProcessRun, last: ProcessRun) -> None:
    """Assert that the resumed run ends like the uninterrupted one, with the same reports."""
    once, again = reported(whole.reports), reported(last.reports)
    assert again == once[len(once) - len(again) :]
    assert last.left == whole.left


def shuffling(data: Tensor) -> Source[Tensor]:
    return IterableSource(DataLoader(data, batch_size=3, shuffle=True))  # pyright: ignore[reportArgumentType]  a tensor is a dataset


def uncounted(data: Tensor) -> Source[Tensor]:
    return IterableSource(StreamedBatches(data))


class AugmentedSamples(Dataset[Tensor]):
    """Samples with fresh noise on every read."""

    def __init__(self, data: Tensor) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Tensor:
        return self._data[index] + 0.1 * torch.randn(4)


def augmenting(data: Tensor) -> Source[Tensor]:
    return IterableSource(DataLoader(AugmentedSamples(data), batch_size=3, shuffle=True))


class StreamedBatches:
    """A stream of batches of unknown length."""

    def __init__(self, data: Tensor) -> None:
        self._data = data

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._data.split(3))


# --- interrupted and resumed


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    training=st.builds(
        Training,
        accumulate=st.integers(1, 4),
        every_windows=st.sampled_from([1, 2, 3, None]),
        samples=st.integers(4, 17),
        ema=st.sampled_from([None, 0.8]),
        patience=st.integers(1, 3),
    ),
    cuts=st.lists(st.integers(1, 6), min_size=1, max_size=3),
)
def test_a_training_left_after_any_windows_resumes_to_the_same_bits(training: Training, cuts: list[int]) -> None:
    with TemporaryDirectory() as name:
        whole, folder = training.live(Path(name) / "whole"), Path(name) / "cut"
        for windows in cuts:
            training.live(folder, windows=windows)
        assert_continued(whole, training.live(folder))


@pytest.mark.parametrize("source", [shuffling, augmenting, uncounted])
@pytest.mark.parametrize("windows", [2, 3, 5])
def test_any_source_resumes_where_it_stopped(
    tmp_path: Path, source: Callable[[Tensor], Source[Tensor]], windows: int
) -> None:
    training = Training(source=source, epochs=3)
    whole = training.live(tmp_path / "whole")
    training.live(tmp_path / "cut", windows=windows)
    assert_continued(whole, training.live(tmp_path / "cut"))


def orders(*, seed: int) -> list[list[float]]:
    """Samples of three epochs of a shuffling loader, in order of use."""
    seed_everything(seed)
    seen: list[list[float]] = [[]]
    net = nn.Linear(1, 1)

    def loss(batch: Tensor) -> Loss:
        seen[-1].extend(batch[:, 0].tolist())
        return Loss(net(batch).square().mean(), len(batch))

    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        reports = run.epochs(shuffling(torch.arange(12.0).reshape(12, 1)), max_epochs=3)
        seen.extend([] for report in reports if isinstance(report, EpochReport))
    return seen[:3]


def test_a_shuffling_loader_gives_every_epoch_and_every_seed_another_order_of_all_samples() -> None:
    found = [*orders(seed=1), *orders(seed=2)]
    assert [sorted(order) for order in found] == [list(range(12))] * 6
    assert len({tuple(order) for order in found}) == 6


class RandomBatches:
    """Batches that draw unused random numbers."""

    def __init__(self, batches: list[Tensor]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Tensor]:
        for batch in self._batches:
            torch.rand(5)
            yield batch


def test_random_numbers_that_a_source_draws_are_not_those_of_the_training() -> None:
    batches = list(samples(12).split(3))
    quiet, drawing = (trained_with_dropout(IterableSource(each)) for each in (batches, RandomBatches(batches)))
    assert torch.equal(quiet, drawing)


def trained_with_dropout(source: Source[Tensor]) -> Tensor:
    seed_everything(8)
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 1))
    phase = Phase("main", partial(squared, net), net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    with Loop([phase], modules={"net": net}, device="cpu", accumulate=2).running() as run:
        list(run.epochs(source, max_epochs=2))
    return next(net.parameters()).detach()


def test_history_best_value_and_epoch_come_back_before_anything_is_trained(tmp_path: Path) -> None:
    training = Training(epochs=2)
    before = training.live(tmp_path)
    after = training.live(tmp_path)
    assert reported(after.reports) == []
    assert after.left == before.left
    assert len(after.left.history) == 2


def test_a_longer_training_resumes_a_finished_one(tmp_path: Path) -> None:
    training = Training(epochs=4, patience=9)
    whole = training.live(tmp_path / "whole")
    replace(training, epochs=2).live(tmp_path / "cut")
    last = training.live(tmp_path / "cut")
    assert [report.epoch for report in last.reports if isinstance(report, EpochReport)] == [2, 3]
    assert last.left.weights == whole.left.weights
    assert last.left.averages == whole.left.averages
    assert last.left.best == whole.left.best


def test_a_damaged_newest_checkpoint_is_reported_and_an_older_one_gives_the_same_bits(tmp_path: Path) -> None:
    training = Training()
    whole = training.live(tmp_path / "whole")
    training.live(tmp_path / "cut", windows=4)
    newest = max((tmp_path / "cut").glob("window-*"))
    os.truncate(newest / "state.pt", 1000)
    last = training.live(tmp_path / "cut")
    assert messages(last.reports) == [
        f"skipped a damaged checkpoint: {newest.name}: state.pt has 1000 bytes and should have "
        + messages(last.reports)[0].rpartition(" ")[2],
        f"resuming after window 2 of epoch 1, from {tmp_path / 'cut' / 'window-000000002'}",
    ]
    assert_continued(whole, last)


def test_an_unwritable_checkpoint_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    training = Training(patience=9)
    whole = training.live(tmp_path / "whole")
    folder, away = tmp_path / "cut", tmp_path / "away"

    def unplug(moment: int) -> None:
        """Make the disk unavailable temporarily."""
        if moment == 6:
            folder.rename(away)
        if moment == 20:
            away.rename(folder)

    last = training.live(folder, moment=unplug)
    problems = [report.problem for report in checkpoint_reports(last.reports)]
    assert problems[0] is None
    assert problems[-1] is None
    assert any(problem is not None and "cannot be written" in problem for problem in problems)
    assert_continued(whole, last)
    assert training.live(folder).left == whole.left


# --- in one process, without checkpoints


def test_epochs_called_again_go_on_after_the_window_at_which_they_were_left() -> None:
    def lived(cuts: list[int]) -> list[dict[str, object]]:
        seed_everything(3)
        net = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        phase = Phase[Tensor]("main", lambda b: Loss(net(b).square().mean(), len(b)), net.parameters(), optimizer)
        source = shuffling(samples(17))
        with Loop([phase], modules={"net": net}, device="cpu", accumulate=2).running() as run:
            reports = [each for cut in cuts for each in until(run.epochs(source, max_epochs=3), cut)]
            return [*reported([*reports, *run.epochs(source, max_epochs=3)]), {"weights": result_of(run).weights}]

    left_in_an_epoch, never_left = lived([1, 4]), lived([])
    assert left_in_an_epoch == never_left


# --- another training is refused


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (Training(accumulate=3), r"\(accumulate x processes\) is 2 in the checkpoint and 3 here"),
        (Training(hidden=5), r"net\.0\.weight is float32\[4, 3\] in the checkpoint and float32\[5, 3\] here"),
        (Training(ema=None), r"average's decay of phase 'main' is 0\.8 in the checkpoint and None here"),
        (Training(ema=0.9), r"average's decay of phase 'main' is 0\.8 in the checkpoint and 0\.9 here"),
        (Training(clip=None), r"clip of phase 'main' is 1\.0 in the checkpoint and None here"),
        (Training(optimizer=torch.optim.NAdam), "optimizer of phase 'main' is AdamW in the checkpoint and NAdam here"),
        (Training(identity={"data": "b"}), 'data was absent and is now "b"'),
    ],
    ids=["window", "network", "no average", "another average", "clip", "optimizer", "settings"],
)
def test_another_training_is_refused_and_what_differs_named(tmp_path: Path, other: Training, named: str) -> None:
    Training().live(tmp_path, windows=2)
    with pytest.raises(ResumeMismatchError, match=named):
        other.live(tmp_path)


def phases_of(nets: dict[str, nn.Module], *, scheduled: bool, every: int) -> list[Phase[Tensor]]:
    made: list[Phase[Tensor]] = []
    for name, net in nets.items():
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scheduler = ExponentialLR(optimizer, 0.9) if scheduled else None
        made.append(Phase(name, partial(squared, net), net.parameters(), optimizer, scheduler, every=every))
    return made


def squared(net: nn.Module, batch: Tensor) -> Loss:
    return Loss(net(batch).square().mean(), len(batch))


def two_phases(folder: Path, names: tuple[str, ...], *, scheduled: bool = False, every: int = 1) -> None:
    nets: dict[str, nn.Module] = {name: nn.Linear(4, 1) for name in names}
    loop = Loop(phases_of(nets, scheduled=scheduled, every=every), modules=nets, device="cpu")
    with loop.running(Checkpoints(folder, every_windows=1)) as run:
        list(run.epochs(IterableSource([samples(3)] * 2), max_epochs=1))


def test_other_phases_are_refused(tmp_path: Path) -> None:
    two_phases(tmp_path, ("one", "two"))
    with pytest.raises(ResumeMismatchError, match=r"phases is \['one', 'two'\] in the checkpoint and \['two'\] here"):
        two_phases(tmp_path, ("two",))
    with pytest.raises(ResumeMismatchError, match="every of phase 'one' is 1 in the checkpoint and 2 here"):
        two_phases(tmp_path, ("one", "two"), every=2)
    with pytest.raises(ResumeMismatchError, match="scheduler of phase 'one' is None in the checkpoint and Exponential"):
        two_phases(tmp_path, ("one", "two"), scheduled=True)


def test_parameters_in_another_order_are_refused_because_states_go_by_number(tmp_path: Path) -> None:
    def train(*, turned: bool) -> None:
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        parameters = list(net.parameters())
        optimizer = torch.optim.Adam(parameters[::-1] if turned else parameters)
        phase = Phase[Tensor]("main", partial(squared, net), parameters, optimizer)
        with Loop([phase], modules={"net": net}, device="cpu").running(Checkpoints(tmp_path, every_windows=1)) as run:
            until(run.epochs(IterableSource([samples(3)] * 3), max_epochs=1), 2)

    train(turned=False)
    with pytest.raises(ResumeMismatchError, match=r"parameter 0 in group 0 of phase 'main' is net\.0\.weight in"):
        train(turned=True)


# --- signals and kills


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_in_mid_window_ends_it_with_a_checkpoint_from_which_the_same_bits_come(
    tmp_path: Path, number: signal.Signals
) -> None:
    training = Training(every_windows=None, source=shuffling)
    whole = training.live(tmp_path / "whole")

    def send(moment: int) -> None:
        if moment == 4:  # the second forward of the second window
            os.kill(os.getpid(), number)

    with pytest.raises(
        StoppedError, match=rf"stopped by {number.name} after window 2 of epoch 1; the check"
    ) as stopped:
        training.live(tmp_path / "cut", moment=send)
    assert stopped.value.signal == number
    last = training.live(tmp_path / "cut")
    assert messages(last.reports)[0].startswith("resuming after window 2 of epoch 1, from ")
    assert_continued(whole, last)


def test_a_stop_signal_without_a_writable_checkpoint_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "cut"

    def send(moment: int) -> None:
        if moment == 4:
            folder.rename(tmp_path / "away")
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(StoppedError, match=r"stopped by SIGTERM .* but the checkpoint could not be written: "):
        Training().live(folder, moment=send)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_training_killed_at_any_moment_twenty_times_ends_with_the_same_bits(tmp_path: Path) -> None:
    """Kills happen in forwards, at reports, and in the steps of writing a checkpoint."""
    ended = subprocess.run(
        [sys.executable, DYING_TRAINER, tmp_path, str(KILLS)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )
    assert ended.stderr == ""
    *lives, last, verdict = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [life["signal"] for life in lives] == [signal.SIGKILL] * KILLS
    assert [life["newest"] for life in lives] == sorted(life["newest"] for life in lives)
    assert last["signal"] == 0
    assert verdict == {"equal": True}


# --- validation and its random numbers


class MemoryLimitedScore:
    """A score that draws random numbers and fits only a few samples in memory."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.sizes: list[int] = []

    def __call__(self, batch: Tensor) -> Loss:
        self.sizes.append(len(batch))
        if len(batch) > self.most:
            raise torch.OutOfMemoryError("out of memory")
        return Loss((batch + torch.randn(batch.shape)).mean(), len(batch))


def idle() -> Loop[Tensor]:
    net = nn.Linear(4, 1)
    phase = Phase("main", partial(squared, net), net.parameters(), torch.optim.SGD(net.parameters()))
    return Loop([phase], modules={"net": net}, device="cpu")


def test_a_validation_that_draws_random_numbers_is_the_same_every_time_and_leaves_the_training_s_alone() -> None:
    with idle().running() as run:
        before = torch.get_rng_state()
        first = run.validate(MemoryLimitedScore(9), IterableSource([samples(8)]))
        assert torch.equal(torch.get_rng_state(), before)
        torch.rand(3)
        assert run.validate(MemoryLimitedScore(9), IterableSource([samples(8)])).mean == first.mean


@pytest.mark.slow
def test_a_validation_that_ran_out_of_memory_gives_the_bits_of_one_begun_in_small_micro_batches() -> None:
    seed_everything(4)
    score, source = MemoryLimitedScore(2), IterableSource([samples(2), samples(8), samples(3)])
    with idle().running() as run:
        searching = run.validate(score, source)
        knowing = run.validate(score, source)
    assert score.sizes == [2, 8, 2, 4, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1]
    assert searching.mean == knowing.mean
    assert searching.count == 13


@pytest.mark.slow
def test_a_validation_that_ran_out_of_memory_is_reported_once_after_its_epoch() -> None:
    net = nn.Linear(4, 1)
    phase = Phase("main", partial(squared, net), net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    validation = Validation(MemoryLimitedScore(2), IterableSource([samples(8)]))
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        reports = list(run.epochs(IterableSource([samples(3)]), max_epochs=2, validation=validation))
    assert [type(report).__name__ for report in reports] == [
        *("StepReport", "EpochReport", "TrainingNotice"),
        *("StepReport", "EpochReport"),
    ]
    assert messages(reports) == [
        "memory ran out in the validation; no sample was skipped: batches are scored in micro-batches of at most 2"
    ]


# --- with a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_training_on_a_gpu_resumes_with_its_dropout_to_the_same_bits(tmp_path: Path, precision: str) -> None:
    def live(folder: Path, windows: int) -> tuple[list[dict[str, object]], list[Tensor]]:
        seed_everything(99 if folder.exists() else 1)
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        phase = Phase[Tensor](
            "main",
            lambda b: Loss(net(b).float().square().mean(), len(b)),
            net.parameters(),
            torch.optim.AdamW(net.parameters()),
        )
        loop = Loop([phase], modules={"net": net}, device="cuda", precision=precision)
        with loop.running(Checkpoints(folder, every_windows=1)) as run:
            reports = until(run.epochs(shuffling(samples(24)), max_epochs=2), windows)
        return reported(reports), [parameter.detach().cpu() for parameter in net.parameters()]

    whole, expected = live(tmp_path / "whole", 99)
    live(tmp_path / "cut", 4)
    last, found = live(tmp_path / "cut", 99)
    assert last == whole[-len(last) :]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
