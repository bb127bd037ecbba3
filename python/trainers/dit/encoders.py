"""Frozen encoders: a VAE for images, and a text encoder with its tokenizer."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from torch import Tensor, nn
from transformers import CLIPTextConfig

from trainers.dit.errors import DataError, ModelError
from trainers.dit.images import ImageFormat
from trainers.dit.networks import PromptCondition
from trainers.loop.weights import hash_weights
from trainers.media.metadata import normal_text

SAVING_FIELDS: Final = frozenset(("architectures", "dtype", "torch_dtype", "transformers_version"))
"""Configuration fields that saving adds."""

MAX_TOKENS: Final = 120
"""Maximum prompt tokens of PixArt's pipeline."""

SURROUNDING: Final = re.compile(r"^\W+|\W+$")
"""Punctuation at both ends of a word."""


QUOTES: Final = tuple(re.compile(quoted) for quoted in (r"'([^']*)'", r"“([^“”]*)”", r'"([^"]*)"', r"「([^「」]*)」"))
MAX_GLYPHS: Final = 2048
"""Maximum tokens of a written text in its pipeline."""


class Posterior(NamedTuple):
    """Posterior of image latents, in the units of the transformer.

    Attributes:
        mean: float32 [N, channels, height, width].
        deviation: Standard deviation, of the same shape.
    """

    mean: Tensor
    deviation: Tensor


class PromptTokens(NamedTuple):
    """Tokenized prompts.

    Attributes:
        ids: int64 [N, tokens].
        mask: int64 [N, tokens], 0 for padding.
    """

    ids: Tensor
    mask: Tensor


