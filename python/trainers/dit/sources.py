"""What the flags of commands name: images, caches and rewards, read and checked, and told of where that is due."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from trainers.dit.errors import DataError
from trainers.dit.recipe import GrpoRecipe, Judging, Sampling, Watching
from trainers.dit.words import doubts_of_all
from trainers.media.console import counter, say

if TYPE_CHECKING:
    from trainers.dit.batches import PlainImages
    from trainers.dit.cache import Cache
    from trainers.dit.gate import Gate
    from trainers.dit.images import Pictures
    from trainers.dit.models import ImageModel
    from trainers.dit.monitor import Monitor
    from trainers.dit.rewards import Checked, Material

CACHE: Final = "cache.json"
"""What tells a cache from a folder of images."""


def pictures_of(
    images: Path, model: "ImageModel", known: frozenset[str] | None = None, *, skip_bad: bool, silent: bool
) -> "Pictures":
    """The images of a folder, checked; what was left out is told, and what the model does not know of its prompts."""
    from trainers.dit.images import read_pictures

    tell = counter("checked", "images", silent=silent)
    pictures = read_pictures(images, model.form, model.prompts.check, skip_bad=skip_bad, tell=tell)
    for one in pictures.refused:
        say(f"! {one.name} was left out: {one.reason}")
    _tell_doubts(pictures.prompts, model, known, images)
    return pictures


def source_of(
    images: Path, model: "ImageModel", made_of: Path | None, *, skip_bad: bool, silent: bool
) -> "Cache | PlainImages":
    """A cache, checked to be this model's, or images to encode in every step."""
    from trainers.dit.batches import PlainImages
    from trainers.dit.cache import Cache

    if not (images / CACHE).exists() and (images / "metadata.csv").exists():
        if made_of is not None:
            raise typer.BadParameter(f"--made-of is for a cache, and {images} is a folder of images; leave it out")
        if model.network.priors:
            raise DataError(f"this model reads prior tokens, which {images} has not; make a cache with --priors")
        return PlainImages(pictures_of(images, model, skip_bad=skip_bad, silent=silent), model.prompts)
    opened = Cache.open(images)
    opened.check_model(model)
    left = len(opened.contents.refused)
    if left:
        say(f"! {left} image{'s were' if left > 1 else ' was'} left out of the cache; {CACHE} in it says why")
    if made_of is None:
        _tell_doubts(opened.prompts, model, None, images)
    else:
        opened.check_pictures(pictures_of(made_of, model, skip_bad=bool(opened.contents.refused), silent=silent))
    return opened


def monitor_of(model: "ImageModel", watching: Watching, images: Path) -> "Monitor | None":
    """What watches a training, if anything is to: made, and tried, before it starts."""
    from trainers.dit.monitor import Collapse, Monitor
    from trainers.dit.rewards import rewards_of
    from trainers.dit.watching import Watch

    if watching.monitor is None:
        return None
    names = ",".join(watching.monitor)
    if watching.held_out is None:
        raise typer.BadParameter(f"--monitor {names} needs --held-out, a folder of images that are not trained on")
    if not (images / "metadata.csv").exists():
        raise typer.BadParameter(f"--monitor {names} learns from images, and {images} is a cache; add --made-of IMAGES")
    material = _material(model, images, watching.held_out, watching.reward_weights, watching.monitor_images)
    sampling = Sampling(steps=watching.monitor_steps, guidance=watching.monitor_guidance)
    watch = Watch(model, material, rewards_of(watching.monitor, material), sampling)
    return Monitor(watch, watching.monitor[0], every=watching.monitor_every, collapse=Collapse(watching.patience))


def gate_of(model: "ImageModel", material: "Material", recipe: GrpoRecipe) -> "tuple[Checked, Gate]":
    """What is to be raised, and what must not get worse: made, and tried, before a tuning starts."""
    from trainers.dit.gate import Gate
    from trainers.dit.rewards import rewards_of
    from trainers.dit.watching import Watch

    rewards = rewards_of((recipe.reward, recipe.gate), material)
    watch = Watch(model, material, rewards, Sampling(steps=recipe.gate_steps, guidance=recipe.guidance))
    gate = Gate(watch, reward=recipe.reward, quality=recipe.gate, bound=recipe.bound, every=recipe.gate_every)
    return rewards[0], gate


def judging_of(model: "ImageModel", judging: Judging, known: frozenset[str] | None, *, silent: bool) -> "Material":
    """Both folders of a judgement, and how many images to draw: as many as there are in each, or as are asked for."""
    from trainers.dit.rewards import Material

    own = pictures_of(judging.images, model, skip_bad=judging.skip_bad, silent=silent)
    held = pictures_of(judging.held_out, model, known, skip_bad=judging.skip_bad, silent=silent)
    both = min(len(own.pictures), len(held.pictures))
    return Material(own, held, judging.reward_weights, both if judging.count is None else judging.count)


def _material(model: "ImageModel", images: Path, held_out: Path, weights: Path | None, count: int) -> "Material":
    """What rewards are made of; bad images among those that are trained on were told before."""
    from trainers.dit.images import read_pictures
    from trainers.dit.rewards import Material

    own = read_pictures(images, model.form, model.prompts.check, skip_bad=True)
    held = read_pictures(held_out, model.form, model.prompts.check)
    return Material(own, held, weights, count)


def _tell_doubts(prompts: Collection[str], model: "ImageModel", known: frozenset[str] | None, source: Path) -> None:
    notice = doubts_of_all(prompts, model.prompts, known, source)
    if notice is not None:
        say(notice)
