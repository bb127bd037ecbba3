"""What a step learns: the objective's target, of latents that are drawn, noised and sometimes stripped of their prompt.

Dropping prompts teaches the network what images are like whatever the prompt, from which guidance leads away when
sampling: Ho & Salimans, "Classifier-free diffusion guidance" (2022).
"""

from collections.abc import Callable
from typing import NamedTuple, final

import torch
from torch import Tensor

from trainers.dit.batches import EncodedImages, RawImages
from trainers.dit.errors import SchedulerError
from trainers.dit.models import ImageModel
from trainers.dit.networks import PromptCondition
from trainers.dit.objective import DiffusionObjective
from trainers.loop import Loss, full_precision


class NoiseDraw(NamedTuple):
    """What chance decides of a batch.

    Attributes:
        within: where in the posterior the latents are, in deviations from its mean: float32 [N, channels, side, side].
        noise: of the same shape.
        times: of the objective, [N].
        dropped: whose prompts are dropped, bool [N].
    """

    within: Tensor
    noise: Tensor
    times: Tensor
    dropped: Tensor


Draw = Callable[[Tensor], NoiseDraw]
"""Draws for latents of the shape of its argument, float32 [N, channels, side, side]."""


@final
class NoiseSource:
    """Draws from torch's generator, on the device of the latents.

    Args:
        objective: whose times.
        dropout: how often a prompt is dropped, 0 to 1.
    """

    def __init__(self, objective: DiffusionObjective, dropout: float) -> None:
        self._objective = objective
        self._dropout = dropout

    def __call__(self, like: Tensor) -> NoiseDraw:
        """For latents of this shape, float32 [N, channels, side, side]."""
        within, noise = torch.randn_like(like), torch.randn_like(like)
        times = self._objective.times(len(like), device=like.device)
        return NoiseDraw(within, noise, times, torch.rand(len(like), device=like.device) < self._dropout)


@final
class DenoisingLoss:
    """The loss of a batch, encoded or plain.

    Args:
        model: of which the transformer learns, and nothing else.
        draw: what chance decides.

    Raises:
        SchedulerError: the model has no objective.
    """

    def __init__(self, model: ImageModel, draw: Draw) -> None:
        if model.objective is None:
            raise SchedulerError("the model has no objective to learn; give it one")
        self._model = model
        self._objective = model.objective
        self._draw = draw
        self._nothing = model.unconditional()

    def loss(self, batch: EncodedImages | RawImages) -> Loss:
        """The weighted squared error of what the network says, a mean over images."""
        posterior, condition = batch if isinstance(batch, EncodedImages) else self._encoded(batch)
        drawn = self._draw(posterior.mean)
        latents = posterior.mean + posterior.deviation * drawn.within
        noised = self._objective.noised(latents, drawn.noise, drawn.times)
        told = condition.where(drawn.dropped, self._nothing_on(latents.device))
        said = self._model.network.predict(noised.latents, noised.timesteps, told)
        with full_precision(latents.device):
            errors = (said.float() - noised.target).square().mean((1, 2, 3))
            return Loss((errors * noised.weight).mean(), len(errors))

    def _encoded(self, batch: RawImages) -> EncodedImages:
        """In full precision, as caches are made."""
        with full_precision(batch.pixels.device):
            condition = self._model.prompts.embed(batch.tokens).with_priors(batch.priors)
            return EncodedImages(self._model.latents.encode(batch.pixels), condition)

    def _nothing_on(self, device: torch.device) -> PromptCondition:
        if self._nothing.mask.device != device:
            self._nothing = self._nothing.on(device)
        return self._nothing
