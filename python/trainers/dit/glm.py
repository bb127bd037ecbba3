"""GLM-Image's transformer, which reads the text to write into an image and prior tokens that plan the image.

Its pipeline passes unshifted timesteps, less one; the noise is shifted, more for larger images.
"""

import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, final

import numpy as np
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.transformers.transformer_glm_image import GlmImageTransformer2DModel
from torch import Tensor

from trainers.dit.encoders import LatentUnits, PromptTokens, hash_module, pad_and_tokenize
from trainers.dit.errors import DataError, ModelError, SchedulerError
from trainers.dit.images import ImageFormat
from trainers.dit.networks import PromptCondition
from trainers.dit.objective import DiffusionObjective, FlowMatching, read_settings

QUOTES: Final = tuple(re.compile(quoted) for quoted in (r"'([^']*)'", r"“([^“”]*)”", r'"([^"]*)"', r"「([^「」]*)」"))
MOST_GLYPHS: Final = 2048
"""Maximum tokens of a written text in its pipeline."""

UNSUPPORTED: Final = (
    "shift_terminal",
    "invert_sigmas",
    "use_karras_sigmas",
    "use_exponential_sigmas",
    "use_beta_sigmas",
    "stochastic_sampling",
)
"""Scheduler settings that would change the noise levels."""


@final
class GlmNetwork:
    """Calls a GLM-Image transformer as its pipeline does.

    Args:
        module: Transformer.
        form: Format of the images.
        side: Latents along an edge of an image.

    Raises:
        ModelError: The side is not a multiple of the patch size.
    """

    def __init__(self, module: GlmImageTransformer2DModel, form: ImageFormat, side: int) -> None:
        config: Any = module.config
        if side % config.patch_size:
            raise ModelError(f"latents of {side}x{side} cannot be divided into patches of {config.patch_size}")
        self.module = module
        self.channels: int = config.in_channels
        self.side = side
        self.caption_width: int = config.text_embed_dim
        self.priors: int = (side // config.patch_size) ** 2
        self.codebook: int = config.prior_vq_quantizer_codebook_size
        self.pipeline = "GlmImagePipeline"
        self._form = form

    def predict(self, latents: Tensor, timesteps: Tensor, condition: PromptCondition) -> Tensor:
        """Predict for latents, float [N, channels, side, side], at timesteps [N]; same shape as the latents."""
        count = len(latents)
        longest = int(condition.mask.sum(1).max())  # without a mask, trim the padding that all rows share
        size = latents.new_tensor([[self._form.height, self._form.width]]).expand(count, -1)
        return self.module(
            hidden_states=latents,
            encoder_hidden_states=condition.embeddings[:, condition.mask.shape[1] - longest :],
            prior_token_id=condition.priors,
            prior_token_drop=condition.blank[:, None].expand(-1, self.priors),
            timestep=timesteps,
            target_size=size,
            crop_coords=torch.zeros_like(size),
            return_dict=False,
        )[0]


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
        self.length = min(length, MOST_GLYPHS)
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
        found = self.module(ids, attention_mask=mask).last_hidden_state * mask[..., None]
        missing = (mask == 0).sum(1).tolist()
        rows = [torch.roll(row, empty, dims=0) for row, empty in zip(found, missing, strict=True)]
        return PromptCondition.of(torch.stack(rows), mask.flip(1))

    @property
    def digest(self) -> str:
        """Digest of configuration and weights; the tokenizer has no state."""
        return hash_module(self.module)


def find_quoted_text(prompt: str) -> str:
    """The quoted text of a prompt, or an empty string.

    Raises:
        DataError: The prompt has several.
    """
    found = [text for quoted in QUOTES for text in quoted.findall(prompt)]
    if len(found) > 1:
        raise DataError(f"the prompt {prompt!r} has {len(found)} texts in quotation marks; use only one")
    return found[0] if found else ""


def read_standardised_units(vae: AutoencoderKL) -> LatentUnits:
    """Units of a VAE with per-channel statistics, as in GLM-Image's pipeline.

    Raises:
        ModelError: The VAE has no statistics.
    """
    config: Any = vae.config
    if config.latents_mean is None or config.latents_std is None:
        raise ModelError("the VAE has no latents_mean and latents_std, which GLM-Image's pipeline needs")
    return LatentUnits(torch.tensor(config.latents_mean), torch.tensor(config.latents_std))


def build_glm_objective(scheduler: Any, patches: int) -> DiffusionObjective:
    """Flow matching as sampled by GLM-Image's scheduler.

    Args:
        scheduler: A `FlowMatchEulerDiscreteScheduler`.
        patches: Patches of an image.

    Raises:
        SchedulerError: The scheduler is another, or has a setting that changes the noise levels.
    """
    settings = read_settings(scheduler)
    unsupported = [name for name in UNSUPPORTED if settings.get(name)]
    if type(scheduler).__name__ != "FlowMatchEulerDiscreteScheduler" or unsupported:
        raise SchedulerError(
            f"{type(scheduler).__name__}{f' with {unsupported}' if unsupported else ''} is not the sampler of "
            "GLM-Image, which is FlowMatchEulerDiscreteScheduler with a plain shift"
        )
    units = int(settings["num_train_timesteps"])
    mu = math.sqrt(patches / settings["base_image_seq_len"]) * settings["max_shift"] + settings["base_shift"]
    if not settings["use_dynamic_shifting"]:
        shift = float(settings["shift"])
    else:
        shift = math.exp(mu) if settings["time_shift_type"] == "exponential" else mu
    process = FlowMatching(units, shift=shift, offset=-1)
    return DiffusionObjective("glm-flow", process, scheduler, partial(_set_timesteps, units=units, mu=mu))


def _set_timesteps(scheduler: Any, steps: int, *, units: int, mu: float) -> None:
    """Set evenly spaced whole timesteps; each, relative to `units`, is also the noise level before shifting."""
    times = np.linspace(units, 1.0, steps + 1)[:-1].astype(np.int64).astype(np.float32)
    scheduler.set_timesteps(steps, timesteps=times, sigmas=times / units, mu=mu)
