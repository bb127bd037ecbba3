"""Training a voice on clips: phases, rounds and schedules; new voices and fine-tuning alike."""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import ExponentialLR

from trainers.loop import Checkpoints, EpochReport, Loop, Phase, Validation, launched_rank, launched_size
from trainers.loop.checkpoint.compatibility import differences, plain
from trainers.media.run_directory import CHECKPOINTS, checkpoints_in, pace_of, run_folder
from trainers.options import RunOptions
from trainers.progress import ReportConsumer
from trainers.vits.batches import (
    FrameSplitter,
    LengthBucketSampler,
    Recordings,
    UtteranceBatch,
    UtteranceCollator,
    source_of,
)
from trainers.vits.corpus import SpeechCorpus
from trainers.vits.errors import VoiceError
from trainers.vits.objective import Discriminators, LossWeights, VoiceGenerator, VoiceObjective
from trainers.vits.recipe import SpeechRecipe
from trainers.vits.versions import TRAINING, VoiceVersions
from trainers.vits.voice import Voice, weight_normed

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
        return sample_of(run.history)


def sample_of(history: Sequence[EpochReport]) -> VoiceTrainingResult:
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


CORRECTIONS: Final = "corrections"
"""Prepared corrections, while a voice learns from them, and beside the version that has."""

REFUSED: Final = "refused.json"
"""The figures of a corrected voice that was refused, in the folder of its run until another training begins there."""

PARENT: Final = "parent"

WEIGHTS: Final = "weights"
"""In `training.json`: the digest of a version's weights, by which those that were trained on from it name it."""


def checkpoints_of(version: Path, options: RunOptions, settings: Mapping[str, Any]) -> Checkpoints:
    """The checkpoints of the training of a version, which know it by its settings.

    Raises:
        VoiceError: there are some, and nobody asked to go on from them.
        CheckpointError: another training holds the folder.
    """
    checkpoints = checkpoints_in(run_folder(version), options, settings, VoiceError)
    if version.exists() and not checkpoints.any:
        raise VoiceError(f"{version} exists, and the voice's index does not know it; move it away")
    return checkpoints


def begin(version: Path) -> None:
    """Forget the voice that was refused in the place of a version, which is trained now."""
    (run_folder(version) / REFUSED).unlink(missing_ok=True)


def finished(versions: VoiceVersions, settings: Mapping[str, Any]) -> Path | None:
    """The newest version, where a training that is asked to go on has nothing left to do.

    That is so where no training of a further version has begun. Checkpoints that a kill has left of the newest version,
    between its appearance and their removal, are removed.

    Args:
        versions: of the voice.
        settings: of the training that is asked for, as JSON.

    Returns:
        Its folder; None where there is a training to go on with, or no version at all.

    Raises:
        VoiceError: the version was made with other settings, or does not say with which.
        CheckpointError: what is left of its checkpoints cannot be removed.
    """
    if not versions.index.versions or _has_begun(run_folder(versions.following)):
        return None
    newest = versions.folder / str(versions.index.versions)
    different = _different(_told(newest), settings)
    if different:
        raise VoiceError(
            f"{newest} is finished, and was made with other settings: {'; '.join(different)}; leave out --resume to "
            "train a further version with these"
        )
    clear_finished(versions)
    return newest


def clear_finished(versions: VoiceVersions) -> None:
    """Remove what a kill has left of the newest version's training between its appearance and the end.

    Raises:
        CheckpointError: it cannot be removed.
    """
    run = run_folder(versions.folder / str(versions.index.versions))
    checkpoints = Checkpoints(run / CHECKPOINTS)
    if launched_rank() == 0 and checkpoints.any:
        with checkpoints.open():
            checkpoints.clear()
            shutil.rmtree(run / CORRECTIONS, ignore_errors=True)


def _has_begun(run: Path) -> bool:
    """Whether a training has begun there that has not ended; a correction that was refused has."""
    return (run / CHECKPOINTS).exists() and not (run / REFUSED).exists()


def check_fits(voice: Voice, corpus: SpeechCorpus, place: Path) -> None:
    """That a voice can learn from a corpus.

    Raises:
        VoiceError: they have other frames or other characters.
    """
    if voice.framing != corpus.framing:
        raise VoiceError(f"{place} has {voice.framing} and {corpus.folder} {corpus.framing}; prepare with its rate")
    if dict(voice.tokenizer.encoder) != dict(corpus.vocabulary):
        raise VoiceError(
            f"{place} and {corpus.folder} have other vocabularies; prepare again with --vocabulary-of {place}"
        )


def weights_digest(weights: Mapping[str, Tensor]) -> str:
    """What names weights by their content: sha256 of names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _told(version: Path) -> Mapping[str, Any]:
    """How a version came to be."""
    path = version / TRAINING
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise VoiceError(
            f"{path} does not say how the version was made ({error}); leave out --resume to train a further one"
        ) from error


def _different(told: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """What of the settings a finished training did not have.

    A training that began from its own voice would now begin from what it has made: that is no difference.
    """
    wanted = plain(settings)
    if wanted.get(PARENT) is not None and wanted[PARENT] == told.get(WEIGHTS):
        wanted[PARENT] = told.get(PARENT)
    return differences({name: told[name] for name in wanted if name in told}, wanted)
