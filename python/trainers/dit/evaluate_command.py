"""`quantra train dit evaluate`: what a model draws of prompts that it has not learnt, judged and shown on a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer

from predictor.cli.flags import with_flags
from predictor.flags import Flag
from trainers.dit.errors import IMAGES
from trainers.dit.recipe import Judging, Sampling
from trainers.media.console import AsJson, counter, failing, say, write
from trainers.options import Threads

if TYPE_CHECKING:
    from trainers.dit.images import Pictures
    from trainers.dit.models import ImageModel
    from trainers.dit.rewards import Material


@with_flags
def evaluate(
    *,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a trained model.", show_default=False)],
    judging: Judging,
    drawing: Sampling,
    priors: Annotated[
        Path | None,
        Flag("Prior tokens of the held-out images, for GLM-Image: a safetensors file.", metavar="FILE"),
    ] = None,
    page: Annotated[Path | None, Flag("The page to look at.", own="MODEL.html")] = None,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Judge what a model draws of held-out prompts, beside real images, and show it on a page."""
    with failing(IMAGES):
        from trainers.dit.evaluation import evaluate as evaluated
        from trainers.dit.history import curves_of, read_notes
        from trainers.dit.models import ImageModel
        from trainers.dit.page import judged_sheet, render_sheet
        from trainers.dit.priors import read_priors
        from trainers.dit.rewards import rewards_of
        from trainers.media.page import check_page, write_page

        torch.set_num_threads(threads)
        place = model.with_name(f"{model.name}.html") if page is None else page
        check_page(place)
        loaded, curves = ImageModel.load(model), curves_of(read_notes(model))
        material = _material(loaded, judging, silent=as_json)
        plans = None if priors is None else read_priors(priors)
        tell = counter("drawn", "images", silent=as_json)
        found = evaluated(loaded, material, rewards_of(judging.rewards, material), drawing, plans, tell)
        lines = drawn_by(loaded, drawing), _judged_by(material)
        write_page(place, render_sheet(judged_sheet(f"Evaluation of {model.resolve().name}", lines, found, curves)))
    if as_json:
        write({"kind": "evaluated", "page": str(place), **found.as_json()})
        return
    for line in found.said:
        say(line)
    say(f"Saved {place}: open it to look")


def drawn_by(model: "ImageModel", drawing: Sampling) -> str:
    """What drew, and how, for the head of a page."""
    weights = sum(weight.numel() for weight in model.network.module.parameters())
    learnt = "nothing learnt" if model.objective is None else f"objective {model.objective.name}"
    guided = f"{drawing.steps} steps, guidance {drawing.guidance:g}, seed {drawing.seed}"
    return f"{model.network.pipeline}, {weights:,} weights, {learnt}; drawn with {guided}"


def _judged_by(material: "Material") -> str:
    own, held = material.pictures, material.held_out
    return (
        f"Judged beside {material.count:,} images of {held.folder.resolve().name} (digest {held.digest[:12]}) by what "
        f"was learnt from {len(own.pictures):,} of {own.folder.resolve().name} (digest {own.digest[:12]})"
    )


def _material(model: "ImageModel", judging: Judging, *, silent: bool) -> "Material":
    """Both folders, and as many images to draw as there are in each of them, or as are asked for."""
    from trainers.dit.rewards import Material

    own, held = (_read(folder, model, judging, silent=silent) for folder in (judging.images, judging.held_out))
    both = min(len(own.pictures), len(held.pictures))
    return Material(own, held, judging.reward_weights, both if judging.count is None else judging.count)


def _read(folder: Path, model: "ImageModel", judging: Judging, *, silent: bool) -> "Pictures":
    from trainers.dit.images import read_pictures

    tell = counter("checked", "images", silent=silent)
    pictures = read_pictures(folder, model.form, model.prompts.check, skip_bad=judging.skip_bad, tell=tell)
    for one in pictures.refused:
        say(f"! {one.name} was left out: {one.reason}")
    return pictures
