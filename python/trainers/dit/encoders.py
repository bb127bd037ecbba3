"""What is frozen: a VAE between pixels and latents, and a text encoder with its tokenizer."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, final

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from torch import Tensor, nn
from transformers import CLIPTextConfig

from trainers.dit.errors import DataError, ModelError
from trainers.dit.images import ImageFormat
from trainers.dit.networks import PromptCondition
from trainers.media.metadata import normal_text

UNTOLD: Final = frozenset(("architectures", "dtype", "torch_dtype", "transformers_version"))
"""What saving adds to a configuration."""

MOST_TOKENS: Final = 120
"""As many as PixArt's pipeline gives its transformer of a prompt at most."""

AROUND: Final = re.compile(r"^\W+|\W+$")
"""Punctuation at both ends of a word."""


class Posterior(NamedTuple):
    """Where the latents of images may lie, in the units of the transformer.

    Attributes:
        mean: float32 [N, channels, height, width].
        deviation: of the same shape.
    """

    mean: Tensor
    deviation: Tensor


class PromptTokens(NamedTuple):
    """Prompts as their encoder reads them.

    Attributes:
        ids: int64 [N, tokens].
        mask: int64 [N, tokens], 0 where padded.
    """

    ids: Tensor
    mask: Tensor


class LatentUnits(NamedTuple):
    """How latents of a VAE are counted by a transformer.

    Attributes:
        center: what it takes as 0, by channels: [channels] or [1].
        unit: what it takes as 1 from there on, of the same shape.
    """

    center: Tensor
    unit: Tensor

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Both there, [channels, 1, 1] or [1, 1, 1]."""
        return self.center.to(device)[:, None, None], self.unit.to(device)[:, None, None]


def scaled(vae: AutoencoderKL) -> LatentUnits:
    """The units of a VAE with one number for all channels, as PixArt's pipeline takes them.

    Raises:
        ModelError: its latents are shifted, which that pipeline does not undo.
    """
    config: Any = vae.config
    unknown = [name for name in ("shift_factor", "latents_mean", "latents_std") if config.get(name) is not None]
    if unknown:
        raise ModelError(
            f"the VAE has {', '.join(unknown)}, and PixArt's pipeline knows scaling_factor alone; put the "
            "statistics into the weights of its quantizing convolutions"
        )
    return LatentUnits(torch.zeros(1), torch.tensor([1 / float(config.scaling_factor)]))


@final
class LatentCoder:
    """Pixels to latents and back.

    Args:
        module: the VAE.
        side: latents from one edge of an image to the other.
        units: of its latents for the transformer.

    Attributes:
        module: as given, frozen.
        form: of the images.
    """

    def __init__(self, module: AutoencoderKL, side: int, units: LatentUnits) -> None:
        config: Any = module.config
        self.module = module.requires_grad_(False).eval()
        pixels = side * scale_of(module)
        self.form = ImageFormat(config.in_channels, pixels, pixels)
        self._units = units

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Posterior:
        """The posterior of images, float32 [N, channels, height, width], -1 to 1."""
        found = self.module.encode(pixels, return_dict=False)[0]
        center, unit = self._units.on(pixels.device)
        # Numbers drawn for them come in the order in which they lie in memory, which must be the same from a cache.
        return Posterior(((found.mean - center) / unit).contiguous(), (found.std / unit).contiguous())

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Images of latents, float32 [N, channels, side, side]: [N, channels, height, width], 0 to 1."""
        center, unit = self._units.on(latents.device)
        scaled: Any = latents * unit + center
        pixels: Tensor = self.module.decode(scaled, return_dict=False)[0]
        return (pixels / 2 + 0.5).clamp(0, 1)

    @property
    def digest(self) -> str:
        """Of configuration and weights."""
        return digest_of(self.module)


class PromptEncoder(Protocol):
    """Prompts to what a transformer reads of them.

    Attributes:
        tokenizer: from text to its tokens.
        length: tokens of a prompt.
        width: of the embeddings.
    """

    tokenizer: Any
    length: int
    width: int

    @property
    def module(self) -> nn.Module:
        """The text encoder, frozen."""
        ...

    @property
    def digest(self) -> str:
        """Of all that embeddings depend on."""
        ...

    def check(self, prompt: str) -> None:
        """Raise a `DataError` unless all of a prompt is read."""
        ...

    def words(self, prompt: str) -> tuple[str, ...]:
        """Those that are read of a prompt; none where it is not read word by word."""
        ...

    def unknown(self, prompt: str) -> tuple[str, ...]:
        """Those in which the tokenizer meets something that it has no token for."""
        ...

    def tokens(self, prompts: Sequence[str]) -> PromptTokens:
        """Prompts as tokens, checked."""
        ...

    def embed(self, tokens: PromptTokens) -> PromptCondition:
        """Embeddings of tokens, int64 [N, tokens]."""
        ...


