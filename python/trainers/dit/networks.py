"""Transformers with a common interface, called as their diffusers pipelines call them."""

from typing import Any, NamedTuple, Self, final

import torch
from diffusers.models.transformers.pixart_transformer_2d import PixArtTransformer2DModel
from diffusers.models.transformers.transformer_glm_image import GlmImageTransformer2DModel
from torch import Tensor

from trainers.dit.errors import ModelError
from trainers.dit.images import ImageFormat

SIZE_CONDITIONED = 128
"""PixArt models with this many latents per edge read size and aspect ratio of the image; others do not."""


class PromptCondition(NamedTuple):
    """Conditions of a batch of images.

    Attributes:
        embeddings: Embedded prompts, float32 [N, tokens, width].
        mask: int64 [N, tokens], 0 for padding.
        prior_tokens: Tokens by which a language model plans the image, int64 [N, priors]; empty for most networks.
        is_empty_prompt: Rows of an empty prompt, whose priors are ignored, bool [N].
    """

    embeddings: Tensor
    mask: Tensor
    prior_tokens: Tensor
    is_empty_prompt: Tensor

    @classmethod
    def of(cls, embeddings: Tensor, mask: Tensor) -> Self:
        """Condition without priors: embeddings, float32 [N, tokens, width], and mask, int64 [N, tokens]."""
        count, device = len(mask), mask.device
        none = torch.zeros(count, 0, dtype=torch.long, device=device)
        return cls(embeddings, mask, none, torch.zeros(count, dtype=torch.bool, device=device))

    def with_prior_tokens(self, prior_tokens: Tensor) -> Self:
        """Replace the prior tokens, int64 [N, priors]."""
        return self._replace(prior_tokens=prior_tokens)

    def move_to(self, device: torch.device | str) -> Self:
        """Move to a device. A method named `to` would keep the loop from cutting batches with conditions."""
        return type(self)(*(part.to(device) for part in self))

    def rows(self, index: Tensor) -> Self:
        """Select rows, int64 [N]."""
        return type(self)(*(part[index] for part in self))

    def replace_rows(self, dropped: Tensor, other: Self) -> Self:
        """Replace the rows in `dropped`, bool [N], by the only row of another condition."""
        parts = zip(self, other, strict=True)
        return type(self)(
            *(torch.where(dropped.view(-1, *[1] * (part.ndim - 1)), replacement, part) for part, replacement in parts)
        )


@final
class PixArtNetwork:
    """Calls a PixArt transformer as its pipeline does.

    Args:
        module: Transformer.
        image_format: Format of the images.

    Attributes:
        module: As given.
        channels: Latent channels.
        side: Latents along an edge of an image.
        caption_width: Width of the prompt embeddings.
        prior_count: Prior tokens per image; 0, because it reads none.
        codebook_size: Number of possible prior tokens.
        pipeline: Name of its pipeline class in diffusers.

    Raises:
        ModelError: The transformer needs conditions that its pipeline does not pass, or predicts other channels.
    """

    def __init__(self, module: PixArtTransformer2DModel, image_format: ImageFormat) -> None:
        config: Any = module.config
        self.module = module
        self.channels: int = config.in_channels
        self.side: int = config.sample_size
        self.caption_width: int = config.caption_channels
        self.prior_count = self.codebook_size = 0
        self.pipeline = "PixArtAlphaPipeline"
        if config.use_additional_conditions and self.side != SIZE_CONDITIONED:
            raise ModelError(
                f"the transformer has use_additional_conditions with a sample_size of {self.side}, but its pipeline "
                f"passes them only at {SIZE_CONDITIONED}; set use_additional_conditions to false"
            )
        if config.out_channels not in (self.channels, 2 * self.channels):
            raise ModelError(
                f"the transformer predicts {config.out_channels} channels from {self.channels}, expected as many, or "
                "twice as many with variances"
            )
        self._image_format = image_format

    def predict(self, latents: Tensor, timesteps: Tensor, condition: PromptCondition) -> Tensor:
        """Predict for latents, float [N, channels, side, side], at timesteps [N]; same shape as the latents."""
        prediction: Tensor = self.module(
            latents,
            encoder_hidden_states=condition.embeddings,
            encoder_attention_mask=condition.mask,
            timestep=timesteps,
            added_cond_kwargs=self._build_size_conditions(latents),
            return_dict=False,
        )[0]
        return prediction[:, : self.channels]  # predicted variances may follow

    def _build_size_conditions(self, latents: Tensor) -> dict[str, Tensor | None]:
        """Size, [N, 2], and aspect ratio, [N, 1], for the models that read them."""
        if self.side != SIZE_CONDITIONED:
            return {"resolution": None, "aspect_ratio": None}
        size = latents.new_tensor([[self._image_format.height, self._image_format.width]])
        return {
            "resolution": size.expand(len(latents), -1),
            "aspect_ratio": (size[:, :1] / size[:, 1:]).expand(len(latents), -1),
        }


@final
class GlmNetwork:
    """Calls a GLM-Image transformer as its pipeline does; the attributes are those of `PixArtNetwork`.

    It reads the text to write into an image, and prior tokens that plan the image.

    Args:
        module: Transformer.
        image_format: Format of the images.
        side: Latents along an edge of an image.

    Raises:
        ModelError: The side is not a multiple of the patch size.
    """

    def __init__(self, module: GlmImageTransformer2DModel, image_format: ImageFormat, side: int) -> None:
        config: Any = module.config
        if side % config.patch_size:
            raise ModelError(f"latents of {side}x{side} cannot be divided into patches of {config.patch_size}")
        self.module = module
        self.channels: int = config.in_channels
        self.side = side
        self.caption_width: int = config.text_embed_dim
        self.prior_count: int = (side // config.patch_size) ** 2
        self.codebook_size: int = config.prior_vq_quantizer_codebook_size
        self.pipeline = "GlmImagePipeline"
        self._image_format = image_format

    def predict(self, latents: Tensor, timesteps: Tensor, condition: PromptCondition) -> Tensor:
        """Predict for latents, float [N, channels, side, side], at timesteps [N]; same shape as the latents."""
        count = len(latents)
        longest = int(condition.mask.sum(1).max())  # without a mask, trim the padding that all rows share
        size = latents.new_tensor([[self._image_format.height, self._image_format.width]]).expand(count, -1)
        return self.module(
            hidden_states=latents,
            encoder_hidden_states=condition.embeddings[:, condition.mask.shape[1] - longest :],
            prior_token_id=condition.prior_tokens,
            prior_token_drop=condition.is_empty_prompt[:, None].expand(-1, self.prior_count),
            timestep=timesteps,
            target_size=size,
            crop_coords=torch.zeros_like(size),
            return_dict=False,
        )[0]


ImageNetwork = PixArtNetwork | GlmNetwork
"""A transformer, called as its pipeline does."""
