"""Commands of `quantra train dit`: cache, train, grpo, sample and evaluate.

Modules that need the extra `dit` are imported inside the commands, so that a missing package is a one-line error.
"""

import io
import sys
from dataclasses import asdict
from math import ceil, sqrt
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import torch
import typer

from predictor.cli.flags import with_flags
from predictor.errors import format_count
from predictor.flags import Flag, ParsedFlags
from predictor.parent import exit_with_parent
from predictor.replacement import replace_file
from trainers.dit.errors import IMAGES, CacheError, DataError, ModelError
from trainers.dit.inputs import create_gate, create_monitor, open_source, read_evaluation_inputs, read_images
from trainers.dit.models import TRAINING, TUNING, WORDS, Notes, read_notes, read_trained_words
from trainers.dit.prompts import add_words, describe_unknown_words
from trainers.dit.recipe import (
    GrpoRecipe,
    ImageEvaluationSettings,
    ImageRecipe,
    MonitorSettings,
    ObjectiveSettings,
    SamplingSettings,
)
from trainers.loop import Hardware, choose_device, launched_rank, seed_everything
from trainers.media.console import AsJson, command_errors, echo, make_progress_counter, print_json
from trainers.media.run_directory import check_free, create_checkpoints, encode_settings, locate_run
from trainers.options import Device, RunOptions, Threads, consumer

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.dit.images import ImageFormat
    from trainers.dit.models import ImageModel
    from trainers.dit.rewards import RewardInputs
    from trainers.dit.training import ImageTrainingResult

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a trained model.", show_default=False)]
ModelFlag = Annotated[Path, Flag("Folder of the model, in diffusers' layout; nothing is downloaded.")]
SkipBad = Annotated[bool, Flag("Leave out images that cannot be used, and list them.")]
Priors = Annotated[
    Path | None,
    Flag(
        "Prior tokens for GLM-Image: a safetensors file with a tensor per image, by its file name in metadata.csv.",
        metavar="FILE",
    ),
]


