"""Loading of the images, caches and rewards that flags name, with warnings about them."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from trainers.dit.errors import DataError
from trainers.dit.prompts import describe_unknown_words_of_folder
from trainers.dit.recipe import GrpoRecipe, ImageEvaluationSettings, MonitorSettings, SamplingSettings
from trainers.media.console import echo, make_progress_counter

if TYPE_CHECKING:
    from trainers.dit.batches import LatentCache, RawImageFiles
    from trainers.dit.images import ImageFolder
    from trainers.dit.models import ImageModel
    from trainers.dit.reward_monitor import RewardGate, RewardMonitor
    from trainers.dit.rewards import RewardInputs, ValidatedReward

CACHE: Final = "cache.json"
"""File that distinguishes a cache from a folder of images."""


def read_images(
    images: Path, model: "ImageModel", trained_words: frozenset[str] | None = None, *, skip_bad: bool, silent: bool
) -> "ImageFolder":
    """Read a folder of images, and report rejected images and words that the model does not know."""
    from trainers.dit.images import read_pictures

    on_progress = make_progress_counter("checked", "images", silent=silent)
    pictures = read_pictures(
        images, model.image_format, model.prompts.check, skip_bad=skip_bad, on_progress=on_progress
    )
    for rejected in pictures.refused:
        echo(f"! {rejected.name} was left out: {rejected.reason}")
    _warn_of_unknown_words(pictures.prompts, model, trained_words, images)
    return pictures


def open_source(
    images: Path, model: "ImageModel", made_of: Path | None, *, skip_bad: bool, silent: bool
) -> "LatentCache | RawImageFiles":
    """Open a cache and check that it fits the model, or read images to encode in every step."""
    from trainers.dit.batches import LatentCache, RawImageFiles

    if not (images / CACHE).exists() and (images / "metadata.csv").exists():
        if made_of is not None:
            raise typer.BadParameter(f"--made-of needs a cache, but {images} is a folder of images; leave it out")
        if model.network.prior_count:
            raise DataError(f"this model reads prior tokens, but {images} has none; make a cache with --priors")
        return RawImageFiles(read_images(images, model, skip_bad=skip_bad, silent=silent), model.prompts)
    opened = LatentCache.open(images)
    opened.check_model(model)
    left = len(opened.contents.refused)
    if left:
        echo(f"! {left} image{'s were' if left > 1 else ' was'} left out of the cache; reasons are in {images / CACHE}")
    if made_of is None:
        _warn_of_unknown_words(opened.prompts, model, None, images)
    else:
        opened.check_pictures(read_images(made_of, model, skip_bad=bool(opened.contents.refused), silent=silent))
    return opened


def create_monitor(
    model: "ImageModel", settings: MonitorSettings, images: Path, *, skip_bad: bool, silent: bool
) -> "RewardMonitor | None":
    """Create the monitor of a training run, if requested, and test its rewards on real images."""
    from trainers.dit.images import read_pictures
    from trainers.dit.reward_monitor import RewardMonitor, SampleEvaluator
    from trainers.dit.rewards import RewardInputs, create_rewards

    if settings.monitor is None:
        if settings.held_out is not None:
            raise typer.BadParameter(
                "--held-out needs --monitor; add it with names of rewards, or leave --held-out out"
            )
        return None
    names = ",".join(settings.monitor)
    if settings.held_out is None:
        raise typer.BadParameter(f"--monitor {names} needs --held-out, a folder of images that are not for training")
    if not (images / "metadata.csv").exists():
        raise typer.BadParameter(f"--monitor {names} needs images, but {images} is a cache; add --made-of IMAGES")
    training_images = read_pictures(
        images, model.image_format, model.prompts.check, skip_bad=True
    )  # rejected images are reported already
    held_out = read_images(settings.held_out, model, skip_bad=skip_bad, silent=silent)
    _warn_of_training_images(training_images, held_out)
    inputs = RewardInputs(training_images, held_out, settings.reward_weights, settings.monitor_images)
    sampling = SamplingSettings(steps=settings.monitor_steps, guidance=settings.monitor_guidance)
    evaluator = SampleEvaluator(model, inputs, create_rewards(settings.monitor, inputs), sampling)
    return RewardMonitor(evaluator, settings.monitor[0], every=settings.monitor_every, patience=settings.patience)


def create_gate(
    model: "ImageModel", inputs: "RewardInputs", recipe: GrpoRecipe
) -> "tuple[ValidatedReward, RewardGate]":
    """Create the reward and the gate of a tuning run, and test both on real images."""
    from trainers.dit.reward_monitor import RewardGate, SampleEvaluator
    from trainers.dit.rewards import create_rewards

    _warn_of_training_images(inputs.pictures, inputs.held_out)
    rewards = create_rewards((recipe.reward, recipe.gate), inputs)
    evaluator = SampleEvaluator(
        model, inputs, rewards, SamplingSettings(steps=recipe.gate_steps, guidance=recipe.guidance)
    )
    gate = RewardGate(evaluator, reward=recipe.reward, quality=recipe.gate, bound=recipe.bound, every=recipe.gate_every)
    return rewards[0], gate


def read_evaluation_inputs(
    model: "ImageModel", settings: ImageEvaluationSettings, trained_words: frozenset[str] | None, *, silent: bool
) -> "RewardInputs":
    """Read the folders of an evaluation; draw the requested number of images, or as many as both folders have."""
    from trainers.dit.rewards import RewardInputs

    training_images = read_images(settings.images, model, skip_bad=settings.skip_bad, silent=silent)
    held_out = read_images(settings.held_out, model, trained_words, skip_bad=settings.skip_bad, silent=silent)
    _warn_of_training_images(training_images, held_out)
    both = min(len(training_images.pictures), len(held_out.pictures))
    return RewardInputs(
        training_images, held_out, settings.reward_weights, both if settings.count is None else settings.count
    )


def _warn_of_training_images(training_images: "ImageFolder", held_out: "ImageFolder") -> None:
    """Warn of held-out images that are also training images; prompts and pixels are compared, not file names."""
    digests = {picture.digest for picture in training_images.pictures}
    shared = sum(picture.digest in digests for picture in held_out.pictures)
    if shared:
        echo(
            f"! {shared} of {len(held_out.pictures)} images of {held_out.folder} are also in {training_images.folder}; "
            "scores on training images are too good: hold out others"
        )


def _warn_of_unknown_words(
    prompts: Collection[str], model: "ImageModel", trained_words: frozenset[str] | None, source: Path
) -> None:
    notice = describe_unknown_words_of_folder(prompts, model.prompts, trained_words, source)
    if notice is not None:
        echo(notice)
