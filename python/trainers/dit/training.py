"""Training a model on images: one phase, which moves the transformer alone."""

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
from trainers.dit.monitoring import EvaluationSnapshot, RewardMonitor
from trainers.dit.networks import PromptCondition
from trainers.dit.objective import DiffusionObjective
from trainers.dit.recipe import ImageRecipe
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
from trainers.media.run_directory import pace_of
from trainers.progress import ReportConsumer


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


TRANSFORMER = "transformer"
"""Its name as a module and as a phase."""


@dataclass(frozen=True, slots=True)
class ImageTrainingResult:
    """How a training went.

    Attributes:
        loss: of each round.
        looks: what rewards have said of the model meanwhile; none where nothing watched.
        collapsed: whether that ended the training.
    """

    loss: tuple[float, ...]
    looks: tuple[EvaluationSnapshot, ...] = ()
    collapsed: bool = False


def fit(
    model: ImageModel,
    images: ImageSource[EncodedImages] | ImageSource[RawImages],
    recipe: ImageRecipe,
    checkpoints: Checkpoints | None,
    consume: ReportConsumer,
    monitor: RewardMonitor | None = None,
) -> ImageTrainingResult:
    """Train a model's transformer in place; it then has the average of its weights where one is kept.

    Watched by rewards it has those weights, or that average, of the best reward.

    Args:
        model: with an objective.
        images: encoded, or plain to be encoded in every step.
        recipe: every setting.
        checkpoints: where a stopped training goes on from; None for none.
        consume: takes the reports.
        monitor: watches the training; None for nobody.

    Raises:
        SchedulerError: the model has no objective.
        RewardError: what a reward says is no number.
        StoppedError: a signal ended it, after a checkpoint.
        LoopError: the training failed.
    """
    loop = loop_of(model, recipe, {} if monitor is None else {"monitor": monitor})
    with loop.running(checkpoints) as run:
        reports = run.epochs(rounds_of(images, recipe), max_epochs=pace_of(recipe.steps).rounds)
        for _ in consume(reports if monitor is None else monitor.watched(run, reports)):
            pass
        if monitor is None:
            run.use_average()
            return result_of(run.history)
        monitor.keep_best(run)
        return replace(result_of(run.history), looks=tuple(monitor.looks), collapsed=monitor.collapsed)


def loop_of(model: ImageModel, recipe: ImageRecipe, state: Mapping[str, Stateful] = MappingProxyType({})) -> Loop[Any]:
    """The loop: what encodes is frozen, and state goes into its checkpoints.

    Raises:
        SchedulerError: the model has no objective.
    """
    if model.objective is None:
        raise SchedulerError("the model has no objective to learn; give it one")
    transformer = model.network.module
    learnt = DenoisingLoss(model, NoiseSource(model.objective, recipe.dropout))
    modules: dict[str, nn.Module | FrozenModule] = {
        TRANSFORMER: transformer,
        "vae": FrozenModule(model.latents.module),
        "text_encoder": FrozenModule(model.prompts.module),
    }
    return Loop(
        [phase_of(transformer, learnt, recipe)],
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


def phase_of(transformer: nn.Module, learnt: DenoisingLoss, recipe: ImageRecipe) -> Phase[Any]:
    """The one phase."""
    optimizer = adamw(transformer.parameters(), lr=recipe.learning_rate, weight_decay=0.0)
    schedule = LambdaLR(optimizer, partial(warmed_up, steps=recipe.warm_up))
    return Phase(TRANSFORMER, learnt.loss, transformer.parameters(), optimizer, schedule, clip=recipe.clip)


def warmed_up(step: int, *, steps: int) -> float:
    """The factor of the learning rate: up on a line, then 1.

    It does not fall: the average of the weights takes out the noise, and what prompts mean is learnt late.
    """
    return min(1.0, (step + 1) / (steps + 1))


def rounds_of(images: ImageSource[EncodedImages] | ImageSource[RawImages], recipe: ImageRecipe) -> BatchRounds[Any]:
    """Rounds of batches, as many as all processes need."""
    each = pace_of(recipe.steps).round_steps * recipe.accumulate * launched_size()
    return BatchRounds[Any](images, size=recipe.batch_size, batches=each, seed=recipe.seed)


def result_of(history: tuple[EpochReport, ...]) -> ImageTrainingResult:
    """The curve of a training."""
    return ImageTrainingResult(tuple(report.phases[TRANSFORMER].loss for report in history))