@final
class PixArtPromptEncoder:
    """Prompts to embeddings, as PixArt's pipeline makes them: in small letters, padded to one length.

    Args:
        module: the text encoder.
        tokenizer: from text to its tokens.

    Attributes:
        tokenizer: as given.
        length: tokens of a prompt, its beginning and end included.
        width: of the embeddings.

    Raises:
        ModelError: the tokenizer makes more tokens than the encoder reads.
    """

    def __init__(self, module: nn.Module, tokenizer: Any) -> None:
        config: Any = module.config
        self.module = module.requires_grad_(False).eval()
        self.tokenizer = tokenizer
        self.length = min(int(tokenizer.model_max_length), MOST_TOKENS)
        self.width: int = config.hidden_size
        # T5's positions are relative, so that it reads any number of tokens.
        if isinstance(config, CLIPTextConfig) and self.length > config.max_position_embeddings:
            raise ModelError(
                f"the tokenizer makes {self.length} tokens of a prompt, and the encoder reads "
                f"{config.max_position_embeddings}"
            )

    def check(self, prompt: str) -> None:
        """Check that all of a prompt is read.

        Raises:
            DataError: it is too long, or has something that the tokenizer reads as the end of a prompt.
        """
        text = written(prompt)
        tokens = len(self.tokenizer(text, verbose=False).input_ids)
        if tokens > self.length:
            raise DataError(
                f"the prompt {prompt!r} has {tokens} tokens, and the text encoder reads {self.length}; shorten it"
            )
        unknown = self.unknown(prompt)
        if unknown and self.tokenizer.unk_token_id == self.tokenizer.eos_token_id:  # as CLIP's are
            raise DataError(
                f"the prompt {prompt!r} has {', '.join(map(repr, unknown))}, which the tokenizer does not know; "
                "say it otherwise"
            )

    def words(self, prompt: str) -> tuple[str, ...]:
        """In small letters, without punctuation around them."""
        return tuple(filter(None, (AROUND.sub("", word) for word in written(prompt).split())))

    def unknown(self, prompt: str) -> tuple[str, ...]:
        """Those in which the tokenizer meets something that it has no token for; some tokenizers have one for all."""
        none = self.tokenizer.unk_token_id
        if none is None:
            return ()
        # Their numbers and not their names, by which sentencepiece gives what it does not know as it is written.
        read = {word: self.tokenizer(word, add_special_tokens=False).input_ids for word in written(prompt).split()}
        return tuple(word for word, ids in read.items() if none in ids)

    def tokens(self, prompts: Sequence[str]) -> PromptTokens:
        """Prompts as tokens.

        Raises:
            DataError: one of them is too long, or has something unknown.
        """
        for prompt in prompts:
            self.check(prompt)
        return padded(self.tokenizer, [written(prompt) for prompt in prompts], self.length)

    @torch.no_grad()
    def embed(self, tokens: PromptTokens) -> PromptCondition:
        """Embeddings of tokens, int64 [N, tokens], where the encoder is."""
        device = next(self.module.parameters()).device
        ids, mask = tokens.ids.to(device), tokens.mask.to(device)
        return PromptCondition.of(self.module(ids, attention_mask=mask)[0], mask)

    @property
    def digest(self) -> str:
        """Of configuration, weights and tokenizer."""
        told: dict[str, Any] = json.loads(self.tokenizer.backend_tokenizer.to_str())
        told |= {"padding": None, "truncation": None}  # those of its last call
        spelled = json.dumps(told, sort_keys=True)
        return hashlib.sha256(f"{digest_of(self.module)}\n{self.length}\n{spelled}".encode()).hexdigest()


def padded(tokenizer: Any, texts: Sequence[str], length: int) -> PromptTokens:
    """Texts that were checked, as tokens, int64 [N, length], filled up to that length."""
    found = tokenizer(list(texts), padding="max_length", max_length=length, return_tensors="pt")
    return PromptTokens(found.input_ids, found.attention_mask)


def written(prompt: str) -> str:
    """A prompt as the tokenizer is given it."""
    return normal_text(prompt).lower()


def scale_of(vae: AutoencoderKL) -> int:
    """Pixels from one latent to the next."""
    config: Any = vae.config
    return 2 ** (len(config.block_out_channels) - 1)


def digest_of(module: nn.Module) -> str:
    """sha256 of a module's configuration and weights, in hexadecimal."""
    config: Any = module.config
    told = dict(config) if isinstance(config, Mapping) else config.to_dict()
    plain = {name: value for name, value in told.items() if not name.startswith("_") and name not in UNTOLD}
    found = hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode())
    for name, tensor in sorted(module.state_dict().items()):
        found.update(f"{name} {list(tensor.shape)} {tensor.dtype}\n".encode())
        found.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
