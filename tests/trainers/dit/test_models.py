"""Image models as diffusers folders: samples equal the matching pipeline's."""

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.transformers.pixart_transformer_2d import PixArtTransformer2DModel
from diffusers.pipelines.pixart_alpha.pipeline_pixart_alpha import PixArtAlphaPipeline
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from safetensors.torch import load_file, save_file
from tiny_images import LENGTH, PROMPTS, tiny_encoder, tiny_model, tiny_tokenizer, tiny_transformer, tiny_vae
from transformers import T5Config, T5EncoderModel

from trainers.dit.encoders import PixArtPromptEncoder, scaled
from trainers.dit.errors import DataError, ImageError, ModelError, SchedulerError
from trainers.dit.images import ImageFormat
from trainers.dit.models import ImageModel
from trainers.dit.networks import PixArtNetwork
from trainers.dit.objective import create_objective
from trainers.dit.recipe import ObjectiveName, SamplingSettings
from trainers.dit.sampling import as_image, build_grid, draw_images

NAMES: tuple[ObjectiveName, ...] = ("flow", "epsilon", "velocity")


def model_with_effect(name: ObjectiveName = "flow") -> ImageModel:
    """Random weights, large enough that prompts matter."""
    model = tiny_model()
    model.objective = create_objective(name)
    draw = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for weight in model.network.module.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=draw))
    return model


@pytest.mark.parametrize("guidance", [1.0, 2.5])
@pytest.mark.parametrize("name", NAMES)
def test_the_pipeline_of_diffusers_draws_the_same_images(name: ObjectiveName, guidance: float, tmp_path: Path) -> None:
    model_with_effect(name).save(tmp_path / "model")
    pipeline: Any = PixArtAlphaPipeline.from_pretrained(tmp_path / "model", low_cpu_mem_usage=False)
    pipeline.set_progress_bar_config(disable=True)
    theirs = pipeline(
        prompt=list(PROMPTS),
        num_inference_steps=8,
        guidance_scale=guidance,
        generator=torch.Generator().manual_seed(4),
        use_resolution_binning=False,
        clean_caption=False,
        max_sequence_length=LENGTH,
        output_type="pt",
    ).images
    sampling = SamplingSettings(steps=8, guidance=guidance, seed=4)
    ours = draw_images(ImageModel.load(tmp_path / "model"), PROMPTS, sampling)
    assert float((ours - theirs).abs().max()) <= 1e-4
    other = draw_images(ImageModel.load(tmp_path / "model"), PROMPTS[::-1], sampling)
    assert float((other - theirs).abs().max()) > 1e-3


def test_a_saved_model_is_the_same_when_it_is_read(tmp_path: Path) -> None:
    model = model_with_effect("velocity")
    model.save(tmp_path / "model")
    read = ImageModel.load(tmp_path / "model")
    assert (read.latents.digest, read.prompts.digest) == (model.latents.digest, model.prompts.digest)
    assert read.objective is not None
    assert read.objective.name == "velocity"
    sampling = SamplingSettings(steps=5, seed=3)
    assert torch.equal(draw_images(read, PROMPTS, sampling), draw_images(model, PROMPTS, sampling))


def test_images_are_the_same_for_a_seed_however_many_are_drawn_at_once() -> None:
    model = model_with_effect()
    together, apart = (draw_images(model, PROMPTS, SamplingSettings(steps=5, at_once=size)) for size in (4, 1))
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=0)
    assert not torch.equal(together, draw_images(model, PROMPTS, SamplingSettings(steps=5, seed=1)))


def test_drawing_touches_neither_the_random_stream_nor_the_mode() -> None:
    model = model_with_effect()
    model.network.module.train()
    before = torch.get_rng_state()
    draw_images(model, PROMPTS, SamplingSettings(steps=5))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(part.training for part in model.network.module.modules())


def test_nothing_drops_out_while_images_are_drawn() -> None:
    model, modes = model_with_effect(), list[bool]()
    model.network.module.train()
    model.network.module.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    draw_images(model, PROMPTS[:1], SamplingSettings(steps=5))
    assert modes
    assert not any(modes)


def test_a_model_that_has_learnt_nothing_draws_nothing(tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "model")
    model = ImageModel.load(tmp_path / "model")
    assert model.objective is None
    with pytest.raises(SchedulerError, match="it is untrained"):
        draw_images(model, PROMPTS, SamplingSettings())


