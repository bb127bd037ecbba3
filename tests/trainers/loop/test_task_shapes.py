"""Two unusual tasks trained by the unchanged loop.

Speech has two competing optimizers and padded batches; diffusion has frozen parts, random noise and weights.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from diffusion_shape import Pictures, diffusion
from hypothesis import given, settings
from hypothesis import strategies as st
from shortages import Shortage, Stage
from speech_shape import ByFrames, Utterances, speech
from task_shape import TaskOptions, TaskShape
from torch import Tensor, nn
from training_results import TrainingResult, content, reported, result_of, until

from trainers.loop import (
    Checkpoints,
    EpochReport,
    FrozenModule,
    IterableSource,
    Report,
    ResumeMismatchError,
    StepReport,
    TrainingRun,
    seed_everything,
)

Make = Callable[[TaskOptions], TaskShape]
EXACT = TaskOptions(random=False, double=True)
both = pytest.mark.parametrize("make", [speech, diffusion])


@pytest.fixture(autouse=True, scope="module")
def without_fsync() -> Iterator[None]:
    """Skip fsync: written data outlives the process anyway."""

    def unneeded(_: int) -> None:
        """Replaces flushing a file."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", unneeded)
        yield


def trained_weights(task: TaskShape) -> dict[str, Tensor]:
    """Trained weights by name."""
    return {
        f"{name}.{path}": tensor.detach().clone()
        for name, module in task.modules.items()
        if isinstance(module, nn.Module)
        for path, tensor in module.named_parameters()
    }


def frozen_tensors(task: TaskShape) -> dict[str, bytes]:
    """Every frozen tensor by name."""
    return {
        f"{name}.{path}": content(tensor)
        for name, module in task.modules.items()
        if isinstance(module, FrozenModule)
        for path, tensor in module.module.state_dict().items()
    }


def windows_of(reports: Sequence[Report]) -> list[StepReport]:
    return [report for report in reports if isinstance(report, StepReport)]


def split_batch(batch: Any, places: Sequence[int]) -> list[Any]:
    """The batch split into separate batches."""
    if isinstance(batch, Utterances):
        edges = [0, *places, len(batch.lengths)]
        return [ByFrames().cut(batch, start, stop) for start, stop in pairwise(edges)]
    edges = [0, *places, len(batch.tokens)]
    return [Pictures(*(column[start:stop] for column in batch)) for start, stop in pairwise(edges)]


def join_batches(batches: Sequence[Any]) -> Any:
    """The batches joined, with padding."""
    if isinstance(batches[0], Pictures):
        return Pictures(*(torch.cat(columns) for columns in zip(*batches, strict=True)))
    longest = max(batch.frames.shape[1] for batch in batches)
    padded = [
        Utterances(
            nn.functional.pad(batch.tokens, (0, longest - batch.tokens.shape[1])),
            nn.functional.pad(batch.frames, (0, 0, 0, longest - batch.frames.shape[1])),
            batch.lengths,
        )
        for batch in batches
    ]
    return Utterances(*(torch.cat(columns) for columns in zip(*padded, strict=True)))


def train_task(task: TaskShape, windows: Sequence[Sequence[Any]]) -> list[StepReport]:
    """Train on windows of equal numbers of batches, twice, so that every phase takes a step."""
    (size,) = {len(window) for window in windows}
    batches = [batch for window in windows for batch in window]
    with task.loop(accumulate=size, ema=None).running() as run:
        return windows_of(list(run.epochs(IterableSource(batches), max_epochs=1)))


# --- counts


@both
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_partition_of_the_samples_gives_the_same_updates_of_all_phases(make: Make, data: st.DataObject) -> None:
    whole, parts = make(EXACT), make(EXACT)
    windows = [join_batches(whole.batches[:2]), join_batches(whole.batches[2:4])]
    number = data.draw(st.integers(1, 4))
    cuts = [
        split_batch(window, sorted(data.draw(st.sets(st.integers(1, 5), min_size=number - 1, max_size=number - 1))))
        for window in windows
    ]
    expected = train_task(whole, [[window] for window in windows])
    found = train_task(parts, cuts)
    for name, tensor in trained_weights(parts).items():
        assert torch.allclose(tensor, trained_weights(whole)[name], rtol=1e-6, atol=1e-9), name
    assert [(report.phase, report.count) for report in found] == [(report.phase, report.count) for report in expected]
    assert [report.loss for report in found] == pytest.approx([report.loss for report in expected], rel=1e-9)
    assert [report.parts for report in found] == [pytest.approx(report.parts, rel=1e-9) for report in expected]


def test_speech_counts_frames_and_not_their_padding() -> None:
    task = speech(TaskOptions())
    (window,) = windows_of(train_task(task, [[task.batches[0]]]))
    assert (window.phase, window.count) == ("generator", 6 + 3 + 2 + 5)


def test_diffusion_counts_the_weights_of_its_samples() -> None:
    task = diffusion(TaskOptions())
    (window,) = train_task(task, [[task.batches[0]]])
    assert window.count == int(task.batches[0].weights.sum())
    assert -1 < window.parts["reward"] < 1


# --- memory that runs out


@both
@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_a_shortage_gives_the_bits_of_a_training_started_at_the_size_that_was_found(make: Make, stage: Stage) -> None:
    short = Shortage(stage, fits=2)
    searching, knowing = make(TaskOptions(strain=short)), make(TaskOptions())
    seed_everything(5)
    with searching.loop(accumulate=2).running() as run:
        reports = windows_of(list(run.epochs(IterableSource(searching.batches[:4]), max_epochs=2)))
        found = {phase.phase.name: phase.cutter.limit for phase in run._parts.phases}
        searched = result_of(run)
    seed_everything(5)
    with knowing.loop(accumulate=2).running() as run:
        for phase in run._parts.phases:
            phase.cutter.limit = found[phase.phase.name]
        list(run.epochs(IterableSource(knowing.batches[:4]), max_epochs=2))
        known = result_of(run)
    assert short.failures > 0
    assert {report.phase for report in reports if report.shortages} == found.keys()
    assert (searched.weights, searched.averages) == (known.weights, known.averages)
    assert searched.optimizers == known.optimizers
    assert searched.generator == known.generator


