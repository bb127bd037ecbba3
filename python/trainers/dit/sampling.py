"""Images of prompts, as the matching pipeline of diffusers draws them: the same noise, steps and guidance."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import final

import torch
from PIL import Image
from torch import Tensor

from trainers.dit.errors import SchedulerError
from trainers.dit.models import ImageModel
from trainers.dit.networks import ImageNetwork, PromptCondition
from trainers.dit.prompts import priors_of
from trainers.dit.recipe import SamplingSettings
from trainers.loop.validation import evaluating

UNGUIDED = 1.0
"""Guidance up to this asks the network once and not twice."""


@final
class GuidedNetwork:
    """Asks a network with prompts and without, and goes on from the one beyond the other.

    Args:
        network: who is asked.
        condition: of each image.
        nothing: the condition of no prompt, of one row.
        guidance: as `SamplingSettings` has it.
    """

    def __init__(
        self, network: ImageNetwork, condition: PromptCondition, nothing: PromptCondition, guidance: float
    ) -> None:
        self._network = network
        self._guidance = guidance
        self._condition = condition
        self._nothing = nothing.rows(torch.zeros(len(condition.mask), dtype=torch.long, device=condition.mask.device))

    def __call__(self, latents: Tensor, timesteps: Tensor) -> Tensor:
        """What it says of latents, float32 [N, channels, side, side], at timesteps [N]; of their shape."""
        prompted = self._network.predict(latents, timesteps, self._condition)
        if self._guidance <= UNGUIDED:
            return prompted
        without = self._network.predict(latents, timesteps, self._nothing)
        return without + self._guidance * (prompted - without)


def noise_of(model: ImageModel, count: int, seed: int) -> Tensor:
    """Where images begin: float32 [count, channels, side, side], the same on every device."""
    network = model.network
    return torch.randn(
        count, network.channels, network.side, network.side, generator=torch.Generator().manual_seed(seed)
    )


@torch.no_grad()
def draw_latents(model: ImageModel, condition: PromptCondition, noise: Tensor, sampling: SamplingSettings) -> Tensor:
    """Latents, float32 [N, channels, side, side], from noise of that shape, one for each row of the condition.

    Raises:
        SchedulerError: the model has learnt nothing yet, or its scheduler cannot take exactly so many steps.
    """
    if model.objective is None:
        raise SchedulerError("the model has no scheduler: it has learnt nothing yet; train it first")
    with evaluating([model.network.module]):
        guided = GuidedNetwork(model.network, condition, model.unconditional().on(noise.device), sampling.guidance)
        return model.objective.sample(guided, noise, sampling.steps)


@torch.no_grad()
def draw_images(
    model: ImageModel,
    prompts: Sequence[str],
    sampling: SamplingSettings,
    priors: Tensor | Sequence[Tensor] | None = None,
    tell: Callable[[int, int], None] = lambda _done, _total: None,
) -> Tensor:
    """Images of prompts, float32 [N, channels, height, width], 0 to 1, on the CPU; the same for the same seed.

    Args:
        model: trained.
        prompts: one for each image.
        sampling: how.
        priors: plans of the images, each int64 [priors], for a network that reads them.
        tell: called with how many images are drawn, and of how many.

    Raises:
        PriorError: the network reads plans and these are none, or it reads none.
        DataError: a prompt is too long.
        SchedulerError: the model has learnt nothing yet, or its scheduler cannot take exactly so many steps.
    """
    device = next(model.network.module.parameters()).device
    tokens, noise = model.prompts.tokens(prompts), noise_of(model, len(prompts), sampling.seed)
    plans = priors_of(priors, len(prompts), model.network)
    drawn: list[Tensor] = []
    for first in range(0, len(prompts), sampling.at_once):
        rows = slice(first, first + sampling.at_once)
        condition = model.prompts.embed(type(tokens)(*(part[rows].to(device) for part in tokens)))
        condition = condition.with_priors(plans[rows].to(device))
        latents = draw_latents(model, condition, noise[rows].to(device), sampling)
        drawn.append(model.latents.decode(latents).cpu())
        tell(min(rows.stop, len(prompts)), len(prompts))
    return torch.cat(drawn)


def as_image(pixels: Tensor) -> Image.Image:
    """One image of pixels, float [channels, height, width], 0 to 1."""
    whole = (pixels * 255).round().to(torch.uint8).permute(1, 2, 0).squeeze(-1)
    return Image.fromarray(whole.cpu().numpy())


def grid(images: Tensor, columns: int) -> Tensor:
    """Images, float [N, channels, height, width], as one: [channels, rows · height, columns · width], white behind."""
    count, channels, height, width = images.shape
    rows = ceil(count / columns)
    filled = torch.cat([images, images.new_ones(rows * columns - count, channels, height, width)])
    split = filled.view(rows, columns, channels, height, width)
    return split.permute(2, 0, 3, 1, 4).reshape(channels, rows * height, columns * width)