@with_flags
def cache(
    *,
    images: Annotated[
        Path,
        typer.Argument(metavar="IMAGES", help="Folder of metadata.csv (file|prompt) and images.", show_default=False),
    ],
    model: ModelFlag,
    out: Annotated[Path, Flag("Folder of the cache; it must not exist.")],
    skip_bad: SkipBad = False,
    priors: Priors = None,
    device: Device = "auto",
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Check images and their prompts, and encode them for training."""
    with command_errors(IMAGES):
        from trainers.dit.batches import write_cache
        from trainers.dit.models import ImageModel
        from trainers.dit.prompts import read_priors

        torch.set_num_threads(threads)
        check_free(out, CacheError)
        image_model = ImageModel.load(model).to(choose_device(device, Hardware.detect()).device)
        pictures = read_images(images, image_model, skip_bad=skip_bad, silent=as_json)
        plans = None if priors is None else read_priors(priors)
        write_cache(
            pictures, image_model, out, make_progress_counter("encoded", "images", silent=as_json), priors=plans
        )
    facts = {"images": len(pictures.pictures), "prompts": len(pictures.prompts)}
    if as_json:
        print_json(
            {
                "kind": "cached",
                "cache": str(out),
                **facts,
                "refused": [asdict(rejected) for rejected in pictures.refused],
            }
        )
        return
    counts = f"{format_count(facts['images'], 'image')} of {format_count(facts['prompts'], 'prompt')}"
    echo(f"{counts}, {len(pictures.refused)} left out.")
    echo(
        f"Saved {out}. Next: quantra train dit train {quote(str(out))} --model {quote(str(model))} --out drawings/mine"
    )


@with_flags
def train(
    *,
    images: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGES",
            help="Folder that `cache` wrote, or one of images to encode in every step.",
            show_default=False,
        ),
    ],
    model: ModelFlag,
    out: Annotated[Path, Flag("Folder of the trained model; it must not exist.")],
    made_of: Annotated[Path | None, Flag("Folder of images to verify the cache against; reads all of them.")] = None,
    skip_bad: SkipBad = False,
    objective_flags: ParsedFlags[ObjectiveSettings],
    recipe_flags: ParsedFlags[ImageRecipe],
    monitor_flags: ParsedFlags[MonitorSettings],
    run: RunOptions,
) -> None:
    """Train a model's transformer on images."""
    with command_errors(IMAGES):
        from trainers.dit.models import ImageModel
        from trainers.dit.training import fit

        recipe = recipe_flags.over(ImageRecipe())
        torch.set_num_threads(run.threads)
        if run.parent_watch:
            exit_with_parent()
        check_free(out, ModelError)
        initial = ImageModel.load(model)
        image_model = initial.learning(
            objective_flags.over(ObjectiveSettings()).objective if objective_flags.flags else None
        )
        before = read_trained_words(read_notes(model))
        source = open_source(images, image_model, made_of, skip_bad=skip_bad, silent=run.as_json)
        monitor_settings = monitor_flags.over(MonitorSettings())
        monitor = create_monitor(
            image_model, monitor_settings, made_of or images, skip_bad=skip_bad, silent=run.as_json
        )
        seed_everything(recipe.seed)
        folder = locate_run(out)
        settings = {
            "recipe": encode_settings(asdict(recipe)),
            "objective": str(image_model.objective),
            "images": source.digest,
        }
        if monitor is not None:
            # Texts survive a round trip through JSON.
            values = {**asdict(monitor_settings), "monitor": ",".join(monitor_settings.monitor or ())}
            texts = {name: None if value is None else str(value) for name, value in values.items()}
            settings |= {"monitor": texts, "held_out": monitor.evaluator.digest}
        checkpoints = create_checkpoints(folder, run, settings, ModelError)
        consume = consumer(run, folder, sys.stdout, rank=launched_rank())
        result = fit(image_model, source, recipe, checkpoints, consume, monitor)
        if launched_rank() > 0:
            return
        image_model.network.module.cpu()
        words = add_words(before, source.prompts, image_model.prompts, is_untrained=initial.objective is None)
        facts = monitor.evaluator.facts if monitor else {}
        image_model.save(out, {TRAINING: {**settings, "curves": asdict(result), "facts": facts, WORDS: words}})
        prompt = source.prompts[0]
        priors = image_model.network.prior_count > 0
        plan = " --priors PRIORS.safetensors" if priors else ""
        example = f"quantra train dit sample {quote(str(out))} --prompt {quote(prompt)} --out drawn.png{plan}"
    _report_training(result, out, recipe.learning_rate, monitor_settings, example, as_json=run.as_json)


@with_flags
def grpo(
    *,
    images: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGES",
            help="Folder of metadata.csv and images: prompts to draw, and training data of rewards.",
            show_default=False,
        ),
    ],
    model: ModelFlag,
    held_out: Annotated[Path, Flag("Folder of images that the model has not seen, for evaluation.")],
    out: Annotated[Path, Flag("Folder of the tuned model; it must not exist.")],
    reward_weights: Annotated[
        Path | None, Flag("Folder of a CLIP model, for reward clip; nothing is downloaded.", metavar="FOLDER")
    ] = None,
    skip_bad: SkipBad = False,
    recipe_flags: ParsedFlags[GrpoRecipe],
    run: RunOptions,
) -> None:
    """Tune a trained model with a reward, while another metric must not get worse."""
    with command_errors(IMAGES):
        from trainers.dit.grpo import tune
        from trainers.dit.models import ImageModel
        from trainers.dit.rewards import RewardInputs

        recipe = recipe_flags.over(GrpoRecipe())
        torch.set_num_threads(run.threads)
        if run.parent_watch:
            exit_with_parent()
        check_free(out, ModelError)
        image_model, notes = ImageModel.load(model), read_notes(model)
        trained_words = read_trained_words(notes)
        pictures = read_images(images, image_model, trained_words, skip_bad=skip_bad, silent=run.as_json)
        held_out_pictures = read_images(held_out, image_model, trained_words, skip_bad=skip_bad, silent=run.as_json)
        reward, gate = create_gate(
            image_model, RewardInputs(pictures, held_out_pictures, reward_weights, recipe.gate_images), recipe
        )
        seed_everything(recipe.seed)
        folder = locate_run(out)
        settings = {
            "recipe": encode_settings(asdict(recipe)),
            "images": pictures.digest,
            "held_out": held_out_pictures.digest,
        }
        checkpoints = create_checkpoints(folder, run, settings, ModelError)
        consume = consumer(run, folder, sys.stdout, rank=launched_rank())
        result = tune(image_model, pictures, reward, gate, recipe, checkpoints, consume)
        if launched_rank() > 0:
            return
        image_model.network.module.cpu()
        words = None if trained_words is None else sorted(trained_words)
        image_model.save(
            out, {**notes, TUNING: {**settings, "tuned": asdict(result), "facts": gate.evaluator.facts, WORDS: words}}
        )
    if run.as_json:
        print_json({"kind": "tuned", "model": str(out), "accepted": result.refused is None, **asdict(result)})
    else:
        gained = result.refused is None and result.kept != result.snapshots[0]
        echo(f"{'ok:' if gained else '!'} {result.verdict}")
        equal, groups = sum(entry.equal for entry in result.rounds), sum(entry.groups for entry in result.rounds)
        echo(f"Saved {out}; {equal} of {groups} groups had equal rewards")
    if result.refused is not None:
        raise typer.Exit(1)


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
        from trainers.dit.page import build_curves, build_sample_page, render_sheet
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
        image_model, notes = _load(model, device)
        _check_size(image_model.image_format, count, scale)
        curves = build_curves(notes)
        warning = describe_unknown_words(prompt, image_model.prompts, read_trained_words(notes))
        if warning is not None:
            echo(warning)
        images = draw_images(
            image_model, [prompt] * count, drawing, plans, make_progress_counter("drawn", "images", silent=False)
        )
        _save(images, out, scale)
        if page is not None:
            lines = (_describe_sampling(image_model, drawing),)
            write_page(
                page, render_sheet(build_sample_page(f"Drawn by {model.resolve().name}", lines, prompt, images, curves))
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
    page: Annotated[Path | None, Flag("Page to write.", shown_default="MODEL.html", metavar="FILE")] = None,
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
        image_model, notes = _load(model, device)
        curves = build_curves(notes)
        inputs = read_evaluation_inputs(image_model, settings, read_trained_words(notes), silent=as_json)
        plans = None if priors is None else read_priors(priors)
        on_progress = make_progress_counter("drawn", "images", silent=as_json)
        evaluation = evaluate_model(
            image_model, inputs, create_rewards(settings.rewards, inputs), drawing, plans, on_progress
        )
        lines = _describe_sampling(image_model, drawing), _describe_images(inputs)
        write_page(path, render_sheet(build_evaluation_page(f"Evaluation of {name}", lines, evaluation, curves)))
    if as_json:
        print_json({"kind": "evaluated", "page": str(path), **evaluation.as_json()})
        return
    for line in evaluation.summary:
        echo(line)
    echo(f"Saved {path}: open it to look")


def _report_training(
    result: "ImageTrainingResult",
    out: Path,
    rate: float,
    monitor_settings: MonitorSettings,
    example: str,
    *,
    as_json: bool,
) -> None:
    """Report the result of a training run.

    Raises:
        Exit: The training ended because the reward collapsed (status 1).
    """
    loss = result.loss[-1] if result.loss else None
    if as_json:
        print_json({"kind": "trained", "model": str(out), "loss": loss, "collapsed": result.collapsed})
    elif result.collapsed and monitor_settings.monitor is not None:
        deciding = monitor_settings.monitor[0]
        best = max(result.snapshots, key=lambda snapshot: snapshot.rewards[deciding])
        echo(
            f"! stopped because the reward collapsed, {result.snapshots[-1].summary}; kept the best weights, "
            f"{best.summary}. Try a --learning-rate below {rate:g}, or --patience 0 to train to the end"
        )
    if not as_json:
        echo(f"Saved {out}. Next: {example}")
    if result.collapsed:
        raise typer.Exit(1)


def _load(model: Path, device: str) -> "tuple[ImageModel, Notes]":
    from trainers.dit.models import ImageModel

    return ImageModel.load(model).to(choose_device(device, Hardware.detect()).device), read_notes(model)


def _save(images: "Tensor", out: Path, scale: int) -> None:
    """Save images, float [N, channels, height, width], as one square picture, enlarged by `scale`."""
    from trainers.dit.sampling import as_image, build_grid

    picture = as_image(build_grid(images, _choose_columns(len(images))))
    picture = picture.resize((picture.width * scale, picture.height * scale), resample=0)  # nearest
    content = io.BytesIO()
    picture.save(content, format="png")
    try:
        replace_file(out, content.getvalue())
    except OSError as error:
        raise DataError(f"{out} cannot be written ({error.strerror}); choose another file") from error


def _choose_columns(count: int) -> int:
    """Columns of a square of images, whose last row may be incomplete."""
    return ceil(sqrt(count))


def _check_size(image_format: "ImageFormat", count: int, scale: int) -> None:
    """Check the size of a picture before it is drawn.

    Raises:
        DataError: It has more pixels than Pillow opens without a warning of a decompression bomb.
    """
    from PIL import Image

    columns = _choose_columns(count)
    width, height = columns * image_format.width * scale, ceil(count / columns) * image_format.height * scale
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
    pictures, held_out = inputs.pictures, inputs.held_out
    return (
        f"Compared with {inputs.count:,} images of {held_out.folder.resolve().name} "
        f"(digest {held_out.digest[:12]}), by rewards trained on {len(pictures.pictures):,} images "
        f"of {pictures.folder.resolve().name} (digest {pictures.digest[:12]})"
    )
