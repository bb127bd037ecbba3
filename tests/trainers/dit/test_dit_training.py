"""Image training: only the transformer changes, and the same under any batch split."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from rank_processes import results_on_ranks
from tiny_images import PROMPTS, tiny_model, write_images
from torch import Tensor, nn

from trainers.dit.batches import EncodedImages, LatentCache, RawImageFiles, RawImages, write_cache
from trainers.dit.encoders import Posterior
from trainers.dit.images import read_pictures
from trainers.dit.models import ImageModel
from trainers.dit.networks import PromptCondition
from trainers.dit.objective import create_objective
from trainers.dit.recipe import ImageRecipe, ObjectiveName
from trainers.dit.training import (
    TRANSFORMER,
    DenoisingLoss,
    NoiseDraw,
    NoiseSource,
    build_loop,
    build_phase,
    build_rounds,
    compute_warmup_factor,
    fit,
)
from trainers.loop import FrozenModule, IterableSource, Loop, Report, StepReport, seed_everything
from trainers.loop.validation import evaluation_mode

NAMES: tuple[ObjectiveName, ...] = ("flow", "epsilon", "velocity")


def a_model(name: ObjectiveName = "flow") -> ImageModel:
    return tiny_model().learning(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images and their cache."""
    place = tmp_path_factory.mktemp("images")
    model = tiny_model()
    write_cache(read_pictures(write_images(place), model.image_format, model.prompts.check), model, place / "cache")
    return place


