"""Commands `quantra train dit sample` and `evaluate`."""

from math import ceil, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer

from predictor.cli.flags import with_flags
from predictor.flags import Flag
from trainers.dit.errors import IMAGES, DataError
from trainers.dit.inputs import read_evaluation_inputs
from trainers.dit.models import Notes, read_notes, read_trained_words
from trainers.dit.prompts import describe_unknown_words
from trainers.dit.recipe import ImageEvaluationSettings, SamplingSettings
from trainers.loop import Hardware, choose_device
from trainers.media.console import AsJson, command_errors, echo, print_json, progress_counter
from trainers.options import Device, Threads

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.dit.images import ImageFormat
    from trainers.dit.models import ImageModel
    from trainers.dit.rewards import RewardInputs

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a trained model.", show_default=False)]


@with_flags
def sample(
    *,
    model: ModelArgument,
    prompt: Annotated[str, Flag("Prompt to draw.")],
    out: Annotated[Path, Flag("Image file to write: .png.", metavar="FILE")],
    count: Annotated[int, Flag("Number of images, tiled in a square.", minimum=1)] = 1,
    scale: Annotated[int, Flag("Pixels of the file per pixel of the image.", minimum=1)] = 1,
    page: Annotated[
        Path | None, Flag("Also write a page with the images and the training curves.", metavar="FILE")
    ] = None,
    drawing: SamplingSettings,
    priors: Annotated[
        Path | None, Flag("Prior tokens for GLM-Image: a safetensors file, a tensor per image.", metavar="FILE")
    ] = None,
    device: Device = "auto",
    threads: Threads = 1,
) -> None:
    """Draw images of a prompt, and save them."""
    with command_errors(IMAGES):
        from trainers.dit.page import build_curves, render_sheet, sample_sheet
        from trainers.dit.prompts import read_priors
        from trainers.dit.sampling import draw_images
        from trainers.media.page import check_file, write_page

        if out.suffix.lower() != ".png":
            raise typer.BadParameter(f"--out {out} must end in .png")
        if page is not None and page.resolve() == out.resolve():
            raise typer.BadParameter(f"--page {page} is also the file of --out; choose another")
        for path in (out, *([] if page is None else [page])):
            check_file(path)
        torch.set_num_threads(threads)
        plans = None if priors is None else [*read_priors(priors).values()]
        loaded, notes = _load(model, device)
        _check_size(loaded.form, count, scale)
        curves, warning = build_curves(notes), describe_unknown_words(prompt, loaded.prompts, read_trained_words(notes))
        if warning is not None:
            echo(warning)
        drawn = draw_images(loaded, [prompt] * count, drawing, plans, progress_counter("drawn", "images", silent=False))
        _save(drawn, out, scale)
        if page is not None:
            lines = (_describe_sampling(loaded, drawing),)
            write_page(
                page, render_sheet(sample_sheet(f"Drawn by {model.resolve().name}", lines, prompt, drawn, curves))
            )
    echo(f"Saved {out}, {count} of {prompt!r}" + ("" if page is None else f", and {page}: open it to look"))


@with_flags
def evaluate(
    *,
    model: ModelArgument,
    settings: ImageEvaluationSettings,
    drawing: SamplingSettings,
    priors: Annotated[
        Path | None,
        Flag("Prior tokens of the held-out images, for GLM-Image: a safetensors file.", metavar="FILE"),
    ] = None,
    page: Annotated[Path | None, Flag("Page to write.", own="MODEL.html", metavar="FILE")] = None,
    device: Device = "auto",
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on held-out prompts, compare it with real images, and write a page."""
    with command_errors(IMAGES):
        from trainers.dit.evaluation import evaluate as evaluate_model
        from trainers.dit.page import build_curves, build_evaluation_page, render_sheet
        from trainers.dit.prompts import read_priors
        from trainers.dit.rewards import create_rewards
        from trainers.media.page import check_file, write_page

        torch.set_num_threads(threads)
        name = model.resolve().name
        path = choose_page(model) if page is None else page
        check_file(path)
        loaded, notes = _load(model, device)
        curves = build_curves(notes)
        inputs = read_evaluation_inputs(loaded, settings, read_trained_words(notes), silent=as_json)
        plans = None if priors is None else read_priors(priors)
        on_progress = progress_counter("drawn", "images", silent=as_json)
        found = evaluate_model(loaded, inputs, create_rewards(settings.rewards, inputs), drawing, plans, on_progress)
        lines = _describe_sampling(loaded, drawing), _describe_images(inputs)
        write_page(path, render_sheet(build_evaluation_page(f"Evaluation of {name}", lines, found, curves)))
    if as_json:
        print_json({"kind": "evaluated", "page": str(path), **found.as_json()})
        return
    for line in found.summary:
        echo(line)
    echo(f"Saved {path}: open it to look")


def _load(model: Path, device: str) -> "tuple[ImageModel, Notes]":
    from trainers.dit.models import ImageModel

    return ImageModel.load(model).to(choose_device(device, Hardware.detect()).device), read_notes(model)


def _save(drawn: "Tensor", out: Path, scale: int) -> None:
    """Save images, float [N, channels, height, width], as one square picture, enlarged by `scale`."""
    from trainers.dit.sampling import as_image, build_grid

    picture = as_image(build_grid(drawn, _columns(len(drawn))))
    picture = picture.resize((picture.width * scale, picture.height * scale), resample=0)  # nearest
    try:
        picture.save(out)
    except OSError as error:
        raise DataError(f"{out} cannot be written ({error.strerror}); choose another file") from error


def _columns(count: int) -> int:
    """Columns of a square of images, whose last row may be incomplete."""
    return ceil(sqrt(count))


def _check_size(form: "ImageFormat", count: int, scale: int) -> None:
    """Check the size of a picture before it is drawn.

    Raises:
        DataError: It has more pixels than Pillow opens without a warning of a decompression bomb.
    """
    from PIL import Image

    columns = _columns(count)
    width, height = columns * form.width * scale, ceil(count / columns) * form.height * scale
    if Image.MAX_IMAGE_PIXELS is not None and width * height > Image.MAX_IMAGE_PIXELS:
        raise DataError(
            f"the picture would be {width:,} by {height:,} pixels, more than most programs open; draw fewer, or choose "
            "a smaller --scale"
        )


def choose_page(model: Path) -> Path:
    """Default path of a model's page: next to its folder, with the same name."""
    folder = model if model.name not in {"", ".."} else model.resolve()
    return folder.with_name(f"{model.resolve().name}.html")


def _describe_sampling(model: "ImageModel", drawing: SamplingSettings) -> str:
    """Line of a page about model and sampling settings."""
    weights = sum(weight.numel() for weight in model.network.module.parameters())
    objective = "untrained" if model.objective is None else f"objective {model.objective.name}"
    guided = f"{drawing.steps} steps, guidance {drawing.guidance:g}, seed {drawing.seed}"
    return f"{model.network.pipeline}, {weights:,} weights, {objective}; drawn with {guided}"


def _describe_images(inputs: "RewardInputs") -> str:
    """Line of a page about the images of an evaluation."""
    own, held = inputs.pictures, inputs.held_out
    return (
        f"Compared with {inputs.count:,} images of {held.folder.resolve().name} (digest {held.digest[:12]}), by "
        f"rewards trained on {len(own.pictures):,} images of {own.folder.resolve().name} (digest {own.digest[:12]})"
    )
