"""Make images of digits with prompts, and a small model to train on them: python examples/make_digits.py digits.

Writes scikit-learn's digits of 8x8 pixels to FOLDER/images and held-out ones to FOLDER/held, each with a metadata.csv
of `file|prompt` lines. FOLDER/base is a model in diffusers' layout: a VAE that is trained on FOLDER/images for half a
minute, a random text encoder that knows the words of the prompts, and an untrained transformer. Then:

    quantra train dit cache digits/images --model digits/base --out digits/cache
    quantra train dit train digits/cache --model digits/base --out digits/model
    quantra train dit sample digits/model --prompt "a handwritten digit seven" --out seven.png
    quantra train dit evaluate digits/model --images digits/images --held-out digits/held

Needs the extra `dit` and scikit-learn.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.transformers.pixart_transformer_2d import PixArtTransformer2DModel
from PIL import Image
from torch import Tensor
from torch.nn import functional
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from trainers.dit.models import ImageModel

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
WORDS = ("a", "handwritten", "digit", *DIGITS)
MAX_TOKENS = 12
"""Maximum number of tokens in a prompt."""
TRAIN = 1400
"""Number of training images; the others are held out."""
VAE_STEPS, VAE_BATCH, VAE_RATE, DIVERGENCE = 400, 64, 2e-3, 1e-4


def prompt_of(digit: int) -> str:
    """The prompt of a digit, such as "a handwritten digit seven"."""
    return f"a handwritten digit {DIGITS[digit]}"


def digits() -> tuple[Tensor, Tensor]:
    """All images in a fixed random order, uint8 [1797, 8, 8], and their digits, int64 [1797]."""
    from sklearn.datasets import load_digits  # only needed here

    found: Any = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(0))
    pixels = torch.from_numpy(np.round(found.images * (255 / 16)).astype(np.uint8))
    return pixels[order], torch.from_numpy(found.target)[order]


def write_images(folder: Path, pixels: Tensor, targets: Tensor) -> None:
    """Write metadata.csv and one PNG per image; images are uint8 [N, 8, 8] and digits int64 [N]."""
    folder.mkdir(parents=True)
    lines = ["file|prompt"]
    for number, (image, target) in enumerate(zip(pixels, targets.tolist(), strict=True)):
        Image.fromarray(image.numpy()).save(folder / f"{number:04d}.png")
        lines.append(f"{number:04d}.png|{prompt_of(target)}")
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def tokenizer_of(words: Sequence[str]) -> CLIPTokenizer:
    """A tokenizer with one token per given word; it spells other words letter by letter."""
    vocabulary = {"<|startoftext|>": 0, "<|endoftext|>": 1}
    for sign in "abcdefghijklmnopqrstuvwxyz":
        vocabulary[sign] = len(vocabulary)
        vocabulary[f"{sign}</w>"] = len(vocabulary)
    merges: list[tuple[str, str]] = []
    for word in words:
        parts = [*word[:-1], f"{word[-1]}</w>"]
        while len(parts) > 1:
            merges += [] if (parts[0], parts[1]) in merges else [(parts[0], parts[1])]
            parts = [parts[0] + parts[1], *parts[2:]]
            vocabulary.setdefault(parts[0], len(vocabulary))
    pairs: Any = merges
    return CLIPTokenizer(vocab=vocabulary, merges=pairs, model_max_length=MAX_TOKENS)


def encoder_of(tokenizer: CLIPTokenizer) -> CLIPTextModel:
    """A random text encoder; even untrained, it gives different prompts different embeddings."""
    torch.manual_seed(3)
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=MAX_TOKENS,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return CLIPTextModel(config)


def vae_of(pixels: Tensor, steps: int) -> AutoencoderKL:
    """A VAE for images, float [N, 1, 8, 8] in -1 to 1, whose latents have mean 0 and deviation 1 in each channel."""
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "block_out_channels": (16, 32),
    }
    vae = AutoencoderKL(
        in_channels=1,
        out_channels=1,
        latent_channels=4,
        norm_num_groups=8,
        sample_size=8,
        layers_per_block=1,
        scaling_factor=1.0,
        **settings,
    )
    model: Any = vae
    optimizer = torch.optim.AdamW(vae.parameters(), VAE_RATE)
    for _ in range(steps):
        batch = pixels[torch.randint(len(pixels), (VAE_BATCH,))]
        posterior = model.encode(batch).latent_dist
        loss = functional.mse_loss(model.decode(posterior.sample()).sample, batch)
        loss = loss + DIVERGENCE * posterior.kl().mean() / posterior.mean[0, 0].numel()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    standardize(model, pixels)
    return vae


@torch.no_grad()
def standardize(vae: Any, pixels: Tensor) -> None:
    """Scale the latents of images, float [N, 1, 8, 8], to mean 0 and deviation 1 in each channel.

    The two 1x1 convolutions around the latents absorb the change, so the decoded images stay the same. PixArt's
    pipeline has one scale for all channels and then needs none.
    """
    found = vae.encode(pixels).latent_dist.mean
    mean, deviation = found.mean((0, 2, 3)), found.std((0, 2, 3))
    channels = len(mean)
    into, out = vae.quant_conv, vae.post_quant_conv
    into.bias[:channels] = (into.bias[:channels] - mean) / deviation
    into.weight[:channels] /= deviation.view(-1, 1, 1, 1)
    into.bias[channels:] -= 2 * deviation.log()  # the logarithms of the variances
    out.bias += (out.weight[:, :, 0, 0] * mean).sum(1)
    out.weight *= deviation.view(1, -1, 1, 1)


def transformer_of(encoder: CLIPTextModel, seed: int) -> PixArtTransformer2DModel:
    """An untrained transformer with 300,000 weights."""
    torch.manual_seed(seed)
    return PixArtTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=16,
        in_channels=4,
        out_channels=4,
        num_layers=4,
        cross_attention_dim=64,
        caption_channels=encoder.config.hidden_size,
        sample_size=4,
        patch_size=1,
    )


def make(folder: Path, *, steps: int = VAE_STEPS, seed: int = 0) -> None:
    """Write the folders images, held and base.

    Raises:
        SystemExit: The folder is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"{folder} is not empty; name a new folder")
    pixels, targets = digits()
    write_images(folder / "images", pixels[:TRAIN], targets[:TRAIN])
    write_images(folder / "held", pixels[TRAIN:], targets[TRAIN:])
    tokenizer = tokenizer_of(WORDS)
    encoder = encoder_of(tokenizer)
    vae = vae_of(pixels[:TRAIN, None].float() / 127.5 - 1, steps)
    ImageModel.of(transformer_of(encoder, seed), vae, encoder, tokenizer).save(folder / "base")


def main() -> None:
    """Create the folders and print where they are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("folder", type=Path, help="new or empty folder")
    parser.add_argument("--vae-steps", type=int, default=VAE_STEPS, help=f"steps of the VAE (default: {VAE_STEPS})")
    parser.add_argument("--seed", type=int, default=0, help="seed of the transformer's initial weights (default: 0)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    make(options.folder, steps=options.vae_steps, seed=options.seed)
    folder = options.folder
    print(f"{TRAIN} images in {folder / 'images'}, held-out ones in {folder / 'held'}, a model in {folder / 'base'}")


if __name__ == "__main__":
    main()