def sources(folder: Path, model: ImageModel) -> tuple[LatentCache, RawImageFiles]:
    """Encoded and plain."""
    pictures = read_pictures(folder, model.image_format, model.prompts.check)
    return LatentCache.open(folder / "cache"), RawImageFiles(pictures, model.prompts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("encoded", [True, False])
def test_the_transformer_gets_every_gradient_and_what_encodes_gets_none(
    name: ObjectiveName, folder: Path, *, encoded: bool
) -> None:
    model = a_model(name)
    cache, plain = sources(folder, model)
    batch: EncodedImages | RawImages = (cache if encoded else plain).gather(torch.arange(12))
    torch.manual_seed(1)
    DenoisingLoss(model, NoiseSource(create_objective(name), 0.3)).loss(batch).mean.backward()
    weights = dict(model.network.module.named_parameters())
    assert [key for key, weight in weights.items() if weight.grad is None or not weight.grad.any()] == []
    frozen = [*model.latents.module.parameters(), *model.prompts.module.parameters()]
    assert all(weight.grad is None and not weight.requires_grad for weight in frozen)


class SeededBatch(NamedTuple):
    """A batch with its random draws, which do not depend on the other samples."""

    posterior: Posterior
    condition: PromptCondition
    drawn: NoiseDraw


class SeededLoss:
    """The loss of a batch with its own random draws."""

    def __init__(self, model: ImageModel) -> None:
        self.now: Any = None
        self._denoising = DenoisingLoss(model, lambda _: self.now)

    def loss(self, batch: SeededBatch) -> Any:
        self.now = batch.drawn
        return self._denoising.loss(EncodedImages(batch.posterior, batch.condition))


def seeded_batch(cache: LatentCache, places: Tensor) -> SeededBatch:
    """Some images with their own draws."""
    batch = cache.gather(places)
    draw = torch.Generator().manual_seed(5)
    noise = torch.randn(2, 12, *batch.posterior.mean.shape[1:], generator=draw)
    times, dropped = torch.rand(12, generator=draw), torch.rand(12, generator=draw) < 0.3
    return SeededBatch(*batch, NoiseDraw(noise[0, places], noise[1, places], times[places], dropped[places]))


class GradientRecorder(torch.optim.SGD):
    """An optimizer that records the gradients of its last step."""

    def step(self, closure: Any = None) -> Any:
        self.seen = torch.cat([weight.grad.flatten() for weight in self.param_groups[0]["params"]])
        return super().step(closure)


def gradient(folder: Path, parts: list[Tensor], *, limit: int | None = None) -> Tensor:
    """Gradient of one window of batches."""
    model = a_model()
    cache, transformer = LatentCache.open(folder / "cache"), model.network.module
    learning: Any = SeededLoss(model)
    phase = build_phase(transformer, learning, ImageRecipe(steps=100))
    optimizer = GradientRecorder(transformer.parameters(), lr=0.0)
    object.__setattr__(phase, "optimizer", optimizer)
    object.__setattr__(phase, "scheduler", None)
    object.__setattr__(phase, "clip", None)
    modules: dict[str, nn.Module | FrozenModule] = {TRANSFORMER: transformer}
    loop = Loop([phase], modules=modules, device="cpu", accumulate=len(parts))
    with loop.running() as run:
        for one in run._phases:
            one.cutter.limit = limit
        for _ in run.epochs(IterableSource([seeded_batch(cache, part) for part in parts]), max_epochs=1):
            pass
    return optimizer.seen


def test_micro_batches_and_accumulated_batches_give_the_gradient_of_the_batch(folder: Path) -> None:
    whole = gradient(folder, [torch.arange(12)])
    for found in (
        gradient(folder, [torch.arange(12)], limit=5),
        gradient(folder, [torch.arange(8), torch.arange(8, 12)]),
    ):
        assert float((found - whole).norm() / whole.norm()) < 1e-5
    assert float((gradient(folder, [torch.arange(8)]) - whole).norm() / whole.norm()) > 1e-2


def ranks_gradient(folder: Path) -> Any:
    """Gradient on each rank, with half of the batches each."""
    model = a_model()
    cache, learning = LatentCache.open(folder / "cache"), SeededLoss(model)
    transformer = model.network.module
    recipe: Any = learning
    phase = build_phase(transformer, recipe, ImageRecipe(steps=100))
    optimizer = GradientRecorder(transformer.parameters(), lr=0.0)
    object.__setattr__(phase, "optimizer", optimizer)
    object.__setattr__(phase, "scheduler", None)
    object.__setattr__(phase, "clip", None)
    loop = Loop([phase], modules={TRANSFORMER: transformer}, device="cpu")
    halves = [seeded_batch(cache, part) for part in (torch.arange(8), torch.arange(8, 12))]
    with loop.running() as run:
        for _ in run.epochs(IterableSource(halves), max_epochs=1):
            pass
    return optimizer.seen.numpy()


@pytest.mark.slow
def test_two_ranks_give_the_gradient_of_one_batch(folder: Path) -> None:
    whole = gradient(folder, [torch.arange(12)])
    for found in results_on_ranks(ranks_gradient, folder):
        assert float((torch.from_numpy(found) - whole).norm() / whole.norm()) < 1e-5


def score(model: ImageModel, cache: LatentCache) -> float:
    """The loss averaged over many fixed draws."""
    assert model.objective is not None
    learnt = DenoisingLoss(model, NoiseSource(model.objective, 0.1))
    torch.manual_seed(77)
    with torch.no_grad(), evaluation_mode([model.network.module]):
        return sum(learnt.loss(cache.gather(torch.arange(12))).mean.item() for _ in range(40)) / 40


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_and_the_encoders_stay_unchanged(name: ObjectiveName, folder: Path) -> None:
    model, cache = a_model(name), LatentCache.open(folder / "cache")
    digests, before = (model.latents.digest, model.prompts.digest), score(model, cache)
    recipe = ImageRecipe(steps=100, batch_size=12, learning_rate=5e-3, ema=0.9, device="cpu")
    seed_everything(recipe.seed)
    fit(model, cache, recipe, None, iter)
    assert score(model, cache) < 0.9 * before
    assert (model.latents.digest, model.prompts.digest) == digests


def test_the_loop_averages_the_transformer_and_ends_with_the_average(folder: Path) -> None:
    results: list[Tensor] = []
    for ema in (None, 0.0, 0.9):
        model = a_model()
        recipe = ImageRecipe(steps=20, batch_size=8, ema=ema, device="cpu")
        seed_everything(0)
        fit(model, LatentCache.open(folder / "cache"), recipe, None, iter)
        results.append(model.network.module.state_dict()["proj_out.weight"])
    last, also_last, average = results
    assert torch.equal(last, also_last)
    assert not torch.equal(last, average)


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_by_hand(name: ObjectiveName, folder: Path) -> None:
    model = a_model(name)
    objective, network = create_objective(name), model.network
    batch = LatentCache.open(folder / "cache").gather(torch.tensor([4, 9]))
    draw = torch.Generator().manual_seed(8)
    within, noise = torch.randn(2, 2, 4, 4, 4, generator=draw)
    times = torch.tensor([0.3, 0.8]) if name == "flow" else torch.tensor([300, 800])
    drawn = NoiseDraw(within, noise, times, torch.tensor([False, True]))
    found = DenoisingLoss(model, lambda _: drawn).loss(batch)
    prompts = model.prompts.embed(model.prompts.tokens([PROMPTS[0], ""]))
    noised = objective.noised(batch.posterior.mean + batch.posterior.deviation * within, noise, times)
    error = (network.predict(noised.latents, noised.timesteps, prompts) - noised.target).square().mean((1, 2, 3))
    torch.testing.assert_close(found.mean, (noised.weight * error).sum() / 2)
    assert found.count == 2


def test_dropped_prompts_are_those_that_chance_names(folder: Path) -> None:
    model = a_model()
    batch = LatentCache.open(folder / "cache").gather(torch.arange(12))
    dropped = torch.arange(12) % 3 == 0
    found = batch.condition.replace_rows(dropped, model.unconditional())
    blank = model.unconditional()
    for row in range(12):
        wanted = blank.rows(torch.tensor([0])) if dropped[row] else batch.condition.rows(torch.tensor([row]))
        torch.testing.assert_close(found.embeddings[row], wanted.embeddings[0])
        assert torch.equal(found.mask[row], wanted.mask[0])
    draws = NoiseSource(create_objective("flow"), 0.25)(torch.zeros(20_000, 1, 1, 1))
    assert float(torch.corrcoef(torch.stack([draws.posterior_noise, draws.noise]).flatten(1))[0, 1]) == pytest.approx(
        0, abs=0.03
    )
    assert float(draws.dropped.float().mean()) == pytest.approx(0.25, abs=0.02)


def test_the_learning_rate_rises_and_stays() -> None:
    recipe = ImageRecipe(steps=1500)
    assert [compute_warmup_factor(step, steps=recipe.warm_up) for step in (0, 24, 50, 1499)] == [
        1 / 51,
        25 / 51,
        1.0,
        1.0,
    ]


def test_a_training_starts_with_a_small_rate_that_is_full_after_a_tenth_of_few_steps() -> None:
    transformer, learning = a_model().network.module, SeededLoss(a_model())
    recipe: Any = learning
    phase: Any = build_phase(transformer, recipe, ImageRecipe(steps=20, learning_rate=0.3))
    assert phase.scheduler.get_last_lr() == pytest.approx([0.3 / 3])


def weights_after(folder: Path, recipe: ImageRecipe) -> tuple[Tensor, list[StepReport]]:
    """Weights after two steps, and their reports; randomness outside the recipe is fixed."""
    reports: list[StepReport] = []

    def kept(given: Iterable[Report]) -> Iterator[Report]:
        for report in given:
            reports.extend([report] if isinstance(report, StepReport) else [])
            yield report

    model = a_model()
    seed_everything(0)
    fit(model, LatentCache.open(folder / "cache"), recipe, None, kept)
    return torch.cat([weight.flatten() for weight in model.network.module.state_dict().values()]), reports


TWO_STEPS = ImageRecipe(steps=2, batch_size=4, ema=0.5, device="cpu")


@pytest.mark.parametrize(
    "setting",
    [{"seed": 1}, {"dropout": 0.9}, {"learning_rate": 0.01}, {"clip": 0.01}, {"precision": "bf16"}],
    ids=lambda setting: next(iter(setting)),
)
def test_a_setting_of_the_recipe_counts(setting: dict[str, Any], folder: Path) -> None:
    assert not torch.equal(weights_after(folder, replace(TWO_STEPS, **setting))[0], weights_after(folder, TWO_STEPS)[0])


def test_accumulated_batches_are_more_images_in_as_many_steps(folder: Path) -> None:
    _, reports = weights_after(folder, replace(TWO_STEPS, accumulate=3))
    assert [report.stepped for report in reports] == [True, True]


def test_a_round_has_batches_for_every_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.dit.training.launched_size", lambda: 2)
    assert build_rounds(LatentCache.open(folder / "cache"), ImageRecipe(steps=250, accumulate=3)).length == 125 * 3 * 2


def test_what_goes_wrong_is_met_as_the_recipe_says() -> None:
    settings = build_loop(a_model(), ImageRecipe(device="cpu", oom="fail", nonfinite="raise"))._settings
    assert (settings.oom, settings.nonfinite) == ("fail", "raise")


def test_what_encodes_is_frozen_in_the_loop() -> None:
    model = a_model()
    loop = build_loop(model, ImageRecipe(device="cpu"))
    assert set(loop._settings.trained) == {TRANSFORMER}
    assert set(loop._settings.frozen) == {"vae", "text_encoder"}
