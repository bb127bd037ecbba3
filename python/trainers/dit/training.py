"""Training a model on images: one phase, which moves the transformer alone."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from trainers.dit.batches import Encoded, Images, Plain, Rounds
from trainers.dit.denoising import Denoising, Draws
from trainers.dit.errors import SchedulerError
from trainers.dit.models import ImageModel
from trainers.dit.recipe import ImageRecipe
from trainers.loop import Checkpoints, EpochReport, Frozen, Loop, Phase, adamw, launched_size
from trainers.progress import Consumer

TRANSFORMER = "transformer"
"""Its name as a module and as a phase."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """How a training went.

    Attributes:
        loss: of each round.
    """

    loss: tuple[float, ...]


def fit(
    model: ImageModel,
    images: Images[Encoded] | Images[Plain],
    recipe: ImageRecipe,
    checkpoints: Checkpoints | None,
    consume: Consumer,
) -> Learnt:
    """Train a model's transformer in place; it then has the average of its weights where one is kept.

    Args:
        model: with an objective.
        images: encoded, or plain to be encoded in every step.
        recipe: every setting.
        checkpoints: where a stopped training goes on from; None for none.
        consume: takes the reports.

    Raises:
        SchedulerError: the model has no objective.
        StoppedError: a signal ended it, after a checkpoint.
        LoopError: the training failed.
    """
    loop = loop_of(model, recipe)
    with loop.running(checkpoints) as run:
        for _ in consume(run.epochs(rounds_of(images, recipe), max_epochs=recipe.rounds)):
            pass
        run.use_average()
        return learnt_of(run.history)


def loop_of(model: ImageModel, recipe: ImageRecipe) -> Loop[Any]:
    """The loop: what encodes is frozen.

    Raises:
        SchedulerError: the model has no objective.
    """
    if model.objective is None:
        raise SchedulerError("the model has no objective to learn; give it one")
    transformer = model.network.module
    learnt = Denoising(model, Draws(model.objective, recipe.dropout))
    modules: dict[str, nn.Module | Frozen] = {
        TRANSFORMER: transformer,
        "vae": Frozen(model.latents.module),
        "text_encoder": Frozen(model.prompts.module),
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
    )


def phase_of(transformer: nn.Module, learnt: Denoising, recipe: ImageRecipe) -> Phase[Any]:
    """The one phase."""
    optimizer = adamw(transformer.parameters(), lr=recipe.learning_rate, weight_decay=0.0)
    schedule = LambdaLR(optimizer, partial(warmed_up, steps=recipe.warm_up))
    return Phase(TRANSFORMER, learnt.loss, transformer.parameters(), optimizer, schedule, clip=recipe.clip)


def warmed_up(step: int, *, steps: int) -> float:
    """The factor of the learning rate: up on a line, then 1.

    It does not fall: the average of the weights takes out the noise, and what prompts mean is learnt late.
    """
    return min(1.0, (step + 1) / (steps + 1))


def rounds_of(images: Images[Encoded] | Images[Plain], recipe: ImageRecipe) -> Rounds[Any]:
    """Rounds of batches, as many as all processes need."""
    each = recipe.round_steps * recipe.accumulate * launched_size()
    return Rounds[Any](images, size=recipe.batch_size, batches=each, seed=recipe.seed)


def learnt_of(history: tuple[EpochReport, ...]) -> Learnt:
    """The curve of a training."""
    return Learnt(tuple(report.phases[TRANSFORMER].loss for report in history))
