"""Training and fine-tuning of voices: phases, rounds and schedules."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import ExponentialLR

from trainers.loop import Checkpoints, EpochReport, Loop, Phase, Validation, launched_rank, launched_size
from trainers.loop.checkpoint.snapshot import as_json, find_differences
from trainers.loop.weights import hash_weights
from trainers.media.run_directory import CHECKPOINTS, create_checkpoints, divide_into_rounds, locate_run
from trainers.options import RunOptions
from trainers.progress import ReportConsumer
from trainers.vits.batches import (
    FrameSplitter,
    LengthBucketSampler,
    Recordings,
    UtteranceBatch,
    UtteranceCollator,
    create_source,
)
from trainers.vits.corpus import SpeechCorpus
from trainers.vits.errors import VoiceError
from trainers.vits.objective import Discriminators, LossWeights, VoiceGenerator, VoiceObjective
from trainers.vits.recipe import SpeechRecipe
from trainers.vits.versions import TRAINING, VoiceVersions
from trainers.vits.voice import Voice, apply_weight_norm, remove_weight_norm

FINAL_RATE: Final = 0.5
"""Final share of the initial learning rate."""

DISCRIMINATING: Final = 2e-4
"""Maximum learning rate of the discriminators (the paper's): above it they saturate in a few steps."""

BETAS: Final = (0.8, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """Training and selection clips of a voice.

    Attributes:
        clips: Training clips.
        frames: Frames of each training clip.
        weights: Sampling weights; None iterates over all clips.
        selection: Clips to score after every round.
    """

    clips: Recordings
    frames: Sequence[int]
    weights: Sequence[float] | None
    selection: Recordings


@dataclass(frozen=True, slots=True)
class VoiceTrainingResult:
    """Training curves, one value per round.

    Attributes:
        training: Generator loss.
        selection: Loss of the selection clips, without adversarial terms.
    """

    training: tuple[float, ...]
    selection: tuple[float, ...]


def fit(
    voice: Voice,
    setup: TrainingSetup,
    recipe: SpeechRecipe,
    checkpoints: Checkpoints | None,
    consume: ReportConsumer,
    *,
    discriminators: Discriminators | None = None,
) -> VoiceTrainingResult:
    """Train a voice in place, up to the weights of the last step or their moving average.

    Args:
        voice: New or trained voice.
        setup: Training and selection clips.
        recipe: Training settings.
        checkpoints: Checkpoints for resuming, if any.
        consume: Receives progress reports.
        discriminators: Discriminators of the adversarial phase, if any.

    Raises:
        StoppedError: A signal ended the training, after a checkpoint.
        LoopError: The training failed.
    """
    if recipe.weight_norm:
        apply_weight_norm(voice.model.decoder)
    generator = VoiceGenerator(voice.model, frames=recipe.slice_frames)
    objective = VoiceObjective(generator, voice.framing, LossWeights(), discriminators)
    loop = build_loop(objective, recipe, discriminators)
    begins = recipe.adversarial_from if discriminators is not None else None
    with loop.running(checkpoints) as run:
        objective.adversarial = begins is not None and run.windows >= begins
        reports = run.epochs(
            _create_training_source(setup, recipe, voice),
            max_epochs=divide_into_rounds(recipe.steps).rounds,
            validation=_create_validation(setup, recipe, voice, objective),
        )
        for _ in consume(reports):
            objective.adversarial = begins is not None and run.windows >= begins
        run.use_average()
        return read_result(run.history)


def read_result(history: Sequence[EpochReport]) -> VoiceTrainingResult:
    """Training curves from reports."""
    return VoiceTrainingResult(
        tuple(report.phases["generator"].loss for report in history),
        tuple(report.validation.mean for report in history if report.validation is not None),
    )


def build_loop(
    objective: VoiceObjective, recipe: SpeechRecipe, discriminators: Discriminators | None
) -> Loop[UtteranceBatch]:
    """Training loop with an optional discriminator phase and the generator phase, which share one forward pass."""
    model = objective.generator.model
    modules: dict[str, nn.Module] = {"generator": model}
    phases: list[Phase[UtteranceBatch]] = []
    if discriminators is not None and recipe.adversarial_from is not None:
        modules["discriminators"] = discriminators
        optimizer = _create_optimizer(discriminators, min(recipe.learning_rate, DISCRIMINATING))
        phases.append(
            Phase(
                "discriminators",
                objective.discriminator_loss,
                discriminators.parameters(),
                optimizer,
                _create_schedule(optimizer, max(1, recipe.steps - recipe.adversarial_from)),
                clip=recipe.clip,
                uses="generator",
                after=recipe.adversarial_from,
            )
        )
    optimizer = _create_optimizer(model, recipe.learning_rate)
    phases.append(
        Phase(
            "generator",
            objective.generator_loss,
            model.parameters(),
            optimizer,
            _create_schedule(optimizer, recipe.steps),
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
        splitter=FrameSplitter(),
        oom=recipe.oom,
        nonfinite=recipe.nonfinite,
        ema=None if recipe.ema is None else {"generator": recipe.ema},
        compile=recipe.compiled,
        deterministic=recipe.deterministic,
    )


def _create_optimizer(module: nn.Module, learning_rate: float) -> AdamW:
    return AdamW(module.parameters(), lr=learning_rate, betas=BETAS, eps=1e-9, weight_decay=0.01)


def _create_schedule(optimizer: Optimizer, steps: int) -> ExponentialLR:
    return ExponentialLR(optimizer, FINAL_RATE ** (1 / steps))


def _create_training_source(setup: TrainingSetup, recipe: SpeechRecipe, voice: Voice) -> Any:
    """Source of training batches for all processes."""
    framing = voice.framing
    buckets = LengthBucketSampler(
        setup.frames,
        size=recipe.batch_size,
        cost=int(recipe.batch_seconds * framing.rate / framing.hop),
        batches=divide_into_rounds(recipe.steps).round_steps * recipe.accumulate * launched_size(),
        seed=recipe.seed,
        weights=setup.weights,
    )
    return create_source(setup.clips, buckets, UtteranceCollator(recipe.slice_frames, framing.hop), recipe.workers)


def _create_validation(
    setup: TrainingSetup, recipe: SpeechRecipe, voice: Voice, objective: VoiceObjective
) -> Validation[UtteranceBatch]:
    """Validation on the middle slices of the selection clips."""
    indices = range(len(setup.selection))
    batches = [list(indices[first : first + recipe.batch_size]) for first in range(0, len(indices), recipe.batch_size)]
    middle = UtteranceCollator(recipe.slice_frames, voice.framing.hop, drawn=False)
    loader: Any = create_source(setup.selection, batches, middle)
    return Validation(objective.score, loader)


CORRECTIONS: Final = "corrections"
"""Folder of prepared corrections, in a run and in a version."""

REFUSED: Final = "refused.json"
"""Figures of a rejected correction, kept in its run folder until the next run."""

PARENT: Final = "parent"

WEIGHTS: Final = "weights"
"""Field of `training.json`: digest of the weights, which fine-tuned versions name as `parent`."""


def open_checkpoints(version: Path, options: RunOptions, settings: Mapping[str, Any]) -> Checkpoints:
    """Checkpoints for training a version, identified by the settings.

    Raises:
        VoiceError: Checkpoints exist, and `options.resume` is False.
        CheckpointError: Another run uses the folder.
    """
    checkpoints = create_checkpoints(locate_run(version), options, settings, VoiceError)
    if version.exists() and checkpoints.is_empty:
        raise VoiceError(f"{version} exists but is not in the voice's index; move it away")
    return checkpoints


def clear_rejection(version: Path) -> None:
    """Remove the record of a rejected correction before training the version again."""
    (locate_run(version) / REFUSED).unlink(missing_ok=True)


def find_finished_version(versions: VoiceVersions, settings: Mapping[str, Any]) -> Path | None:
    """The newest version, if a resumed training run is already complete.

    That is so if no run for a further version has begun. Checkpoints left behind by a killed process are removed.

    Args:
        versions: Versions of the voice.
        settings: Settings of the requested run, as JSON.

    Returns:
        Folder of the version; None if there is a run to resume, or no version.

    Raises:
        VoiceError: The version was trained with other settings, or its settings are unknown.
        CheckpointError: Left-over checkpoints cannot be removed.
    """
    run = locate_run(versions.following)
    has_begun = (run / CHECKPOINTS).exists() and not (run / REFUSED).exists()  # a rejected correction has ended
    if not versions.index.versions or has_begun:
        return None
    newest = versions.folder / str(versions.index.versions)
    record = _read_record(newest)
    run_settings = as_json(settings)
    # A run that fine-tuned its own voice would now start from its own result: that does not count.
    if run_settings.get(PARENT) is not None and run_settings[PARENT] == record.get(WEIGHTS):
        run_settings[PARENT] = record.get(PARENT)
    different = find_differences({name: record[name] for name in run_settings if name in record}, run_settings)
    if different:
        raise VoiceError(
            f"{newest} is finished but was trained with other settings: {'; '.join(different)}; leave out --resume to "
            "train a further version with these"
        )
    clear_finished(versions)
    return newest


def clear_finished(versions: VoiceVersions) -> None:
    """Remove checkpoints of the newest version that a killed process left behind.

    Raises:
        CheckpointError: They cannot be removed.
    """
    run = locate_run(versions.folder / str(versions.index.versions))
    checkpoints = Checkpoints(run / CHECKPOINTS)
    if launched_rank() == 0 and not checkpoints.is_empty:
        with checkpoints.open():
            checkpoints.clear()
            shutil.rmtree(run / CORRECTIONS, ignore_errors=True)


def check_fits(voice: Voice, corpus: SpeechCorpus, path: Path) -> None:
    """Check that a voice can be trained on a corpus.

    Raises:
        VoiceError: Framing or vocabulary differ.
    """
    if voice.framing != corpus.framing:
        raise VoiceError(
            f"{path} has {voice.framing} but {corpus.folder} has {corpus.framing}; prepare with the voice's rate"
        )
    if dict(voice.tokenizer.encoder) != dict(corpus.vocabulary):
        raise VoiceError(
            f"{path} and {corpus.folder} have different vocabularies; prepare again with --vocabulary-of {path}"
        )


def hash_voice(voice: Voice) -> str:
    """Digest of the weights of a voice as saved, ordered by name."""
    return hash_weights(sorted(remove_weight_norm(voice.model).items()))


def _read_record(version: Path) -> Mapping[str, Any]:
    path = version / TRAINING
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise VoiceError(
            f"settings of the version cannot be read from {path} ({error}); leave out --resume to train a further one"
        ) from error