def test_a_prompt_to_draw_is_never_cut() -> None:
    with pytest.raises(DataError, match="has 17 tokens"):
        draw_images(model_with_effect(), ["a bar on the left " * 3], SamplingSettings())


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_with_effect()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model.prompts.tokenizer, "save_pretrained", full)
    with pytest.raises(ModelError, match="No space left on device"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_model_larger_than_there_is_room_for_is_one_error(tmp_path: Path) -> None:
    model, limits = model_with_effect(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(ModelError, match=r"cannot be written .*File too large"):
            model.save(tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_read_again_does_not_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def another(*_: object) -> FlowMatchEulerDiscreteScheduler:
        return FlowMatchEulerDiscreteScheduler(1000)

    monkeypatch.setattr("trainers.dit.models._load_scheduler", another)
    with pytest.raises(SchedulerError, match="is not the sampler of an objective"):
        model_with_effect().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_what_a_kill_has_left_of_a_folder_is_in_nobodys_way(tmp_path: Path) -> None:
    for name in (".draft-model-abcdefgh", ".draft-model-2-abcdefgh"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("")
    model_with_effect().save(tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".draft-model-2-abcdefgh", "model"]
    assert not (tmp_path / "model" / "half").exists()


def test_a_folder_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(ModelError, match="already exists"):
        model_with_effect().save(tmp_path / "model")


def without_a_weight(folder: Path) -> None:
    path = folder / "transformer" / "diffusion_pytorch_model.safetensors"
    weights = load_file(path)
    weights.pop("proj_out.bias")
    save_file(weights, path, {"format": "pt"})


def of_another_class(folder: Path) -> None:
    path = folder / "model_index.json"
    path.write_text(path.read_text().replace("PixArtTransformer2DModel", "DiTTransformer2DModel"))


def with_another_scheduler(folder: Path) -> None:
    FlowMatchEulerDiscreteScheduler(1000).save_pretrained(folder / "scheduler")
    path = folder / "model_index.json"
    path.write_text(path.read_text().replace("DPMSolverMultistepScheduler", "FlowMatchEulerDiscreteScheduler"))


def with_another_setting(folder: Path) -> None:
    path = folder / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"prediction_type": "epsilon"}))


def without_index(folder: Path) -> None:
    (folder / "model_index.json").unlink()


def of_another_vae(folder: Path) -> None:
    tiny_vae(channels=2).save_pretrained(folder / "vae")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (without_a_weight, "its weights do not match its configuration.*proj_out.bias"),
        (of_another_class, "has DiTTransformer2DModel as transformer, expected PixArtTransformer2DModel"),
        (with_another_scheduler, r"FlowMatchEuler\w+\(.*is not the sampler of an objective: flow \(DPMSolver"),
        (with_another_setting, r"DPMSolver\w+\(.*prediction_type='epsilon'.*is not the sampler of an objective"),
        (without_index, "is not a model: model_index.json is missing"),
        (of_another_vae, "has latents of 2 channels, but the transformer reads 4"),
    ],
)
def test_a_folder_that_is_no_model_is_refused(spoil: Callable[[Path], None], told: str, tmp_path: Path) -> None:
    model_with_effect().save(tmp_path / "model")
    spoil(tmp_path / "model")
    with pytest.raises(ImageError, match=told):
        ImageModel.load(tmp_path / "model")


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ModelError, match="has latents of 2 channels, but the transformer reads 4"):
        ImageModel.of(tiny_transformer(), tiny_vae(channels=2), tiny_encoder(), tiny_tokenizer())
    with pytest.raises(ModelError, match="embeddings of width 32, but the transformer reads 16"):
        ImageModel.of(tiny_transformer(), tiny_vae(), tiny_encoder(width=32), tiny_tokenizer())


def test_latents_that_the_pipeline_would_not_shift_back_are_refused() -> None:
    vae: Any = tiny_vae()
    vae.register_to_config(shift_factor=0.1)
    with pytest.raises(
        ModelError, match="the VAE has shift_factor, but PixArt's pipeline supports only scaling_factor"
    ):
        scaled(vae)


def test_encoding_is_undone_by_decoding_up_to_what_the_vae_loses() -> None:
    """Latents are scaled inversely in encoding and decoding."""
    coder = tiny_model().latents
    pixels = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(2)) * 2 - 1
    module: Any = coder.module
    plain = module.decode(module.encode(pixels).latent_dist.mean).sample
    torch.testing.assert_close(coder.decode(coder.encode(pixels).mean), (plain / 2 + 0.5).clamp(0, 1))


def test_what_freezes_does_not_drop_out() -> None:
    """T5's default settings have dropout."""
    config = T5Config(
        vocab_size=len(tiny_tokenizer()), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, dropout_rate=0.5
    )
    for coder in (PixArtPromptEncoder(T5EncoderModel(config).train(), tiny_tokenizer()), tiny_model().latents):
        assert not any(part.training for part in coder.module.modules())


def test_half_a_shade_is_rounded_and_not_cut() -> None:
    assert list(as_image(torch.tensor([[[0.0, 0.4, 0.999, 1.0]]]) * 1.0).tobytes()) == [0, 102, 255, 255]


def test_a_network_that_also_says_how_sure_it_is_is_asked_for_its_first_half() -> None:
    model = model_with_effect()
    settings: Any = model.network.module.config
    module: Any = PixArtTransformer2DModel.from_config({**settings, "out_channels": 8})
    network = PixArtNetwork(module, model.image_format)
    condition = model.prompts.embed(model.prompts.tokens(PROMPTS[:1]))
    assert network.predict(torch.zeros(1, 4, 4, 4), torch.zeros(1), condition).shape == (1, 4, 4, 4)


def test_a_network_of_the_largest_size_is_told_size_and_proportions() -> None:
    settings: Any = tiny_transformer().config
    largest = {**settings, "sample_size": 128, "patch_size": 32, "use_additional_conditions": True}
    module: Any = PixArtTransformer2DModel.from_config(largest)
    told: Any = PixArtNetwork(module, ImageFormat(1, 512, 1024))._build_size_conditions(torch.zeros(2, 4, 128, 128))
    assert told["resolution"].tolist() == [[512, 1024]] * 2
    assert told["aspect_ratio"].tolist() == [[0.5]] * 2


def test_a_grid_has_its_images_row_by_row() -> None:
    images = torch.arange(5.0).view(5, 1, 1, 1).expand(5, 1, 2, 3) / 10
    found = build_grid(images, 3)
    assert found.shape == (1, 4, 9)
    torch.testing.assert_close(found[0, ::2, ::3], torch.tensor([[0, 0.1, 0.2], [0.3, 0.4, 1.0]]))
    assert as_image(found).size == (9, 4)
