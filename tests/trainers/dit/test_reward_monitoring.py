"""Reward monitoring: no effect on training, best weights kept, and collapse detection."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_reports import window
from tiny_images import tiny_model, write_images
from torch import Tensor

from trainers.dit.batches import RawImageFiles
from trainers.dit.errors import RewardError
from trainers.dit.images import ImageFolder, read_pictures
from trainers.dit.models import ImageModel
from trainers.dit.recipe import ImageRecipe, SamplingSettings
from trainers.dit.reward_monitor import EvaluationSnapshot, RewardMonitor, SampleEvaluator, has_collapsed
from trainers.dit.rewards import RewardInputs, RewardKind, create_reward
from trainers.dit.sampling import draw_images
from trainers.dit.training import ImageTrainingResult, fit
from trainers.loop import Checkpoints, Report, StoppedError, TrainingNotice, seed_everything
from trainers.progress import ReportConsumer

SAMPLING = SamplingSettings(steps=3, guidance=2.0, seed=11)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("monitor")
    write_images(place / "own", 32)
    write_images(place / "held", 8)
    return place


def pictures_of(folder: Path, model: ImageModel) -> ImageFolder:
    return read_pictures(folder, model.image_format, model.prompts.check)


class ScriptedReward:
    """A reward with a given sequence of values, the first for the trial; it records the images."""

    def __init__(self, rewards: list[float]) -> None:
        self._rewards = iter(rewards)
        self.seen: list[Tensor] = []

    def __call__(self, images: Tensor, prompts: object, targets: Tensor) -> Tensor:
        assert prompts
        assert len(targets) == len(images)
        self.seen.append(images)
        return torch.full((len(images),), next(self._rewards))


def monitor_of(
    model: ImageModel, folder: Path, reward: ScriptedReward, *, every: int = 2, patience: int = 2
) -> RewardMonitor:
    material = RewardInputs(pictures_of(folder / "own", model), pictures_of(folder / "held", model), count=8)
    checked = create_reward("listed", material, {"listed": RewardKind(lambda _: reward)})
    evaluator = SampleEvaluator(model, material, [checked], SAMPLING)
    return RewardMonitor(evaluator, "listed", every=every, patience=patience)


def train_monitored(
    folder: Path,
    reward: ScriptedReward | None,
    steps: int,
    *,
    every: int = 2,
    ema: float = 0.5,
    checkpoints: Checkpoints | None = None,
    consume: ReportConsumer = iter,
) -> tuple[ImageModel, ImageTrainingResult]:
    model = tiny_model().learning("flow")
    images = RawImageFiles(pictures_of(folder / "own", model), model.prompts)
    recipe = ImageRecipe(steps=steps, batch_size=4, ema=ema, device="cpu")
    seed_everything(0)
    monitor = None if reward is None else monitor_of(model, folder, reward, every=every)
    return model, fit(model, images, recipe, checkpoints, consume, monitor)


def weights(model: ImageModel) -> Tensor:
    return torch.cat([weight.flatten() for weight in model.network.module.state_dict().values()])


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_monitoring_changes_no_bit_of_the_weights(folder: Path, ema: float) -> None:
    watched, learnt = train_monitored(folder, ScriptedReward([0.0, 1, 2, 3, 4]), 8, ema=ema)  # the last is the best
    alone, lonely = train_monitored(folder, None, 8, ema=ema)
    assert torch.equal(weights(watched), weights(alone))
    assert learnt.loss == lonely.loss
    assert [snapshot.window for snapshot in learnt.snapshots] == [2, 4, 6, 8]
    assert [snapshot.rewards["listed"] for snapshot in learnt.snapshots] == [1, 2, 3, 4]


def test_the_weights_of_the_best_reward_are_kept(folder: Path) -> None:
    reward = ScriptedReward([0.0, 1, 5, 4, 4.5])
    model, _ = train_monitored(folder, reward, 8)
    drawn = draw_images(model, [f"a bar on the {side}" for side in ("left", "right", "top", "bottom")] * 2, SAMPLING)
    torch.testing.assert_close(drawn, reward.seen[2], atol=1e-5, rtol=0)  # of averaged weights, second snapshot
    assert not torch.allclose(reward.seen[1], reward.seen[2], atol=1e-4)


def test_a_collapse_is_a_loss_of_more_than_half_of_the_gain_several_looks_in_a_row() -> None:
    assert not has_collapsed([1.0, 3.0, 1.9], 2)
    assert has_collapsed([1.0, 3.0, 1.9, 1.9], 2)
    assert not has_collapsed([1.0, 3.0, 2.0, 2.0], 2)  # exactly half
    assert not has_collapsed([1.0, 3.0, 1.9, 2.5, 1.9], 2)
    assert not has_collapsed([-5.0, -5.0, -5.0], 2)
    assert not has_collapsed([1.0, 3.0, 0.0, 0.0, 0.0], 0)


def test_what_has_hardly_risen_may_go_up_and_down_and_collapses_where_half_of_the_first_look_is_lost() -> None:
    assert not has_collapsed([0.117, 0.118, 0.087, 0.087, 0.087], 2)
    assert has_collapsed([0.95, 0.96, 0.4, 0.4], 2)
    assert not has_collapsed([-5.0, -7.4, -7.4], 2)
    assert has_collapsed([-5.0, -7.6, -7.6], 2)


def test_a_training_that_collapses_ends_with_the_best_weights(folder: Path) -> None:
    reward = ScriptedReward([0.0, 1, 5, 2, 2, 9])
    model, learnt = train_monitored(folder, reward, 20)
    assert learnt.collapsed
    assert [snapshot.window for snapshot in learnt.snapshots] == [2, 4, 6, 8]
    best, _ = train_monitored(folder, ScriptedReward([0.0, 1, 5]), 4)
    drawn = draw_images(model, ["a bar on the left"], SAMPLING)
    assert drawn.shape == (1, 1, 8, 8)
    assert not torch.equal(weights(model), weights(best))  # a shorter training has another schedule


def test_a_resumed_training_remembers_the_monitored_values(folder: Path, tmp_path: Path) -> None:
    def stopped(reports: Iterable[Report]) -> Iterator[Report]:
        for report in reports:
            yield report
            if len(reward.seen) == 3:
                raise StoppedError("enough", signal=2)

    whole, learnt = train_monitored(folder, ScriptedReward([0.0, 1, 2, 5, 3]), 8)
    reward = ScriptedReward([0.0, 1, 2, 5, 3])
    with pytest.raises(StoppedError):
        train_monitored(folder, reward, 8, checkpoints=Checkpoints(tmp_path, every_seconds=1e-9), consume=stopped)
    again, rest = train_monitored(
        folder, ScriptedReward([0.0, 2, 5, 3]), 8, checkpoints=Checkpoints(tmp_path, every_seconds=1e-9)
    )
    assert rest.snapshots == learnt.snapshots
    assert torch.equal(weights(again), weights(whole))


def test_looks_count_steps_and_not_windows_also_where_a_training_goes_on() -> None:
    class Counted:
        """A monitor that only counts."""

        def evaluate(self, run: Any) -> EvaluationSnapshot:
            return EvaluationSnapshot(run.windows, {"listed": float(run.windows)})

    class Still:
        """A run that does not progress."""

        windows = 7

        def stalled(self, score: float, *, patience: int) -> None:
            assert (score, patience) == (-7.0, 1)

    def made() -> RewardMonitor:
        evaluator: Any = Counted()
        return RewardMonitor(evaluator, "listed", every=2, patience=0)

    run: Any = Still()
    first, second = made(), made()
    reports = [window(number, stepped=number % 3 != 2) for number in range(7)]
    told = [one.message for one in first.monitor(run, reports[:4]) if isinstance(one, TrainingNotice)]
    assert told == ["after 2 steps: listed 7"]
    second.load_state_dict(first.state_dict())
    told = [one.message for one in second.monitor(run, reports[4:]) if isinstance(one, TrainingNotice)]
    assert told == ["after 4 steps: listed 7"]


def test_many_images_begin_with_noise_of_their_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model().learning("flow")
    material = RewardInputs(pictures_of(folder / "own", model), pictures_of(folder / "held", model), count=8)
    whole = SampleEvaluator(model, material, [], SAMPLING)._build_requests()
    monkeypatch.setattr("trainers.dit.reward_monitor.TOGETHER", 3)
    parts = SampleEvaluator(model, material, [], SAMPLING)._build_requests()
    assert [len(part.indices) for part in parts] == [3, 3, 2]
    assert torch.equal(torch.cat([part.noise for part in parts]), whole[0].noise)
    assert torch.equal(torch.cat([part.condition.embeddings for part in parts]), whole[0].condition.embeddings)


def test_too_few_held_out_images_are_refused(folder: Path) -> None:
    model = tiny_model().learning("flow")
    material = RewardInputs(pictures_of(folder / "own", model), pictures_of(folder / "held", model), count=9)
    with pytest.raises(RewardError, match=r"9 images were requested, but .*held has prompts for only 8"):
        SampleEvaluator(model, material, [], SAMPLING)


def test_a_look_tells_why_a_distance_has_a_minus() -> None:
    assert EvaluationSnapshot(3, {"classifier": 0.9}).figures == "classifier 0.9"
    said = EvaluationSnapshot(3, {"classifier": 0.9, "frechet": -2.04}).figures
    assert said == "classifier 0.9, Fréchet distance 2.04 (lower is better)"
