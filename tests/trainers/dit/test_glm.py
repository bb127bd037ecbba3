"""GLM-Image transformer, tiny and random: timestep shift, prior tokens, and images equal to its pipeline's."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.transformers.transformer_glm_image import GlmImageTransformer2DModel
from diffusers.pipelines.glm_image.pipeline_glm_image import GlmImagePipeline
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor
from transformers import ByT5Tokenizer, T5Config, T5EncoderModel
from typer.testing import CliRunner

from trainers.cli.commands import app
from trainers.dit.batches import RawImageFiles, write_cache
from trainers.dit.encoders import find_quoted_text
from trainers.dit.errors import DataError, ModelError, PriorError, SchedulerError
from trainers.dit.images import ImageFolder, read_pictures
from trainers.dit.models import ImageModel
from trainers.dit.objective import build_glm_objective, create_objective
from trainers.dit.recipe import ImageRecipe, SamplingSettings
from trainers.dit.sampling import draw_images
from trainers.dit.training import DenoisingLoss, NoiseSource, fit
from trainers.loop import seed_everything

PROMPTS = ["a shop with the sign 'open'", "a shop without one"]
PATCHES = 16


def a_scheduler(**settings: Any) -> FlowMatchEulerDiscreteScheduler:
    """A scheduler with linear shift, as GLM-Image's, or another."""
    usual = {"use_dynamic_shifting": True, "time_shift_type": "linear", "base_shift": 0.25, "max_shift": 0.75}
    chosen: dict[str, Any] = {**usual, **settings}
    return FlowMatchEulerDiscreteScheduler(**chosen)


def a_vae() -> AutoencoderKL:
    """A VAE from 16x16 colour pixels to 8x8 latents of four channels with their own statistics."""
    torch.manual_seed(5)
    settings: dict[str, Any] = {
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "block_out_channels": (8, 8),
        "latents_mean": (0.1, -0.2, 0.3, 0.0),
        "latents_std": (0.5, 0.6, 0.7, 0.8),
    }
    return AutoencoderKL(latent_channels=4, norm_num_groups=4, sample_size=16, layers_per_block=1, **settings)


def a_model(scheduler: FlowMatchEulerDiscreteScheduler | None = None) -> ImageModel:
    torch.manual_seed(6)
    transformer = GlmImageTransformer2DModel(
        patch_size=2,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        text_embed_dim=12,
        time_embed_dim=16,
        condition_dim=8,
        prior_vq_quantizer_codebook_size=32,
    )
    encoder = T5EncoderModel(T5Config(vocab_size=384, d_model=12, d_kv=6, d_ff=16, num_layers=1, num_heads=2))
    return ImageModel.of_glm(transformer, a_vae(), encoder, ByT5Tokenizer(), scheduler or a_scheduler())


def plans(count: int, *, seed: int = 1) -> Tensor:
    return torch.randint(1, 32, (count, PATCHES), generator=torch.Generator().manual_seed(seed))


def some_pictures(folder: Path, model: ImageModel) -> ImageFolder:
    """Four noise images."""
    lines: list[str] = []
    draw = torch.Generator().manual_seed(2)
    for number in range(4):
        pixels = torch.randint(0, 256, (16, 16, 3), generator=draw, dtype=torch.uint8)
        Image.fromarray(pixels.numpy()).save(folder / f"{number}.png")
        lines.append(f"{number}.png|{PROMPTS[number % 2]}")
    (folder / "metadata.csv").write_text("\n".join(lines))
    return read_pictures(folder, model.image_format, model.prompts.check)


