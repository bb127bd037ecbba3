"""Training a model on images: one phase, which moves the transformer alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from trainers.dit.batches import BatchRounds, EncodedImages, ImageSource, RawImages
from trainers.dit.denoising import DenoisingLoss, NoiseSource
from trainers.dit.errors import SchedulerError
from trainers.dit.models import ImageModel
from trainers.dit.monitor import RewardMonitor
from trainers.dit.recipe import ImageRecipe
from trainers.dit.watching import EvaluationSnapshot
from trainers.loop import Checkpoints, EpochReport, FrozenModule, Loop, Phase, Stateful, adamw, launched_size
from trainers.media.course import pace_of
from trainers.progress import ReportConsumer

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
            return learnt_of(run.history)
        monitor.keep_best(run)
        return replace(learnt_of(run.history), looks=tuple(monitor.looks), collapsed=monitor.collapsed)


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


def learnt_of(history: tuple[EpochReport, ...]) -> ImageTrainingResult:
    """The curve of a training."""
    return ImageTrainingResult(tuple(report.phases[TRANSFORMER].loss for report in history))
