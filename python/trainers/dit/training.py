"""Training of a model's transformer on images."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from trainers.dit.batches import BatchRounds, EncodedImages, ImageSource, RawImages
from trainers.dit.errors import SchedulerError
from trainers.dit.models import ImageModel
from trainers.dit.objective import DiffusionObjective
from trainers.dit.recipe import ImageRecipe
from trainers.dit.reward_monitor import EvaluationSnapshot, RewardMonitor
from trainers.loop import (
    Checkpoints,
    EpochReport,
    FrozenModule,
    Loop,
    Loss,
    Phase,
    Stateful,
    adamw,
    full_precision,
    launched_size,
)
from trainers.media.run_directory import divide_into_rounds
from trainers.progress import ReportConsumer


class NoiseDraw(NamedTuple):
    """Random values of a batch.

    Attributes:
        posterior_noise: Position of the latents in their posterior, in standard deviations from its mean: float32
            [N, channels, side, side].
        noise: Noise, of the same shape.
        times: Times of the objective, [N].
        dropped: Rows whose prompts are dropped, bool [N].
    """

    posterior_noise: Tensor
    noise: Tensor
    times: Tensor
    dropped: Tensor


Draw = Callable[[Tensor], NoiseDraw]
"""Draws random values for latents of the shape of its argument, float32 [N, channels, side, side]."""


@final
class NoiseSource:
    """Draws from torch's generator, on the device of the latents.

    Args:
        objective: Objective, which draws the times.
        dropout: Probability that a prompt is dropped, 0 to 1.
    """

    def __init__(self, objective: DiffusionObjective, dropout: float) -> None:
        self._objective = objective
        self._dropout = dropout

    def __call__(self, like: Tensor) -> NoiseDraw:
        """Draw for latents of this shape, float32 [N, channels, side, side]."""
        posterior_noise, noise = torch.randn_like(like), torch.randn_like(like)
        times = self._objective.times(len(like), device=like.device)
        return NoiseDraw(posterior_noise, noise, times, torch.rand(len(like), device=like.device) < self._dropout)


@final
class DenoisingLoss:
    """Loss of a batch of encoded or raw images.

    Args:
        model: Model whose transformer is trained.
        draw: Draws random values.

    Raises:
        SchedulerError: The model has no objective.
    """

    def __init__(self, model: ImageModel, draw: Draw) -> None:
        if model.objective is None:
            raise SchedulerError("the model has no objective; give it one")
        self._model = model
        self._objective = model.objective
        self._draw = draw
        self._unconditional = model.unconditional()

    def loss(self, batch: EncodedImages | RawImages) -> Loss:
        """Weighted squared error of the prediction, as a mean over images."""
        posterior, condition = batch if isinstance(batch, EncodedImages) else self._encode(batch)
        draw = self._draw(posterior.mean)
        latents = posterior.mean + posterior.deviation * draw.posterior_noise
        noised = self._objective.noised(latents, draw.noise, draw.times)
        if self._unconditional.mask.device != latents.device:
            self._unconditional = self._unconditional.move_to(latents.device)
        mixed_condition = condition.replace_rows(draw.dropped, self._unconditional)
        prediction = self._model.network.predict(noised.latents, noised.timesteps, mixed_condition)
        with full_precision(latents.device):
            errors = (prediction.float() - noised.target).square().mean((1, 2, 3))
            return Loss((errors * noised.weight).mean(), len(errors))

    def _encode(self, batch: RawImages) -> EncodedImages:
        """Encode a batch in full precision, as in a cache."""
        with full_precision(batch.pixels.device):
            condition = self._model.prompts.embed(batch.tokens).with_prior_tokens(batch.priors)
            return EncodedImages(self._model.latents.encode(batch.pixels), condition)


TRANSFORMER = "transformer"
"""Name of the module and of the phase."""


@dataclass(frozen=True, slots=True)
class ImageTrainingResult:
    """Result of a training run.

    Attributes:
        loss: Mean loss of each round.
        snapshots: Evaluations by the monitor, if any.
        collapsed: Whether a collapse of the reward ended the training.
    """

    loss: tuple[float, ...]
    snapshots: tuple[EvaluationSnapshot, ...] = ()
    collapsed: bool = False


def fit(
    model: ImageModel,
    images: ImageSource[EncodedImages] | ImageSource[RawImages],
    recipe: ImageRecipe,
    checkpoints: Checkpoints | None,
    consume: ReportConsumer,
    monitor: RewardMonitor | None = None,
) -> ImageTrainingResult:
    """Train a model's transformer in place.

    The transformer ends with the average weights, if an average is kept. With a monitor, it ends with those of the
    best reward.

    Args:
        model: Model with an objective.
        images: Encoded images, or raw ones to encode in every step.
        recipe: Training settings.
        checkpoints: Checkpoints for resuming, if any.
        consume: Receives progress reports.
        monitor: Monitors the rewards, if given.

    Raises:
        SchedulerError: The model has no objective.
        RewardError: A reward is not finite.
        StoppedError: A signal ended the training, after a checkpoint.
        LoopError: The training failed.
    """
    loop = build_loop(model, recipe, {} if monitor is None else {"monitor": monitor})
    with loop.running(checkpoints) as run:
        reports = run.epochs(build_rounds(images, recipe), max_epochs=divide_into_rounds(recipe.steps).rounds)
        for _ in consume(reports if monitor is None else monitor.monitor(run, reports)):
            pass
        if monitor is None:
            run.use_average()
            return build_result(run.history)
        monitor.keep_best(run)
        return replace(build_result(run.history), snapshots=tuple(monitor.snapshots), collapsed=monitor.collapsed)


def build_loop(
    model: ImageModel, recipe: ImageRecipe, state: Mapping[str, Stateful] = MappingProxyType({})
) -> Loop[Any]:
    """Create the training loop, with frozen encoders; its checkpoints include `state`.

    Raises:
        SchedulerError: The model has no objective.
    """
    if model.objective is None:
        raise SchedulerError("the model has no objective; give it one")
    transformer = model.network.module
    denoising = DenoisingLoss(model, NoiseSource(model.objective, recipe.dropout))
    modules: dict[str, nn.Module | FrozenModule] = {
        TRANSFORMER: transformer,
        "vae": FrozenModule(model.latents.module),
        "text_encoder": FrozenModule(model.prompts.module),
    }
    return Loop(
        [build_phase(transformer, denoising, recipe)],
        modules=modules,
        device=recipe.device,
        precision=recipe.precision,
        accumulate=recipe.accumulate,
        oom=recipe.oom,
        nonfinite=recipe.nonfinite,
        ema={TRANSFORMER: recipe.ema} if recipe.ema else None,
        compile=recipe.compiled,
        deterministic=recipe.deterministic,
        state=state,
    )


def build_phase(transformer: nn.Module, denoising: DenoisingLoss, recipe: ImageRecipe) -> Phase[Any]:
    """Create the only phase of the training."""
    optimizer = adamw(transformer.parameters(), lr=recipe.learning_rate, weight_decay=0.0)
    schedule = LambdaLR(optimizer, partial(compute_warmup_factor, steps=recipe.warm_up))
    return Phase(TRANSFORMER, denoising.loss, transformer.parameters(), optimizer, schedule, clip=recipe.clip)


def compute_warmup_factor(step: int, *, steps: int) -> float:
    """Factor of the learning rate: a linear rise, then 1.

    It does not decay, because the average of the weights removes noise and the meaning of prompts is learnt late.
    """
    return min(1.0, (step + 1) / (steps + 1))


def build_rounds(images: ImageSource[EncodedImages] | ImageSource[RawImages], recipe: ImageRecipe) -> BatchRounds[Any]:
    """Rounds with enough batches for all processes."""
    batches_per_round = divide_into_rounds(recipe.steps).round_steps * recipe.accumulate * launched_size()
    return BatchRounds[Any](images, size=recipe.batch_size, batches=batches_per_round, seed=recipe.seed)


def build_result(history: tuple[EpochReport, ...]) -> ImageTrainingResult:
    """Training result from the reports of all rounds."""
    return ImageTrainingResult(tuple(report.phases[TRANSFORMER].loss for report in history))
