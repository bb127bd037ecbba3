"""Whether the matching pipeline of diffusers draws the same images from a saved folder: same noise, steps, guidance."""

import warnings
from pathlib import Path
from typing import Any, Final

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.transformers.transformer_glm_image import GlmImageTransformer2DModel
from diffusers.pipelines.glm_image.pipeline_glm_image import GlmImagePipeline
from diffusers.pipelines.pixart_alpha.pipeline_pixart_alpha import PixArtAlphaPipeline
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from transformers import ByT5Tokenizer, T5Config, T5EncoderModel

from benchmarks.drawing.digits import Workplace
from benchmarks.report import Row, at_most
from examples.make_digits import DIGITS, LONGEST, prompt_of
from trainers.dit.models import ImageModel
from trainers.dit.sampling import Sampling, draw_images

REACH: Final = 1e-4
SAMPLING: Final = Sampling(steps=20, guidance=2.0, seed=4)
SIDE: Final = 16
"""Pixels of GLM-Image's tiny images."""
WRITTEN: Final = ("a shop with the sign 'open'", "a shop without one")


def rows(work: Workplace) -> list[Row]:
    """Of the trained models that are there, and of a tiny GLM-Image of random weights."""
    found = {
        **{f"PixArt, {name}": pixart_error(work.folder / name) for name in ("flow-0", "epsilon", "velocity")},
        "GLM-Image, tiny": glm_error(work.folder / "glm"),
    }
    return [
        at_most(
            f"pipeline of diffusers, {name}: largest difference",
            error,
            REACH,
            detail=f"pixels of 0 to 1, {SAMPLING.steps} steps, guidance {SAMPLING.guidance:g}",
        )
        for name, error in found.items()
    ]


def pixart_error(folder: Path) -> float:
    """Of all ten digits by a trained model."""
    prompts = [prompt_of(digit) for digit in range(len(DIGITS))]
    pipeline: Any = PixArtAlphaPipeline.from_pretrained(folder, low_cpu_mem_usage=False)
    pipeline.set_progress_bar_config(disable=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its solver hands tensors to NumPy the old way
        theirs = pipeline(
            prompt=prompts,
            num_inference_steps=SAMPLING.steps,
            guidance_scale=SAMPLING.guidance,
            generator=torch.Generator().manual_seed(SAMPLING.seed),
            use_resolution_binning=False,
            clean_caption=False,
            max_sequence_length=LONGEST,
            output_type="pt",
        ).images
        ours = draw_images(ImageModel.load(folder), prompts, SAMPLING)
    return float((ours - theirs).abs().max())


def glm_error(folder: Path) -> float:
    """Of two images with plans that were drawn at random."""
    if not folder.is_dir():
        tiny_glm().save(folder)
    without: dict[str, Any] = {"processor": None, "vision_language_encoder": None}  # what plans images is not there
    pipeline: Any = GlmImagePipeline.from_pretrained(folder, low_cpu_mem_usage=False, **without)
    pipeline.set_progress_bar_config(disable=True)
    model = ImageModel.load(folder)
    plans = torch.randint(1, 32, (len(WRITTEN), model.network.priors), generator=torch.Generator().manual_seed(1))
    theirs = pipeline(
        prompt=list(WRITTEN),
        prior_token_ids=plans,
        height=SIDE,
        width=SIDE,
        num_inference_steps=SAMPLING.steps,
        guidance_scale=SAMPLING.guidance,
        generator=torch.Generator().manual_seed(SAMPLING.seed),
        output_type="pt",
    ).images
    return float((draw_images(model, WRITTEN, SAMPLING, plans) - theirs).abs().max())


def tiny_glm() -> ImageModel:
    """GLM-Image's parts with a few thousand random weights."""
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
    return ImageModel.of_glm(transformer, _tiny_vae(), encoder, ByT5Tokenizer(), glm_scheduler())


def glm_scheduler() -> FlowMatchEulerDiscreteScheduler:
    """Shifts on a line, as GLM-Image's does."""
    shifts: dict[str, Any] = {"time_shift_type": "linear", "base_shift": 0.25, "max_shift": 0.75}
    return FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, **shifts)


def _tiny_vae() -> AutoencoderKL:
    """Colours to 8x8 latents of four channels, which have statistics of their own."""
    blocks: dict[str, Any] = {  # the annotations of diffusers' know one block only
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "block_out_channels": (8, 8),
        "latents_mean": (0.1, -0.2, 0.3, 0.0),
        "latents_std": (0.5, 0.6, 0.7, 0.8),
    }
    return AutoencoderKL(latent_channels=4, norm_num_groups=4, sample_size=SIDE, layers_per_block=1, **blocks)