def test_speech_is_cut_by_padded_frames() -> None:
    short = Shortage("forward", fits=2)
    task = speech(TaskOptions(strain=short))
    with task.loop(accumulate=1).running() as run:
        reports = windows_of(list(run.epochs(IterableSource([task.batches[0]]), max_epochs=1)))
    assert [report.micro_batch_limit for report in reports] == [4 * 6 // 2]
    assert short.sizes == [4, 2, 2]


# --- phases and frozen parts


@both
def test_a_phase_leaves_no_gradient_in_other_phases_parameters_and_none_in_frozen_ones(make: Make) -> None:
    task = make(TaskOptions())
    before = frozen_tensors(task)
    modules = [module.module if isinstance(module, FrozenModule) else module for module in task.modules.values()]
    with task.loop(accumulate=1).running() as run:
        next(run.epochs(task.source(), max_epochs=1))
        with_gradient = {
            parameter for module in modules for parameter in module.parameters() if parameter.grad is not None
        }
        assert with_gradient == set(task.phases[-1].parameters)  # the discriminator skips the first window
        list(run.epochs(task.source(), max_epochs=2))
    assert frozen_tensors(task) == before


@both
def test_every_phase_has_its_own_steps_schedule_scale_and_clip(make: Make) -> None:
    task = make(TaskOptions())
    with task.loop(accumulate=1).running() as run:
        reports = windows_of(list(run.epochs(task.source(), max_epochs=2)))
    for phase in task.phases:
        own = [report for report in reports if report.phase == phase.name]
        assert [report.step for report in own] == list(range(1, len(own) + 1))
        assert len(own) == 10 // phase.every
        assert len({report.learning_rate for report in own}) == len(own)
        assert {report.loss_scale for report in own} == {None if task.precision.scaler is None else 65536.0}


def test_frozen_parts_are_not_in_a_checkpoint(tmp_path: Path) -> None:
    task = diffusion(TaskOptions())
    with task.loop(accumulate=1).running(Checkpoints(tmp_path, every_windows=1)) as run:
        until(run.epochs(task.source(), max_epochs=1), 2)
    (folder,) = tmp_path.glob("window-*")
    written = safetensors.torch.load_file(folder / "modules.safetensors")
    assert set(written) == set(trained_weights(task))


def test_other_frozen_weights_are_another_training(tmp_path: Path) -> None:
    task = diffusion(TaskOptions())
    with task.loop(accumulate=1).running(Checkpoints(tmp_path, every_windows=1)) as run:
        until(run.epochs(task.source(), max_epochs=1), 2)
    other = diffusion(TaskOptions())
    text = other.modules["text"]
    assert isinstance(text, FrozenModule)
    with torch.no_grad():
        next(text.module.parameters()).add_(1.0)
    with (
        pytest.raises(ResumeMismatchError, match="frozen text"),
        other.loop(accumulate=1).running(Checkpoints(tmp_path)),
    ):
        pass


# --- averages and validation


@both
def test_a_validation_scores_the_averages_and_not_the_weights(make: Make) -> None:
    task = make(TaskOptions(random=False))
    with task.loop(accumulate=2).running() as run:
        list(run.epochs(task.source(), max_epochs=3))
        validation = task.validation()
        averaged = run.validate(validation.score, validation.source).mean
        current = by_hand(task)
        run.use_average()
        settled = by_hand(task)
    assert averaged == pytest.approx(settled, rel=1e-6)
    assert averaged != pytest.approx(current, rel=1e-3)


def by_hand(task: TaskShape) -> float:
    """The score with the current weights."""
    scores = [task.score(batch) for batch in task.batches[:2]]
    return sum(score.mean.item() * score.count for score in scores) / sum(score.count for score in scores)


# --- killed and resumed


def life(make: Make, folder: Path, windows: int = 99) -> tuple[list[dict[str, Any]], TrainingResult]:
    """Train until killed at the report of a window; a resumed run starts from other weights."""
    resumed = any(folder.glob("window-*"))
    task = make(TaskOptions())
    seed_everything(99 if resumed else 1)
    if resumed:
        scrambled(task)
    with task.loop(accumulate=2).running(Checkpoints(folder, every_windows=1)) as run:
        reports = until(_followed(run, task), windows)
        return reported(reports), result_of(run)


def scrambled(task: TaskShape) -> None:
    """Replace the task's weights, so that only a checkpoint can restore them."""
    with torch.no_grad():
        for phase in task.phases:
            for parameter in phase.parameters:
                parameter.normal_()


def _followed(run: TrainingRun[Any], task: TaskShape) -> Iterator[Report]:
    for report in run.epochs(task.source(), max_epochs=3, validation=task.validation()):
        yield report
        if isinstance(report, EpochReport):
            run.stalled(report.monitored, patience=9)


@both
@pytest.mark.parametrize("windows", [2, 4, 5, 9])
def test_a_task_killed_and_resumed_leaves_the_same_bits_in_weights_averages_and_optimizers(
    tmp_path: Path, make: Make, windows: int
) -> None:
    whole, left = life(make, tmp_path / "whole")
    life(make, tmp_path / "cut", windows)
    reports, found = life(make, tmp_path / "cut")
    assert found == left
    assert reports == whole[-len(reports) :]
