"""Sampling of images, with the same noise, steps and guidance as the pipeline in diffusers."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import final

import torch
from PIL import Image
from torch import Tensor

from trainers.dit.errors import SchedulerError
from trainers.dit.models import ImageModel
from trainers.dit.networks import ImageNetwork, PromptCondition
from trainers.dit.prompts import stack_priors
from trainers.dit.recipe import SamplingSettings
from trainers.loop.validation import evaluation_mode

UNGUIDED = 1.0
"""Guidance up to this needs one network call per step instead of two."""


@final
class GuidedNetwork:
    """Classifier-free guidance: extrapolates from the prediction without prompts to that with prompts.

    Args:
        network: Network that predicts.
        condition: Condition of each image.
        unconditional: Condition of the empty prompt, with one row.
        guidance: As in `SamplingSettings`.
    """

    def __init__(
        self, network: ImageNetwork, condition: PromptCondition, unconditional: PromptCondition, guidance: float
    ) -> None:
        self._network = network
        self._guidance = guidance
        self._condition = condition
        rows = torch.zeros(len(condition.mask), dtype=torch.long, device=condition.mask.device)
        self._unconditional = unconditional.rows(rows)

    def __call__(self, latents: Tensor, timesteps: Tensor) -> Tensor:
        """Predict for latents, float32 [N, channels, side, side], at timesteps [N]; same shape as the latents."""
        prediction = self._network.predict(latents, timesteps, self._condition)
        if self._guidance <= UNGUIDED:
            return prediction
        unconditional = self._network.predict(latents, timesteps, self._unconditional)
        return unconditional + self._guidance * (prediction - unconditional)


def draw_initial_noise(model: ImageModel, count: int, seed: int) -> Tensor:
    """Initial noise of images: float32 [count, channels, side, side], the same on every device."""
    network = model.network
    return torch.randn(
        count, network.channels, network.side, network.side, generator=torch.Generator().manual_seed(seed)
    )


@torch.no_grad()
def draw_latents(model: ImageModel, condition: PromptCondition, noise: Tensor, sampling: SamplingSettings) -> Tensor:
    """Sample latents, float32 [N, channels, side, side], from noise of that shape, one for each row of the condition.

    Raises:
        SchedulerError: The model is untrained, or its scheduler cannot take that many steps exactly.
    """
    if model.objective is None:
        raise SchedulerError("the model has no scheduler: it is untrained; train it first")
    with evaluation_mode([model.network.module]):
        guided = GuidedNetwork(model.network, condition, model.unconditional().move_to(noise.device), sampling.guidance)
        return model.objective.sample(guided, noise, sampling.steps)


@torch.no_grad()
def draw_images(
    model: ImageModel,
    prompts: Sequence[str],
    sampling: SamplingSettings,
    priors: Tensor | Sequence[Tensor] | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Tensor:
    """Draw images of prompts, float32 [N, channels, height, width], 0 to 1, on the CPU; the same for the same seed.

    Args:
        model: Trained model.
        prompts: Prompt of each image.
        sampling: Sampling settings.
        priors: Prior tokens of the images, each int64 [priors], if the network reads them.
        on_progress: Called with the number of images drawn and the total.

    Raises:
        PriorError: Priors are missing or invalid, or the network reads none.
        DataError: A prompt is too long.
        SchedulerError: The model is untrained, or its scheduler cannot take that many steps exactly.
    """
    device = next(model.network.module.parameters()).device
    tokens, noise = model.prompts.tokens(prompts), draw_initial_noise(model, len(prompts), sampling.seed)
    plans = stack_priors(priors, len(prompts), model.network)
    images: list[Tensor] = []
    for first in range(0, len(prompts), sampling.at_once):
        rows = slice(first, first + sampling.at_once)
        condition = model.prompts.embed(type(tokens)(*(part[rows].to(device) for part in tokens)))
        condition = condition.with_prior_tokens(plans[rows].to(device))
        latents = draw_latents(model, condition, noise[rows].to(device), sampling)
        images.append(model.latents.decode(latents).cpu())
        on_progress(min(rows.stop, len(prompts)), len(prompts))
    return torch.cat(images)


def as_image(pixels: Tensor) -> Image.Image:
    """Convert pixels, float [channels, height, width], 0 to 1, to an image."""
    values = (pixels * 255).round().to(torch.uint8).permute(1, 2, 0).squeeze(-1)
    return Image.fromarray(values.cpu().numpy())


def build_grid(images: Tensor, columns: int) -> Tensor:
    """Tile images, float [N, channels, height, width]: [channels, rows · height, columns · width], white-padded."""
    count, channels, height, width = images.shape
    rows = ceil(count / columns)
    filled = torch.cat([images, images.new_ones(rows * columns - count, channels, height, width)])
    split = filled.view(rows, columns, channels, height, width)
    return split.permute(2, 0, 3, 1, 4).reshape(channels, rows * height, columns * width)
