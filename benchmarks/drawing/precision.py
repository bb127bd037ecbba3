"""Time and memory of a training step in 16 bits on a CUDA device, for a wide transformer."""

import statistics
from typing import Any

import torch
from diffusers.models.transformers.pixart_transformer_2d import PixArtTransformer2DModel

from benchmarks.drawing.digits import Workplace
from benchmarks.report import Row, shown, unmeasured
from benchmarks.training.amp import Cost, cost_rows, measure_cost
from trainers.dit.batches import EncodedImages
from trainers.dit.encoders import Posterior
from trainers.dit.models import ImageModel
from trainers.dit.networks import PromptCondition
from trainers.dit.objective import create_objective
from trainers.dit.recipe import ImageRecipe
from trainers.dit.training import build_loop
from trainers.loop import IterableSource, PrecisionName, seed_everything

SPEED, MEMORY = "16 bits / float32: time of a step", "16 bits / float32: peak memory"
HEADS, WIDTH, LAYERS, SIDE, BATCH, WARM = 16, 64, 12, 32, 32, 5


def rows(work: Workplace, *, quick: bool) -> list[Row]:
    """Both ratios, unmeasured without a CUDA device."""
    if not torch.cuda.is_available():
        return [unmeasured(name, "no CUDA device") for name in (SPEED, MEMORY)]
    steps = 5 if quick else 20
    rounds = [(cost(work, "fp32", steps), cost(work, "bf16", steps)) for _ in range(2 if quick else 5)]
    detail = f"PixArt of {LAYERS} x {HEADS * WIDTH}, {BATCH} x {SIDE}x{SIDE} latents; {torch.cuda.get_device_name()}"
    return [
        shown(SPEED, statistics.median(half.seconds / full.seconds for full, half in rounds), detail=detail),
        shown(MEMORY, statistics.median(half.peak / full.peak for full, half in rounds), detail=detail),
        *cost_rows(rounds, "step", detail),
    ]


def cost(work: Workplace, precision: PrecisionName, steps: int) -> Cost:
    """Train on noise."""
    model = wide(work)
    draw = torch.Generator().manual_seed(0)
    mean = torch.randn(BATCH, 4, SIDE, SIDE, generator=draw)
    embedded = torch.randn(BATCH, 12, model.network.caption_width, generator=draw)
    condition = PromptCondition.of(embedded, torch.ones(BATCH, 12, dtype=torch.long))
    batches = [EncodedImages(Posterior(mean, torch.ones_like(mean)), condition)] * (WARM + steps)
    loop = build_loop(model, ImageRecipe(device="cuda", precision=precision))
    seed_everything(0)
    return measure_cost(loop, IterableSource(batches), warm=WARM, windows=steps)


def wide(work: Workplace) -> ImageModel:
    """A transformer of 200 million weights, with the encoders of the digits, which are not used here."""
    parts: Any = ImageModel.load(work.base(0))
    torch.manual_seed(0)
    transformer = PixArtTransformer2DModel(
        num_attention_heads=HEADS,
        attention_head_dim=WIDTH,
        in_channels=4,
        out_channels=4,
        num_layers=LAYERS,
        cross_attention_dim=HEADS * WIDTH,
        caption_channels=parts.network.caption_width,
        sample_size=SIDE,
        patch_size=2,
    )
    latents, prompts = parts.latents.module, parts.prompts
    return ImageModel.of(transformer, latents, prompts.module, prompts.tokenizer, create_objective("flow"))
