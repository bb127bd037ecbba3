"""An image model of a few thousand weights for 8x8 pixels, and folders of matching images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.transformers.pixart_transformer_2d import PixArtTransformer2DModel
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import Unigram
from tokenizers.pre_tokenizers import Metaspace
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer, PreTrainedTokenizerFast

from examples.make_digits import MAX_TOKENS as LENGTH
from examples.make_digits import tokenizer_of
from trainers.dit.models import ImageModel

WORDS: Final = ("a", "bar", "on", "the", "left", "right", "top", "bottom")
PROMPTS: Final = tuple(f"a bar on the {side}" for side in WORDS[4:])


def tiny_tokenizer() -> CLIPTokenizer:
    """A tokenizer that knows a few words and spells others."""
    return tokenizer_of(WORDS)


def tiny_pieces() -> PreTrainedTokenizerFast:
    """Word pieces like T5's, with a token for unknown text."""
    pieces = [("</s>", 0.0), ("<pad>", 0.0), ("<unk>", 0.0), ("▁", -9.0), *((f"▁{word}", -1.0) for word in WORDS)]
    made = Tokenizer(Unigram(pieces, unk_id=2))
    made.pre_tokenizer = Metaspace()
    named: Any = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=LENGTH, **named)


def tiny_encoder(*, seed: int = 3, width: int = 16) -> CLIPTextModel:
    torch.manual_seed(seed)
    config = CLIPTextConfig(
        vocab_size=len(tiny_tokenizer()),
        hidden_size=width,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=LENGTH,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return CLIPTextModel(config)


def tiny_vae(*, seed: int = 5, channels: int = 4) -> AutoencoderKL:
    """A VAE from 8x8 grey pixels to 4x4 latents."""
    torch.manual_seed(seed)
    settings: dict[str, Any] = {  # the annotations of diffusers' know one block only
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "block_out_channels": (8, 8),
    }
    return AutoencoderKL(
        in_channels=1,
        out_channels=1,
        latent_channels=channels,
        norm_num_groups=4,
        sample_size=8,
        layers_per_block=1,
        scaling_factor=0.7,
        **settings,
    )


def tiny_transformer(*, seed: int = 7) -> PixArtTransformer2DModel:
    torch.manual_seed(seed)
    return PixArtTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        cross_attention_dim=16,
        caption_channels=16,
        sample_size=4,
        patch_size=1,
    )


def tiny_model() -> ImageModel:
    """An untrained model."""
    return ImageModel.of(tiny_transformer(), tiny_vae(), tiny_encoder(), tiny_tokenizer())


def bar(prompt: str, seed: int) -> Image.Image:
    """An image with a bright edge on the side that the prompt names."""
    draw = np.random.default_rng(seed)
    pixels = draw.integers(0, 60, (8, 8), dtype=np.uint8)
    part = {"left": np.s_[:, :3], "right": np.s_[:, 5:], "top": np.s_[:3], "bottom": np.s_[5:]}[
        prompt.rpartition(" ")[2]
    ]
    pixels[part] += 180
    return Image.fromarray(pixels)


def write_images(folder: Path, count: int = 12, lines: Sequence[str] = (), *, seed: int = 0) -> Path:
    """Write metadata.csv, with further lines, and images/*.png, whose pixels depend on the seed; returns the folder."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    told: list[str] = []
    for number in range(count):
        prompt = PROMPTS[number % len(PROMPTS)]
        bar(prompt, seed + number).save(folder / "images" / f"{number:04d}.png")
        told.append(f"images/{number:04d}.png|{prompt}")
    (folder / "metadata.csv").write_text("\n".join(("file|prompt", *told, *lines)) + "\n", "utf-8")
    return folder
