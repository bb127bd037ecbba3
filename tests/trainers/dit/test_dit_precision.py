"""Training in 16 bits: which parts use it, and how close the results are to 32 bits.

`pytest -rP` shows memory and time per step. They are not tested, because a shared GPU has no constant speed.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from diffusers.models.transformers.pixart_transformer_2d import PixArtTransformer2DModel
from tiny_images import tiny_encoder, tiny_model, tiny_tokenizer, tiny_transformer, tiny_vae, write_images
from torch import Tensor, nn

from trainers.dit.batches import LatentCache, RawImageFiles, write_cache
from trainers.dit.images import read_pictures
from trainers.dit.models import ImageModel
from trainers.dit.recipe import ImageRecipe
from trainers.dit.training import fit
from trainers.loop import PrecisionName, Report, StepReport, seed_everything

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
STEPS = 20
SIXTEEN = (torch.bfloat16, torch.float16)
MEBIBYTE = 2**20


class TrainingSize(NamedTuple):
    """Size of a training run."""

    make: Callable[[], PixArtTransformer2DModel]
    batch: int


def large_transformer() -> PixArtTransformer2DModel:
    """About 12 million weights."""
    torch.manual_seed(7)
    return PixArtTransformer2DModel(
        num_attention_heads=8,
        attention_head_dim=32,
        in_channels=4,
        out_channels=4,
        num_layers=8,
        cross_attention_dim=256,
        caption_channels=16,
        sample_size=4,
        patch_size=1,
    )


SIZES = {"cpu": TrainingSize(tiny_transformer, 12), "cuda": TrainingSize(large_transformer, 512)}


@dataclass(frozen=True)
class Seen:
    """Measurements of a training run."""

    losses: list[float]
    seconds: list[float]
    peak: int
    computed: set[torch.dtype]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images and their cache."""
    place, model = tmp_path_factory.mktemp("images"), tiny_model()
    write_cache(read_pictures(write_images(place), model.image_format, lambda _: None), model, place / "cache")
    return place


def measure_training(folder: Path, device: str, precision: PrecisionName, *, plain: bool = False) -> Seen:
    """Train for some steps."""
    size, windows, computed = SIZES[device], list[StepReport](), set[torch.dtype]()
    model = ImageModel.of(size.make(), tiny_vae(), tiny_encoder(), tiny_tokenizer()).learning("flow")

    def note(_: nn.Module, __: object, made: Tensor) -> None:
        computed.add(made.dtype)

    def kept(reports: Iterable[Report]) -> Iterator[Report]:
        for report in reports:
            windows.extend([report] if isinstance(report, StepReport) else [])
            yield report

    asked: Any = model.network.module
    asked.transformer_blocks[0].attn1.to_q.register_forward_hook(note)
    pictures = read_pictures(folder, model.image_format, lambda _: None)
    source: Any = RawImageFiles(pictures, model.prompts) if plain else LatentCache.open(folder / "cache")
    recipe = ImageRecipe(steps=STEPS, batch_size=size.batch, device=device, precision=precision, ema=0.0)
    seed_everything(recipe.seed)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    fit(model, source, recipe, None, kept)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    return Seen([one.loss for one in windows], [one.seconds for one in windows], peak, computed)


def summary_line(name: str, found: Seen) -> str:
    middle = sorted(found.seconds)[len(found.seconds) // 2]
    return f"{name}: {1e3 * middle:.1f} ms a step, {found.peak / MEBIBYTE:.0f} MiB, loss {found.losses[-1]:.4f}"


@pytest.mark.parametrize(
    ("device", "precision"),
    [("cpu", "bf16"), *(pytest.param("cuda", name, marks=GPU) for name in ("auto", "bf16", "fp16"))],
)
def test_a_training_in_16_bits_stays_near_one_in_32(device: str, precision: PrecisionName, folder: Path) -> None:
    full, half = measure_training(folder, device, "fp32"), measure_training(folder, device, precision)
    print(f"{summary_line('fp32', full)}; {summary_line(precision, half)}")  # noqa: T201  shown by -rP
    assert full.computed == {torch.float32}
    assert half.computed <= set(SIXTEEN)
    assert len(half.losses) == STEPS
    assert half.losses[0] == pytest.approx(full.losses[0], rel=0.01)
    assert half.losses != full.losses
    assert math.fsum(half.losses[-5:]) == pytest.approx(math.fsum(full.losses[-5:]), rel=0.1)


@pytest.mark.parametrize(("device", "precision"), [("cpu", "bf16"), pytest.param("cuda", "bf16", marks=GPU)])
def test_images_are_encoded_in_32_bits_also_where_the_transformer_computes_in_16(
    device: str, precision: PrecisionName, folder: Path
) -> None:
    cached, plain = measure_training(folder, device, precision), measure_training(folder, device, precision, plain=True)
    assert plain.computed <= set(SIXTEEN)
    near = 1e-6 if device == "cpu" else 1e-3  # the cache was encoded on the CPU
    assert plain.losses[0] == pytest.approx(cached.losses[0], rel=near)
    assert plain.losses == pytest.approx(cached.losses, rel=0.01)