@pytest.mark.parametrize(
    "settings",
    [{}, {"time_shift_type": "exponential"}, {"use_dynamic_shifting": False, "shift": 3.0}],
    ids=["line", "exponential", "static"],
)
@pytest.mark.parametrize("guidance", [1.0, 2.0])
def test_its_pipeline_draws_the_same_images(settings: dict[str, Any], guidance: float, tmp_path: Path) -> None:
    a_model(a_scheduler(**settings)).save(tmp_path / "model")
    without: dict[str, Any] = {"processor": None, "vision_language_encoder": None}  # the image planner is missing
    pipeline: Any = GlmImagePipeline.from_pretrained(tmp_path / "model", low_cpu_mem_usage=False, **without)
    pipeline.set_progress_bar_config(disable=True)
    priors = plans(2)
    theirs = pipeline(
        prompt=PROMPTS,
        prior_token_ids=priors,
        height=16,
        width=16,
        num_inference_steps=7,
        guidance_scale=guidance,
        generator=torch.Generator().manual_seed(4),
        output_type="pt",
    ).images
    model, sampling = ImageModel.load(tmp_path / "model"), SamplingSettings(steps=7, guidance=guidance, seed=4)
    assert float((draw_images(model, PROMPTS, sampling, priors) - theirs).abs().max()) <= 1e-4
    assert float((draw_images(model, PROMPTS, sampling, plans(2, seed=2)) - theirs).abs().max()) > 1e-3


def test_each_image_has_its_own_plan_however_many_are_drawn_at_once_and_however_they_are_named(tmp_path: Path) -> None:
    model, priors = a_model(), plans(4)
    priors[1, :3] = 0  # an ordinary token
    together, apart = (
        draw_images(model, [PROMPTS[1]] * 4, SamplingSettings(steps=3, at_once=size), priors) for size in (4, 2)
    )
    torch.testing.assert_close(apart, together, atol=1e-5, rtol=0)
    pictures = some_pictures(tmp_path, model)
    named = dict(reversed([(one.file, plan) for one, plan in zip(pictures.pictures, priors, strict=True)]))
    cache = write_cache(pictures, model, tmp_path / "cache", priors={"another.png": plans(1)[0], **named})
    assert torch.equal(cache.gather(torch.arange(4)).condition.prior_tokens, priors)


@pytest.mark.parametrize("kind", ["linear", "exponential"])
def test_an_exact_prediction_leads_back_to_the_image(kind: str) -> None:
    objective = build_glm_objective(a_scheduler(time_shift_type=kind), PATCHES)
    image, noise = torch.randn(2, 1, 4, 4, 4, generator=torch.Generator().manual_seed(1))

    def predict(latents: Tensor, timesteps: Tensor) -> Tensor:
        times = objective.times_of(timesteps)
        share = objective.noised(torch.zeros_like(latents), torch.ones_like(latents), times).latents
        return (latents - image) / share

    assert float((objective.sample(predict, noise, 20) - image).abs().max()) < 1e-5
    plain = create_objective("flow").sample(lambda z, t: predict(z, t * 1000 / 1921), noise, 20)
    assert float((plain - image).abs().max()) > 1e-5


def test_times_are_passed_unshifted_and_one_less() -> None:
    objective = build_glm_objective(a_scheduler(), PATCHES)
    times = torch.tensor([0.25, 1.0])
    noised = objective.noised(torch.zeros(2, 1, 1, 1), torch.ones(2, 1, 1, 1), times)
    torch.testing.assert_close(noised.timesteps, torch.tensor([249.0, 999.0]))
    mu = (PATCHES / 256) ** 0.5 * 0.75 + 0.25
    torch.testing.assert_close(noised.latents.flatten(), torch.tensor([mu / (mu + 3), 1.0]))


def test_latents_are_counted_from_the_statistics_of_their_channels() -> None:
    model = a_model()
    module: Any = model.latents.module
    pixels = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(3)) * 2 - 1
    found = module.encode(pixels).latent_dist
    mean, deviation = (torch.tensor(module.config[name]).view(1, -1, 1, 1) for name in ("latents_mean", "latents_std"))
    posterior = model.latents.encode(pixels)
    torch.testing.assert_close(posterior.mean, (found.mean - mean) / deviation)
    torch.testing.assert_close(posterior.deviation, found.std / deviation)
    plain = module.decode(found.mean).sample
    torch.testing.assert_close(model.latents.decode(posterior.mean), (plain / 2 + 0.5).clamp(0, 1))


