"""GRPO reward tuning: rollouts, updates, the gate, and resuming."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from rank_processes import results_on_ranks
from shortages import Shortage, Stage
from tiny_images import tiny_model, write_images
from torch import Tensor, nn

from trainers.dit.errors import GateError, RewardError, SchedulerError
from trainers.dit.grpo import PolicyLoss, PolicySampler, Rollouts, TuningResult, log_probability, tune
from trainers.dit.images import ImageFolder, read_pictures
from trainers.dit.models import ImageModel
from trainers.dit.recipe import GrpoRecipe, ObjectiveName, SamplingSettings
from trainers.dit.reward_monitor import RewardGate, SampleEvaluator
from trainers.dit.rewards import RewardInputs, RewardKind, ValidatedReward, create_reward
from trainers.dit.sampling import draw_images
from trainers.loop import (
    Checkpoints,
    OutOfMemoryError,
    Report,
    SettingsError,
    StepReport,
    StoppedError,
    TrainingNotice,
    seed_everything,
)
from trainers.progress import ReportConsumer

SMALL = GrpoRecipe(
    iterations=4, groups=3, members=4, draw_steps=4, trained_steps=2, gate_every=2, learning_rate=1e-3, device="cpu"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("grpo")
    write_images(place / "own", 32)
    write_images(place / "held", 8)
    return place


def pictures_of(folder: Path) -> ImageFolder:
    return read_pictures(folder, tiny_model().image_format, lambda _: None)


class FormulaReward:
    """A reward given by a formula."""

    def __init__(self, formula: Callable[[Tensor], Tensor]) -> None:
        self._formula = formula

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:
        assert len(images) == len(prompts) == len(targets)
        return self._formula(images)


def brightness(images: Tensor) -> Tensor:
    return images.mean((1, 2, 3))


def darkness(images: Tensor) -> Tensor:
    return -brightness(images)


def steady(images: Tensor) -> Tensor:
    return torch.full((len(images),), 0.25)


def checked(name: str, formula: Callable[[Tensor], Tensor], folder: Path) -> ValidatedReward:
    material = RewardInputs(pictures_of(folder / "own"), pictures_of(folder / "held"), count=8)
    return create_reward(name, material, {name: RewardKind(lambda _: FormulaReward(formula))})


def rollouts_of(folder: Path, recipe: GrpoRecipe = SMALL) -> tuple[ImageModel, Rollouts]:
    model = tiny_model().learning("flow")
    reward = checked("brightness", brightness, folder)
    return model, Rollouts(model, pictures_of(folder / "own"), reward, recipe)


def tuned(
    folder: Path,
    recipe: GrpoRecipe = SMALL,
    *,
    formula: Callable[[Tensor], Tensor] = brightness,
    quality: Callable[[Tensor], Tensor] = steady,
    checkpoints: Checkpoints | None = None,
    consume: ReportConsumer = iter,
    strain: Callable[[nn.Module, object, Tensor], Tensor] | None = None,
) -> tuple[ImageModel, TuningResult]:
    model = tiny_model().learning("flow")
    if strain is not None:
        end: Any = model.network.module.proj_out
        end.register_forward_hook(strain)
    reward, other = checked("mine", formula, folder), checked("other", quality, folder)
    material = RewardInputs(pictures_of(folder / "own"), pictures_of(folder / "held"), count=8)
    evaluator = SampleEvaluator(
        model, material, [reward, other], SamplingSettings(steps=4, guidance=recipe.guidance, seed=5)
    )
    gate = RewardGate(evaluator, reward="mine", quality="other", bound=recipe.bound, every=recipe.gate_every)
    seed_everything(recipe.seed)
    return model, tune(model, material.pictures, reward, gate, recipe, checkpoints, consume)


def weights(model: ImageModel) -> Tensor:
    return torch.cat([weight.flatten() for weight in model.network.module.state_dict().values()])


def test_what_is_drawn_are_groups_of_a_prompt_with_steps_as_probable_as_they_were(folder: Path) -> None:
    model, rollouts = rollouts_of(folder)
    torch.manual_seed(3)
    handed = iter(rollouts)
    moves = [next(handed) for _ in range(2)]
    assert len(rollouts.rounds) == 1
    assert {tuple(one.before.shape) for one in moves} == {(12, 4, 4, 4)}
    prompts = moves[0].condition.embeddings.view(3, 4, -1)
    assert all(bool((group == group[:1]).all()) for group in prompts)
    assert len({tuple(group[0].tolist()) for group in prompts}) == 3
    assert moves[0].advantages.view(3, 4).sum(1).tolist() == pytest.approx([0, 0, 0], abs=1e-4)
    steps = PolicySampler(model.unconditional(), SMALL)
    for one in moves:
        with torch.no_grad():
            step = steps.step(model.network, one.condition, one.before, one.timesteps, one.times, one.lengths)
        torch.testing.assert_close(log_probability(step, one.after), one.probability, rtol=1e-4, atol=1e-5)
        chance = (one.after - step.mean) / step.deviation[:, None, None, None]
        assert float(chance.std()) == pytest.approx(1, abs=0.15)
    next(handed)
    assert len(rollouts.rounds) == 2


def test_each_step_ends_where_the_next_begins_and_the_last_without_noise(folder: Path) -> None:
    _, rollouts = rollouts_of(folder, replace(SMALL, trained_steps=4))
    handed = iter(rollouts)
    moves = sorted((next(handed) for _ in range(4)), key=lambda one: -float(one.times[0]))
    assert float(moves[0].times[0]) == pytest.approx(1, abs=1e-3)
    for one, following in pairwise(moves):
        torch.testing.assert_close(one.times - one.lengths, following.times)
        assert torch.equal(one.after, following.before)
    assert (moves[-1].times - moves[-1].lengths).tolist() == [0] * 12


class RecordingReward:
    """A constant reward that records its inputs."""

    def __init__(self) -> None:
        self.prompts: list[tuple[str, ...]] = []
        self.targets: list[Tensor] = []

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:
        self.prompts.append(tuple(prompts))
        self.targets.append(targets)
        return torch.zeros(len(images))


def test_prompts_and_their_real_images_are_chosen_by_chance_and_belong_together(folder: Path) -> None:
    pictures, kept = pictures_of(folder / "own"), RecordingReward()
    model, recipe = tiny_model().learning("flow"), replace(SMALL, members=2, draw_steps=2, trained_steps=1)
    torch.manual_seed(1)
    handed = iter(Rollouts(model, pictures, ValidatedReward("kept", kept), recipe))
    for _ in range(6):
        next(handed)
    real = pictures.pixels(range(32)) / 2 + 0.5
    places = [[int((real - target).abs().flatten(1).sum(1).argmin()) for target in some] for some in kept.targets]
    for prompts, found, targets in zip(kept.prompts, places, kept.targets, strict=True):
        assert prompts[::2] == prompts[1::2]
        assert torch.equal(real[found], targets)
        assert [pictures.pictures[place].prompt for place in found] == list(prompts)
    assert len({place for found in places for place in found}) > 6
    assert len(set(kept.prompts)) > 2


def test_every_step_is_learnt_from_sooner_or_later(folder: Path) -> None:
    _, rollouts = rollouts_of(folder, replace(SMALL, groups=1, members=2, trained_steps=1))
    torch.manual_seed(1)
    handed = iter(rollouts)
    assert len({float(next(handed).times[0]) for _ in range(12)}) == 4


def test_more_groups_than_prompts_come_again(folder: Path) -> None:
    _, rollouts = rollouts_of(folder, replace(SMALL, groups=6, members=2, draw_steps=2, trained_steps=1))
    assert next(iter(rollouts)).advantages.shape == (12,)


def test_nothing_drops_out_while_images_are_drawn_to_learn_from(folder: Path) -> None:
    model, rollouts = rollouts_of(folder, replace(SMALL, draw_steps=2, trained_steps=1))
    modes: list[bool] = []
    model.network.module.train()
    model.network.module.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    next(iter(rollouts))
    assert modes == [False, False]


def test_the_loss_is_the_clipped_gain_and_the_price_of_going_away(folder: Path) -> None:
    model, rollouts = rollouts_of(folder)
    torch.manual_seed(3)
    moves = next(iter(rollouts))
    start = tiny_model().learning("flow")
    steps = PolicySampler(model.unconditional(), SMALL)
    unmoved = PolicyLoss(model.network, start.network, steps, SMALL).loss(moves)
    assert unmoved.mean.item() == pytest.approx(-float(moves.advantages.mean()), abs=1e-4)
    assert float(unmoved.parts["divergence"]) == 0
    assert float(unmoved.parts["moved"]) == pytest.approx(0, abs=1e-4)
    with torch.no_grad():
        for weight in model.network.module.parameters():
            weight.add_(0.02 * torch.randn_like(weight))
    with torch.no_grad():
        told = (moves.condition, moves.before, moves.timesteps, moves.times, moves.lengths)
        step, other = steps.step(model.network, *told), steps.step(start.network, *told)
    ratios = (log_probability(step, moves.after) - moves.probability).exp().tolist()
    gains = [
        min(ratio * worth, min(max(ratio, 0.99), 1.01) * worth)
        for ratio, worth in zip(ratios, moves.advantages.tolist(), strict=True)
    ]
    away = ((step.mean - other.mean) ** 2 / (2 * step.deviation[:, None, None, None] ** 2)).mean()
    found = PolicyLoss(model.network, start.network, steps, SMALL).loss(moves)
    assert 12 * float(found.parts["clipped"]) == pytest.approx(sum(abs(ratio - 1) > 0.01 for ratio in ratios))
    assert found.mean.item() == pytest.approx(0.5 * float(away) - sum(gains) / 12, rel=1e-4)
    found.mean.backward()
    assert all(weight.grad is None for weight in start.network.module.parameters())


def test_a_reward_rises_and_the_frozen_parts_stay(folder: Path) -> None:
    model = tiny_model()
    digests = (model.latents.digest, model.prompts.digest)
    recipe = replace(SMALL, iterations=12, gate_every=12, members=8, learning_rate=3e-3, divergence=0.0, ratio_clip=0.2)
    model, done = tuned(folder, recipe)
    start, end = (snapshot.rewards["mine"] for snapshot in done.snapshots)
    assert end > start + 0.005
    assert (done.kept, done.refused) == (done.snapshots[-1], None)
    assert (model.latents.digest, model.prompts.digest) == digests


BRIEF = replace(SMALL, iterations=2, groups=2, members=2, draw_steps=2, trained_steps=2, learning_rate=1e-2)


@pytest.fixture(scope="module")
def brief(folder: Path) -> TuningResult:
    return tuned(folder, BRIEF)[1]


@pytest.mark.parametrize("setting", [{"noise_scale": 0.4}, {"guidance": 2.0}], ids=lambda setting: next(iter(setting)))
def test_a_setting_of_how_to_draw_counts(setting: dict[str, Any], folder: Path, brief: TuningResult) -> None:
    assert tuned(folder, replace(BRIEF, **setting))[1].rounds[0].reward != brief.rounds[0].reward


@pytest.mark.parametrize(
    "setting",
    [
        {"accumulate": 2},
        {"clip": 1e-4},
        {"divergence": 50.0},
        {"ema": 0.9},
        {"learning_rate": 1e-3},
        {"ratio_clip": 0.2},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_a_setting_of_how_to_learn_counts(setting: dict[str, Any], folder: Path, brief: TuningResult) -> None:
    _, other = tuned(folder, replace(BRIEF, **setting))
    assert other.rounds[0] == brief.rounds[0]
    assert other.snapshots[0] == brief.snapshots[0]
    assert other.snapshots[-1].rewards != brief.snapshots[-1].rewards


def test_there_is_a_look_after_the_last_iteration_too_and_the_best_weights_are_put_back(folder: Path) -> None:
    model, done = tuned(folder, replace(BRIEF, iterations=3))
    assert [snapshot.window for snapshot in done.snapshots] == [0, 4, 6]
    rewards = [snapshot.rewards["mine"] for snapshot in done.snapshots]
    assert done.kept.rewards["mine"] == max(rewards) > min(rewards) + 1e-4
    prompts = [picture.prompt for picture in pictures_of(folder / "held").pictures]
    drawn = draw_images(model, prompts, SamplingSettings(steps=4, guidance=BRIEF.guidance, seed=5))
    assert float(brightness(drawn).mean()) == pytest.approx(max(rewards), abs=1e-6)


def test_groups_of_equal_rewards_are_counted_and_move_nothing(folder: Path) -> None:
    reports: list[Any] = []

    def kept(given: Iterable[Report]) -> Iterator[Report]:
        for report in given:
            reports.append(report)
            yield report

    model, done = tuned(folder, formula=steady, quality=brightness, consume=kept)
    assert [(one.reward, one.equal, one.groups) for one in done.rounds] == [(0.25, 3, 3)] * 4
    assert torch.equal(weights(model), weights(tiny_model()))
    windows = [report for report in reports if isinstance(report, StepReport)]
    assert len(windows) == 8
    assert all(report.zero_gradient for report in windows)


def create_sgd(parameters: Iterable[nn.Parameter], *, lr: float, weight_decay: float) -> torch.optim.SGD:
    """Use SGD: AdamW amplifies rounding errors to full steps."""
    return torch.optim.SGD(parameters, lr=lr, weight_decay=weight_decay)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_steps_that_do_not_fit_into_memory_are_cut_and_tune_the_same_weights(
    stage: Stage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainers.dit.grpo.adamw", create_sgd)
    shortage, reports = Shortage(stage, fits=20), list[Any]()

    def short(_: nn.Module, __: object, made: Tensor) -> Tensor:
        return shortage(made) if made.requires_grad else made  # sampling keeps no graph

    def kept(given: Iterable[Report]) -> Iterator[Report]:
        for report in given:
            reports.append(report)
            yield report

    recipe = replace(SMALL, members=16, learning_rate=0.1, divergence=0.01, ratio_clip=0.2)
    whole, expected = tuned(folder, recipe)
    cut, done = tuned(folder, recipe, consume=kept, strain=short)
    windows = [report for report in reports if isinstance(report, StepReport)]
    assert len(windows) == 8
    assert sum(report.shortages for report in windows) == shortage.failures > 0
    moved = (weights(whole) - weights(tiny_model())).norm()
    assert moved > 0, "the first snapshot was the best"
    assert float((weights(cut) - weights(whole)).norm() / moved) < 1e-5
    assert [one.reward for one in done.rounds] == pytest.approx([one.reward for one in expected.rounds], rel=1e-5)


def test_images_that_do_not_fit_into_memory_end_a_tuning_with_what_to_do(folder: Path) -> None:
    shortage = Shortage("forward", fits=11)

    def short(_: nn.Module, __: object, made: Tensor) -> Tensor:
        return made if made.requires_grad else shortage(made)

    with pytest.raises(OutOfMemoryError, match=r"to draw 12 images at once \(CUDA out of memory.*--groups, now 3"):
        tuned(folder, strain=short)


def test_another_error_of_drawing_is_told_as_it_is(folder: Path) -> None:
    def broken(_: nn.Module, __: object, made: Tensor) -> Tensor:
        if len(made) == 12:
            raise RuntimeError("something else")
        return made

    with pytest.raises(RuntimeError, match="something else"):
        tuned(folder, strain=broken)


def test_beyond_the_bound_the_best_accepted_weights_stay(folder: Path) -> None:
    quick = replace(SMALL, iterations=20, learning_rate=1e-2, divergence=0.0, bound=1.0, members=8)
    model, done = tuned(folder, quick, quality=darkness)
    assert done.refused is not None
    assert done.refused.window == done.snapshots[-1].window < 40
    start = done.snapshots[0].rewards
    assert done.refused.rewards["other"] < start["other"]
    accepted = [snapshot for snapshot in done.snapshots if snapshot.rewards["other"] >= start["other"]]
    assert done.kept == max(accepted, key=lambda snapshot: snapshot.rewards["mine"])
    if done.kept is done.snapshots[0]:
        assert torch.equal(weights(model), weights(tiny_model()))
    assert "kept the best accepted weights, after" in done.verdict
    assert "is more than 1 times worse than after 0 steps: mine" in done.verdict


def test_the_bound_is_of_distances_and_of_other_numbers(folder: Path) -> None:
    model = tiny_model().learning("flow")
    material = RewardInputs(pictures_of(folder / "own"), pictures_of(folder / "held"), count=8)
    evaluator = SampleEvaluator(model, material, [], SamplingSettings(steps=4))
    for start, good, bad in ((-2.0, -2.6, -2.7), (0.9, 0.7, 0.68)):
        gate = RewardGate(evaluator, reward="a", quality="b", bound=1.3, every=1)
        rewards = [{"a": 0.0, "b": start}, {"a": 1.0, "b": good}, {"a": 2.0, "b": bad}]
        gate.load_state_dict({"snapshots": [{"window": at, "rewards": each} for at, each in enumerate(rewards)]})
        assert [gate.accepts(snapshot) for snapshot in gate.snapshots] == [True, True, False]
        assert (gate.best_snapshot.window, gate.refused) == (1, gate.snapshots[2])


def test_the_first_of_the_best_accepted_snapshots_is_kept() -> None:
    evaluator: Any = None
    gate = RewardGate(evaluator, reward="a", quality="b", bound=1.3, every=1)
    snapshots = [{"window": at, "rewards": {"a": worth, "b": 1.0}} for at, worth in enumerate((1.0, 3.0, 3.0, 2.0))]
    gate.load_state_dict({"snapshots": snapshots})
    assert (gate.best_snapshot.window, gate.refused) == (1, None)


def test_a_tuning_that_was_refused_learns_nothing_more_and_is_told_beside_real_images_in_the_same_measure() -> None:
    class Far:
        """A monitor of a distance."""

        facts: Final = {"frechet": {"floor": 1.5}}

    evaluator: Any = Far()
    gate = RewardGate(evaluator, reward="a", quality="frechet", bound=1.3, every=1)
    snapshots = [{"window": at, "rewards": {"a": 1.0 * at, "frechet": far}} for at, far in enumerate((-2.0, -9.0))]
    gate.load_state_dict({"snapshots": snapshots})
    run: Any = None
    assert list(gate.monitor(run, iter([TrainingNotice(message="a report")]))) == []
    assert gate.verdict.endswith(
        "kept the best accepted weights, after 0 steps: a 0, Fréchet distance 2 (lower is better); real images have "
        "Fréchet distance 1.5 (lower is better)"
    )


def test_a_tuning_without_gain_is_reported(folder: Path) -> None:
    model = tiny_model().learning("flow")
    material = RewardInputs(pictures_of(folder / "own"), pictures_of(folder / "held"), count=8)
    gate = RewardGate(
        SampleEvaluator(model, material, [], SamplingSettings(steps=4)),
        reward="a",
        quality="frechet",
        bound=1.3,
        every=1,
    )
    snapshots = [
        {"window": 0, "rewards": {"a": 0.5, "frechet": -2.0}},
        {"window": 4, "rewards": {"a": 0.5, "frechet": -1.5}},
    ]
    gate.load_state_dict({"snapshots": snapshots})
    assert gate.verdict == (
        "a has not increased: kept the initial weights, after 0 steps: a 0.5, Fréchet distance 2 (lower is better); "
        "last, after 4 steps: a 0.5, Fréchet distance 1.5 (lower is better)"
    )


@pytest.mark.slow
@pytest.mark.parametrize("windows", [1, 4, 5])
def test_a_tuning_resumes_at_the_window_to_the_same_bits(folder: Path, tmp_path: Path, windows: int) -> None:
    def stopped(reports: Iterable[Report]) -> Iterator[Report]:
        seen = 0
        for report in reports:
            yield report
            seen += isinstance(report, StepReport)
            if seen > windows:
                raise StoppedError("enough", signal=2)

    def at(consume: ReportConsumer) -> tuple[ImageModel, TuningResult]:
        return tuned(folder, checkpoints=Checkpoints(tmp_path, every_seconds=1e-9), consume=consume)

    whole, expected = tuned(folder)
    with pytest.raises(StoppedError):
        at(stopped)
    reports: list[Any] = []

    def kept(given: Iterable[Report]) -> Iterator[Report]:
        for report in given:
            reports.append(report)
            yield report

    again, done = at(kept)
    assert done == expected
    assert torch.equal(weights(again), weights(whole))
    assert sum(isinstance(report, StepReport) for report in reports) == 8 - windows


def test_what_cannot_be_tuned_is_refused(folder: Path) -> None:
    own, bright = pictures_of(folder / "own"), checked("brightness", brightness, folder)
    names: tuple[ObjectiveName, ...] = ("epsilon", "velocity")
    for name in names:
        with pytest.raises(SchedulerError, match=f"the model's objective is {name} "):
            Rollouts(tiny_model().learning(name), own, bright, SMALL)
    flow = tiny_model().learning("flow")
    with pytest.raises(RewardError, match="brightness has one number for all images"):
        Rollouts(
            flow,
            own,
            ValidatedReward("brightness", FormulaReward(brightness), is_collective=True),
            SMALL,
        )
    with pytest.raises(SettingsError, match="5 trained steps are more than the 4 steps of an image"):
        Rollouts(flow, own, bright, replace(SMALL, trained_steps=5))
    evaluator = SampleEvaluator(flow, RewardInputs(own, own, count=8), [], SamplingSettings(steps=4))
    with pytest.raises(GateError, match="ssim cannot be both the reward and the gate"):
        RewardGate(evaluator, reward="ssim", quality="ssim", bound=1.3, every=5)
    with pytest.raises(SettingsError, match="precision is bf16"):
        tuned(folder, replace(SMALL, precision="bf16"))


def snapshots_and_weights(folder: Path) -> Any:
    model, done = tuned(folder, replace(SMALL, iterations=2))
    return (
        [snapshot.rewards for snapshot in done.snapshots],
        [one.reward for one in done.rounds],
        weights(model).numpy(),
    )


@pytest.mark.slow
def test_two_ranks_draw_for_themselves_and_see_the_same(folder: Path) -> None:
    first, second = results_on_ranks(snapshots_and_weights, folder)
    assert first[0] == second[0]
    assert first[0][0] == tuned(folder, replace(SMALL, iterations=1))[1].snapshots[0].rewards
    assert first[1] != second[1]
    assert (first[2] == second[2]).all()
