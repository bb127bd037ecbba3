"""What predicts: a transformer of diffusers', with what its pipeline tells it besides latents and time."""

from typing import Any, NamedTuple, Protocol, Self, final

import torch
from diffusers.models.transformers.pixart_transformer_2d import PixArtTransformer2DModel
from torch import Tensor, nn

from trainers.dit.errors import ModelError
from trainers.dit.images import ImageFormat

TOLD_ITS_SIZE = 128
"""PixArt of this many latents a side is told size and proportions of the image; smaller ones are not."""


class PromptCondition(NamedTuple):
    """What images are to show.

    Attributes:
        embeddings: of prompts, float32 [N, tokens, width].
        mask: int64 [N, tokens], 0 where padded.
        priors: tokens of what a language model plans for the image, int64 [N, priors]; none for most networks.
        blank: whose prompts say nothing, and whose priors are then not looked at, bool [N].
    """

    embeddings: Tensor
    mask: Tensor
    priors: Tensor
    blank: Tensor

    @classmethod
    def of(cls, embeddings: Tensor, mask: Tensor) -> Self:
        """Of prompts alone: float32 [N, tokens, width] and int64 [N, tokens]."""
        count, device = len(mask), mask.device
        none = torch.zeros(count, 0, dtype=torch.long, device=device)
        return cls(embeddings, mask, none, torch.zeros(count, dtype=torch.bool, device=device))

    def with_priors(self, priors: Tensor) -> Self:
        """These prompts with tokens of a plan, int64 [N, priors]."""
        return self._replace(priors=priors)

    def on(self, device: torch.device | str) -> Self:
        """These, there."""
        return type(self)(*(part.to(device) for part in self))

    def rows(self, index: Tensor) -> Self:
        """Some of the rows, int64 [N]."""
        return type(self)(*(part[index] for part in self))

    def where(self, dropped: Tensor, other: Self) -> Self:
        """These rows, and those of another condition of one row where `dropped`, bool [N], says so."""
        parts = zip(self, other, strict=True)
        return type(self)(
            *(torch.where(dropped.view(-1, *[1] * (own.ndim - 1)), instead, own) for own, instead in parts)
        )


class ImageNetwork(Protocol):
    """A transformer behind one way of asking it.

    Attributes:
        channels: of latents.
        side: latents from one edge of an image to the other.
        caption_width: of the embeddings that it reads.
        priors: tokens of a plan that it reads for an image; 0 for none.
        codebook: how many tokens a plan is written in; 0 for none.
        pipeline: the class of diffusers' that asks it.
    """

    channels: int
    side: int
    caption_width: int
    priors: int
    codebook: int
    pipeline: str

    @property
    def module(self) -> nn.Module:
        """The transformer."""
        ...

    def predict(self, latents: Tensor, timesteps: Tensor, condition: PromptCondition) -> Tensor:
        """What it says of latents, float [N, channels, side, side], at timesteps [N]; of the latents' shape."""
        ...


@final
class PixArtNetwork:
    """Asks a PixArt transformer as its pipeline does.

    Args:
        module: the transformer.
        form: of the images.

    Raises:
        ModelError: it wants to be told what its pipeline does not tell, or predicts another number of channels.
    """

    def __init__(self, module: PixArtTransformer2DModel, form: ImageFormat) -> None:
        config: Any = module.config
        self.module = module
        self.channels: int = config.in_channels
        self.side: int = config.sample_size
        self.caption_width: int = config.caption_channels
        self.priors = self.codebook = 0
        self.pipeline = "PixArtAlphaPipeline"
        if config.use_additional_conditions and self.side != TOLD_ITS_SIZE:
            raise ModelError(
                f"the transformer has use_additional_conditions with a sample_size of {self.side}; its pipeline tells "
                f"size and proportions at {TOLD_ITS_SIZE} alone, so set it to false"
            )
        if config.out_channels not in (self.channels, 2 * self.channels):
            raise ModelError(
                f"the transformer makes {config.out_channels} channels of {self.channels}; it must be as many, or "
                "twice as many where it also says how sure it is"
            )
        self._form = form

    def predict(self, latents: Tensor, timesteps: Tensor, condition: PromptCondition) -> Tensor:
        """What it says of latents, float [N, channels, side, side], at timesteps [N]; of the latents' shape."""
        said: Tensor = self.module(
            latents,
            encoder_hidden_states=condition.embeddings,
            encoder_attention_mask=condition.mask,
            timestep=timesteps,
            added_cond_kwargs=self._told(latents),
            return_dict=False,
        )[0]
        return said[:, : self.channels]  # behind them, where there is more, is how sure it is

    def _told(self, latents: Tensor) -> dict[str, Tensor | None]:
        """Size and proportions, [N, 2] and [N, 1], for the size that is told them."""
        if self.side != TOLD_ITS_SIZE:
            return {"resolution": None, "aspect_ratio": None}
        size = latents.new_tensor([[self._form.height, self._form.width]])
        return {
            "resolution": size.expand(len(latents), -1),
            "aspect_ratio": (size[:, :1] / size[:, 1:]).expand(len(latents), -1),
        }