def test_the_transformer_gets_every_gradient_and_what_encodes_gets_none(tmp_path: Path) -> None:
    model = a_model()
    assert model.objective is not None
    source = RawImageFiles(some_pictures(tmp_path, model), model.prompts, plans(4))
    torch.manual_seed(1)
    DenoisingLoss(model, NoiseSource(model.objective, 0.3)).loss(source.gather(torch.arange(4))).mean.backward()
    weights = dict(model.network.module.named_parameters())
    assert [name for name, weight in weights.items() if weight.grad is None or not weight.grad.any()] == []
    frozen = [*model.latents.module.parameters(), *model.prompts.module.parameters()]
    assert all(weight.grad is None for weight in frozen)


def test_a_cache_keeps_the_plans_and_teaches_the_same(tmp_path: Path) -> None:
    model = a_model()
    assert model.objective is not None
    pictures, priors = some_pictures(tmp_path, model), plans(4)
    named = {picture.file: plan for picture, plan in zip(pictures.pictures, priors, strict=True)}
    cache = write_cache(pictures, model, tmp_path / "cache", priors=named)
    learnt, losses = DenoisingLoss(model, NoiseSource(model.objective, 0.3)), list[float]()
    for source in (
        cache,
        RawImageFiles(pictures, model.prompts, priors),
        RawImageFiles(pictures, model.prompts, plans(4)),
    ):
        torch.manual_seed(3)
        losses.append(learnt.loss(source.gather(torch.tensor([2, 0, 1]))).mean.item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    seed_everything(0)
    fit(model, cache, ImageRecipe(steps=3, batch_size=3, device="cpu"), None, iter)


def test_a_prompt_that_is_dropped_is_dropped_with_its_plan() -> None:
    model = a_model()
    condition = model.prompts.embed(model.prompts.tokens(PROMPTS)).with_prior_tokens(plans(2))
    dropped = condition.replace_rows(torch.tensor([True, False]), model.unconditional())
    latents, times = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([500.0, 500.0])
    other = dropped.with_prior_tokens(torch.cat([plans(1, seed=9), dropped.prior_tokens[1:]]))
    one, two = (model.network.predict(latents, times, told) for told in (dropped, other))
    assert torch.equal(one, two)
    assert not torch.equal(one, model.network.predict(latents, times, condition))


@pytest.mark.parametrize(
    ("priors", "told"),
    [
        (None, "2 of 2 images have no prior tokens"),
        (torch.zeros(2, PATCHES, dtype=torch.long), "are all zero; give those"),
        (torch.ones(2, 1, dtype=torch.long), r"int64 \[1\]; this model reads int64 \[16\]"),
        (torch.ones(2, PATCHES), r"torch.float32 \[16\]"),
        (torch.full((2, PATCHES), 32), "range from 32 to 32; they must be from 0 to 31"),
    ],
)
def test_what_is_no_plan_is_refused_when_drawing_and_when_encoding(
    priors: Tensor | None, told: str, tmp_path: Path
) -> None:
    model = a_model()
    with pytest.raises(PriorError, match=told):
        draw_images(model, PROMPTS, SamplingSettings(steps=4), priors)
    pictures = some_pictures(tmp_path, model)
    named = None if priors is None else {picture.file: priors[0] for picture in pictures.pictures}
    with pytest.raises(PriorError, match=told.replace("2 of 2", "4 of 4")):
        write_cache(pictures, model, tmp_path / "cache", priors=named)


def test_one_plan_of_many_that_is_all_zero_is_refused_by_its_image(tmp_path: Path) -> None:
    model = a_model()
    pictures = some_pictures(tmp_path, model)
    named = {picture.file: plan for picture, plan in zip(pictures.pictures, plans(4), strict=True)}
    named["2.png"] = torch.zeros(PATCHES, dtype=torch.long)
    with pytest.raises(PriorError, match=r"the prior tokens of 2\.png are all zero"):
        write_cache(pictures, model, tmp_path / "cache", priors=named)


def test_only_one_text_can_be_written_and_it_is_never_cut() -> None:
    model = a_model()
    assert find_quoted_text("a “red” door") == "red"
    with pytest.raises(DataError, match="2 texts in quotation marks"):
        model.prompts.check("'a' and \"b\"")
    model.prompts.check("a wall with '" + "x" * 255 + "'")
    with pytest.raises(DataError, match="has 301 tokens, but at most 256 are read"):
        model.prompts.check("a wall with '" + "x" * 300 + "'")


@pytest.mark.parametrize("setting", ["shift_terminal", "use_karras_sigmas", "invert_sigmas"])
def test_a_scheduler_that_moves_the_noise_elsewhere_is_refused(setting: str) -> None:
    with pytest.raises(SchedulerError, match=f"with .*{setting}.* is not the sampler of GLM-Image"):
        build_glm_objective(a_scheduler(**{setting: 0.1 if setting == "shift_terminal" else True}), PATCHES)
    with pytest.raises(SchedulerError, match="DPMSolverMultistepScheduler is not the sampler of GLM-Image"):
        build_glm_objective(create_objective("flow").scheduler(), PATCHES)


def test_what_plans_images_is_saved_with_the_rest_as_it_was(tmp_path: Path) -> None:
    a_model().save(tmp_path / "model")
    index = tmp_path / "model" / "model_index.json"
    (tmp_path / "model" / "processor").mkdir()
    (tmp_path / "model" / "processor" / "preprocessor_config.json").write_text("{}")
    told = index.read_text().replace(
        '"processor": [\n    null,\n    null\n  ]', '"processor": [\n    "transformers",\n    "GlmImageProcessor"\n  ]'
    )
    index.write_text(told)
    ImageModel.load(tmp_path / "model").save(tmp_path / "again")
    assert (tmp_path / "again" / "processor" / "preprocessor_config.json").read_text() == "{}"
    assert (tmp_path / "again" / "model_index.json").read_text() == told


def test_the_command_line_takes_plans_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(*words: str | Path) -> Any:
        return CliRunner().invoke(app, ["train", "dit", *map(str, words)])

    (tmp_path / "images").mkdir()
    model = a_model()
    model.save(tmp_path / "base")
    pictures = some_pictures(tmp_path / "images", model)
    save_file({one.file: plan for one, plan in zip(pictures.pictures, plans(4), strict=True)}, tmp_path / "plans")
    save_file({"0": plans(1)[0]}, tmp_path / "plan")
    base, cached, images = tmp_path / "base", tmp_path / "cache", tmp_path / "images"
    steps = ("--steps", "2", "--batch-size", "2", "--device", "cpu")
    assert "have no prior tokens" in str(ran("cache", images, "--model", base, "--out", cached).exception)
    assert "with --priors" in str(ran("train", images, "--model", base, "--out", tmp_path / "m", *steps).exception)
    done = ran("cache", images, "--model", base, "--out", cached, "--priors", tmp_path / "plans")
    assert done.exit_code == 0, done.output
    trained = ran("train", cached, "--model", base, "--out", tmp_path / "m", *steps)
    assert trained.exit_code == 0, trained.output
    advised = shlex.split(trained.stderr.partition("Next: quantra train dit ")[2])
    assert advised[:4] == ["sample", str(tmp_path / "m"), "--prompt", pictures.pictures[0].prompt]
    monkeypatch.chdir(tmp_path)
    save_file({"0": plans(1)[0]}, "PRIORS.safetensors")
    assert ran(*advised).exit_code == 0
    assert (tmp_path / "drawn.png").exists()
    drawn = ("sample", tmp_path / "m", "--prompt", PROMPTS[0], "--out", tmp_path / "a.png", "--steps", "3")
    assert ran(*drawn, "--priors", tmp_path / "plan").exit_code == 0
    assert "cannot be read as a safetensors file" in str(ran(*drawn, "--priors", tmp_path / "a.png").exception)
    with Image.open(tmp_path / "a.png") as picture:
        assert (picture.size, picture.mode) == ((16, 16), "RGB")


def test_a_vae_without_statistics_is_refused() -> None:
    vae: Any = a_vae()
    vae.register_to_config(latents_mean=None)
    model = a_model()
    with pytest.raises(ModelError, match="has no latents_mean and latents_std"):
        ImageModel.of_glm(
            model.network.module,  # pyright: ignore[reportArgumentType]  of the same class
            vae,
            model.prompts.module,
            model.prompts.tokenizer,
            a_scheduler(),
        )