class LatentUnits(NamedTuple):
    """Normalisation of VAE latents for a transformer.

    Attributes:
        center: Offset per channel: [channels] or [1].
        unit: Scale, of the same shape.
    """

    center: Tensor
    unit: Tensor

    def move_to(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Center and unit on a device, [channels, 1, 1] or [1, 1, 1]."""
        return self.center.to(device)[:, None, None], self.unit.to(device)[:, None, None]


def scaled(vae: AutoencoderKL) -> LatentUnits:
    """Units of a VAE with one scale for all channels, as in PixArt's pipeline.

    Raises:
        ModelError: The latents are shifted, which that pipeline does not undo.
    """
    config: Any = vae.config
    unknown = [name for name in ("shift_factor", "latents_mean", "latents_std") if config.get(name) is not None]
    if unknown:
        raise ModelError(
            f"the VAE has {', '.join(unknown)}, but PixArt's pipeline supports only scaling_factor; put the "
            "statistics into the weights of its quantizing convolutions"
        )
    return LatentUnits(torch.zeros(1), torch.tensor([1 / float(config.scaling_factor)]))


def read_standardised_units(vae: AutoencoderKL) -> LatentUnits:
    """Units of a VAE with per-channel statistics, as in GLM-Image's pipeline.

    Raises:
        ModelError: The VAE has no statistics.
    """
    config: Any = vae.config
    if config.latents_mean is None or config.latents_std is None:
        raise ModelError("the VAE has no latents_mean and latents_std, which GLM-Image's pipeline needs")
    return LatentUnits(torch.tensor(config.latents_mean), torch.tensor(config.latents_std))


@final
class LatentCoder:
    """Encodes pixels to latents and back.

    Args:
        module: VAE.
        side: Latents along an edge of an image.
        units: Units of the latents.

    Attributes:
        module: As given, frozen.
        image_format: Format of the images.
    """

    def __init__(self, module: AutoencoderKL, side: int, units: LatentUnits) -> None:
        config: Any = module.config
        self.module = module.requires_grad_(False).eval()
        pixels = side * find_scale(module)
        self.image_format = ImageFormat(config.in_channels, pixels, pixels)
        self._units = units

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Posterior:
        """Encode images, float32 [N, channels, height, width], -1 to 1."""
        posterior = self.module.encode(pixels, return_dict=False)[0]
        center, unit = self._units.move_to(pixels.device)
        # Random draws follow the memory layout, which must be the same as from a cache.
        return Posterior(((posterior.mean - center) / unit).contiguous(), (posterior.std / unit).contiguous())

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Decode latents, float32 [N, channels, side, side], to images, [N, channels, height, width], 0 to 1."""
        center, unit = self._units.move_to(latents.device)
        scaled: Any = latents * unit + center
        pixels: Tensor = self.module.decode(scaled, return_dict=False)[0]
        return (pixels / 2 + 0.5).clamp(0, 1)

    @property
    def digest(self) -> str:
        """Digest of configuration and weights."""
        return hash_module(self.module)


@final
class PixArtPromptEncoder:
    """Embeds prompts as in PixArt's pipeline: lower case, padded to one length.

    Args:
        module: Text encoder.
        tokenizer: Its tokenizer.

    Attributes:
        module: The text encoder, frozen.
        tokenizer: As given.
        length: Tokens per prompt, including start and end.
        width: Width of the embeddings.

    Raises:
        ModelError: The tokenizer makes more tokens than the encoder reads.
    """

    def __init__(self, module: nn.Module, tokenizer: Any) -> None:
        config: Any = module.config
        self.module = module.requires_grad_(False).eval()
        self.tokenizer = tokenizer
        self.length = min(int(tokenizer.model_max_length), MAX_TOKENS)
        self.width: int = config.hidden_size
        # T5's positions are relative, so that it reads any number of tokens.
        if isinstance(config, CLIPTextConfig) and self.length > config.max_position_embeddings:
            raise ModelError(
                f"the tokenizer makes {self.length} tokens of a prompt, but the encoder reads at most "
                f"{config.max_position_embeddings}"
            )

    def check(self, prompt: str) -> None:
        """Check that the whole prompt can be read.

        Raises:
            DataError: It is too long, or the tokenizer would read a part as the end of the prompt.
        """
        text = normalise_prompt(prompt)
        tokens = len(self.tokenizer(text, verbose=False).input_ids)
        if tokens > self.length:
            raise DataError(
                f"the prompt {prompt!r} has {tokens} tokens, but the text encoder reads {self.length}; shorten it"
            )
        unknown = self.unknown(prompt)
        if unknown and self.tokenizer.unk_token_id == self.tokenizer.eos_token_id:  # as CLIP's are
            raise DataError(
                f"the prompt {prompt!r} has {', '.join(map(repr, unknown))}, which the tokenizer does not know; "
                "rephrase it"
            )

    def words(self, prompt: str) -> tuple[str, ...]:
        """Lower-case words without surrounding punctuation."""
        return tuple(filter(None, (SURROUNDING.sub("", word) for word in normalise_prompt(prompt).split())))

    def unknown(self, prompt: str) -> tuple[str, ...]:
        """Words with parts that the tokenizer has no token for."""
        none = self.tokenizer.unk_token_id
        if none is None:
            return ()
        # Compare ids, not token strings: sentencepiece returns unknown text verbatim.
        read = {
            word: self.tokenizer(word, add_special_tokens=False).input_ids for word in normalise_prompt(prompt).split()
        }
        return tuple(word for word, ids in read.items() if none in ids)

    def tokens(self, prompts: Sequence[str]) -> PromptTokens:
        """Tokenize prompts.

        Raises:
            DataError: A prompt is too long, or has something unknown.
        """
        for prompt in prompts:
            self.check(prompt)
        return pad_and_tokenize(self.tokenizer, [normalise_prompt(prompt) for prompt in prompts], self.length)

    @torch.no_grad()
    def embed(self, tokens: PromptTokens) -> PromptCondition:
        """Embed tokens, int64 [N, tokens], on the encoder's device."""
        device = next(self.module.parameters()).device
        ids, mask = tokens.ids.to(device), tokens.mask.to(device)
        return PromptCondition.of(self.module(ids, attention_mask=mask)[0], mask)

    @property
    def digest(self) -> str:
        """Digest of configuration, weights and tokenizer."""
        settings: dict[str, Any] = json.loads(self.tokenizer.backend_tokenizer.to_str())
        settings |= {"padding": None, "truncation": None}  # these depend on the last call
        spelled = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(f"{hash_module(self.module)}\n{self.length}\n{spelled}".encode()).hexdigest()


@final
class GlyphCoder:
    """Embeds the quoted text of a prompt as in GLM-Image's pipeline; the rest is in the prior tokens.

    Args:
        module: T5 text encoder.
        tokenizer: Byte tokenizer.
        length: Maximum tokens of a text.

    Attributes:
        tokenizer: As given.
        length: As given.
        width: Width of the embeddings.
    """

    def __init__(self, module: Any, tokenizer: Any, length: int = 256) -> None:
        self.module = module.requires_grad_(False).eval()
        self.tokenizer = tokenizer
        self.length = min(length, MAX_GLYPHS)
        self.width: int = module.config.d_model

    def check(self, prompt: str) -> None:
        """Check that the text to write can be read.

        Raises:
            DataError: The text is too long, or there are several.
        """
        tokens = len(self.tokenizer(find_quoted_text(prompt)).input_ids)
        if tokens > self.length:
            raise DataError(
                f"the text to write in {prompt!r} has {tokens} tokens, but at most {self.length} are read; shorten it"
            )

    def words(self, prompt: str) -> tuple[str, ...]:  # noqa: ARG002 - the prior tokens represent the prompt
        """Empty: the text to write is read by bytes."""
        return ()

    def unknown(self, prompt: str) -> tuple[str, ...]:  # noqa: ARG002 - there is a token for each byte
        """Empty."""
        return ()

    def tokens(self, prompts: Sequence[str]) -> PromptTokens:
        """Tokenize the texts to write.

        Raises:
            DataError: A text is too long, or a prompt has several.
        """
        for prompt in prompts:
            self.check(prompt)
        return pad_and_tokenize(self.tokenizer, [find_quoted_text(prompt) for prompt in prompts], self.length)

    @torch.no_grad()
    def embed(self, tokens: PromptTokens) -> PromptCondition:
        """Embed tokens, int64 [N, tokens], padded at the front, as the transformer expects."""
        device = next(self.module.parameters()).device
        ids, mask = tokens.ids.to(device), tokens.mask.to(device)
        embeddings = self.module(ids, attention_mask=mask).last_hidden_state * mask[..., None]
        missing = (mask == 0).sum(1).tolist()
        rows = [torch.roll(row, empty, dims=0) for row, empty in zip(embeddings, missing, strict=True)]
        return PromptCondition.of(torch.stack(rows), mask.flip(1))

    @property
    def digest(self) -> str:
        """Digest of configuration and weights; the tokenizer has no state."""
        return hash_module(self.module)


PromptEncoder = PixArtPromptEncoder | GlyphCoder
"""Encodes prompts for a transformer."""


def find_quoted_text(prompt: str) -> str:
    """The quoted text of a prompt, or an empty string.

    Raises:
        DataError: The prompt has several.
    """
    quoted_texts = [text for quoted in QUOTES for text in quoted.findall(prompt)]
    if len(quoted_texts) > 1:
        raise DataError(f"the prompt {prompt!r} has {len(quoted_texts)} texts in quotation marks; use only one")
    return quoted_texts[0] if quoted_texts else ""


def pad_and_tokenize(tokenizer: Any, texts: Sequence[str], length: int) -> PromptTokens:
    """Tokenize checked texts, padded to a length: int64 [N, length]."""
    tokens = tokenizer(list(texts), padding="max_length", max_length=length, return_tensors="pt")
    return PromptTokens(tokens.input_ids, tokens.attention_mask)


def normalise_prompt(prompt: str) -> str:
    """Normalise a prompt for the tokenizer."""
    return normal_text(prompt).lower()


def find_scale(vae: AutoencoderKL) -> int:
    """Pixels per latent, along an edge."""
    config: Any = vae.config
    return 2 ** (len(config.block_out_channels) - 1)


def hash_module(module: nn.Module) -> str:
    """sha256 of a module's configuration and weights, in hexadecimal."""
    config: Any = module.config
    values = dict(config) if isinstance(config, Mapping) else config.to_dict()
    plain = {name: value for name, value in values.items() if not name.startswith("_") and name not in SAVING_FIELDS}
    weights = hash_weights(sorted(module.state_dict().items()))
    return hashlib.sha256(f"{json.dumps(plain, sort_keys=True, default=str)}\n{weights}".encode()).hexdigest()
