"""Training a voice on clips: phases, rounds and schedules; new voices and fine-tuning alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import ExponentialLR

from trainers.loop import Checkpoints, EpochReport, Loop, Phase, Validation, launched_size
from trainers.media.course import pace_of
from trainers.progress import ReportConsumer
from trainers.vits.batches import (
    FrameSplitter,
    LengthBucketSampler,
    Recordings,
    UtteranceBatch,
    UtteranceCollator,
    source_of,
)
from trainers.vits.discriminators import Discriminators
from trainers.vits.objective import LossWeights, VoiceGenerator, VoiceObjective
from trainers.vits.recipe import SpeechRecipe
from trainers.vits.voice import Voice
from trainers.vits.weights import weight_normed

FINAL_RATE: Final = 0.5
"""What part of the learning rate is left at the end."""

DISCRIMINATING: Final = 2e-4
"""The paper's learning rate, above which discriminators of a few steps tell everything apart, and teach nothing."""

BETAS: Final = (0.8, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """What a voice is trained and looked at with.

    Attributes:
        clips: to learn from.
        frames: of each of them.
        weights: how often each is drawn, in proportion; None goes through all of them.
        selection: clips to score after every round.
    """

    clips: Recordings
    frames: Sequence[int]
    weights: Sequence[float] | None
    selection: Recordings


@dataclass(frozen=True, slots=True)
class VoiceTrainingResult:
    """How a training went, a number a round.

    Attributes:
        training: the generator's loss.
        selection: the loss of the selection clips, without the discriminators'.
    """

    training: tuple[float, ...]
    selection: tuple[float, ...]


def fit(
    voice: Voice,
    lesson: TrainingSetup,
    recipe: SpeechRecipe,
    checkpoints: Checkpoints | None,
    consume: ReportConsumer,
    *,
    discriminators: Discriminators | None = None,
) -> VoiceTrainingResult:
    """Train a voice in place; its weights are then those after the last step, or their average where one is kept.

    Args:
        voice: random, or trained before.
        lesson: the clips.
        recipe: every setting.
        checkpoints: where a stopped training goes on from; None for none.
        consume: takes the reports.
        discriminators: of the adversarial phase, which the recipe may begin late; None for no such phase.

    Raises:
        StoppedError: a signal ended it, after a checkpoint.
        LoopError: the training failed.
    """
    if recipe.weight_norm:
        weight_normed(voice.model.decoder)
    generator = VoiceGenerator(voice.model, frames=recipe.slice_frames)
    objective = VoiceObjective(generator, voice.framing, LossWeights(), discriminators)
    loop = loop_of(objective, recipe, discriminators)
    begins = recipe.adversarial_from if discriminators is not None else None
    with loop.running(checkpoints) as run:
        objective.judged = begins is not None and run.windows >= begins
        reports = run.epochs(
            _training(lesson, recipe, voice),
            max_epochs=pace_of(recipe.steps).rounds,
            validation=_validation(lesson, recipe, voice, objective),
        )
        for _ in consume(reports):
            objective.judged = begins is not None and run.windows >= begins
        run.use_average()
        return learnt_of(run.history)


def learnt_of(history: Sequence[EpochReport]) -> VoiceTrainingResult:
    """The curves of a training."""
    return VoiceTrainingResult(
        tuple(report.phases["generator"].loss for report in history),
        tuple(report.validation.mean for report in history if report.validation is not None),
    )


def loop_of(
    objective: VoiceObjective, recipe: SpeechRecipe, discriminators: Discriminators | None
) -> Loop[UtteranceBatch]:
    """The loop: the discriminators' phase, if there is one, and then the generator's, whose forward both use."""
    model = objective.generator.model
    modules: dict[str, nn.Module] = {"generator": model}
    phases: list[Phase[UtteranceBatch]] = []
    if discriminators is not None and recipe.adversarial_from is not None:
        modules["discriminators"] = discriminators
        judging = _optimizer(discriminators, min(recipe.learning_rate, DISCRIMINATING))
        phases.append(
            Phase(
                "discriminators",
                objective.discriminator_loss,
                discriminators.parameters(),
                judging,
                _schedule(judging, max(1, recipe.steps - recipe.adversarial_from)),
                clip=recipe.clip,
                uses="generator",
                after=recipe.adversarial_from,
            )
        )
    optimizer = _optimizer(model, recipe.learning_rate)
    phases.append(
        Phase(
            "generator",
            objective.generator_loss,
            model.parameters(),
            optimizer,
            _schedule(optimizer, recipe.steps),
            clip=recipe.clip,
            counts=objective.counts,
            forward=objective.generator,
        )
    )
    return Loop(
        phases,
        modules=modules,
        device=recipe.device,
        precision=recipe.precision,
        accumulate=recipe.accumulate,
        cutting=FrameSplitter(),
        oom=recipe.oom,
        nonfinite=recipe.nonfinite,
        ema=None if recipe.ema is None else {"generator": recipe.ema},
        compile=recipe.compiled,
        deterministic=recipe.deterministic,
    )


def _optimizer(module: nn.Module, learning_rate: float) -> AdamW:
    return AdamW(module.parameters(), lr=learning_rate, betas=BETAS, eps=1e-9, weight_decay=0.01)


def _schedule(optimizer: Optimizer, steps: int) -> ExponentialLR:
    return ExponentialLR(optimizer, FINAL_RATE ** (1 / steps))


def _training(lesson: TrainingSetup, recipe: SpeechRecipe, voice: Voice) -> Any:
    """Rounds of batches, as many as all processes need."""
    framing = voice.framing
    buckets = LengthBucketSampler(
        lesson.frames,
        size=recipe.batch_size,
        cost=int(recipe.batch_seconds * framing.rate / framing.hop),
        batches=pace_of(recipe.steps).round_steps * recipe.accumulate * launched_size(),
        seed=recipe.seed,
        weights=lesson.weights,
    )
    return source_of(lesson.clips, buckets, UtteranceCollator(recipe.slice_frames, framing.hop), recipe.workers)


def _validation(
    lesson: TrainingSetup, recipe: SpeechRecipe, voice: Voice, objective: VoiceObjective
) -> Validation[UtteranceBatch]:
    """The middle slices of the selection clips, in their order."""
    places = range(len(lesson.selection))
    batches = [list(places[first : first + recipe.batch_size]) for first in range(0, len(places), recipe.batch_size)]
    middle = UtteranceCollator(recipe.slice_frames, voice.framing.hop, drawn=False)
    loader: Any = source_of(lesson.selection, batches, middle)
    return Validation(objective.score, loader)
