"""`quantra train dit …` and `python -m trainers.dit …`: from a folder of images to a model that draws.

What needs the extra `dit` is imported when a command runs, so that a missing package is one line.
"""

import sys
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import torch
import typer

from predictor.cli.flags import with_flags
from predictor.flags import Flag, Given
from trainers.dit.errors import IMAGES, DataError, ModelError
from trainers.dit.recipe import Build, GrpoRecipe, ImageRecipe, Watching
from trainers.dit.words import TRAINING, TUNING, WORDS, doubts, doubts_of_all, trained_words, words_after
from trainers.loop import Hardware, choose_device, launched_rank, seed_everything
from trainers.media.console import AsJson, counter, failing, say, write
from trainers.media.course import as_settings, checkpoints_in, run_folder
from trainers.media.folders import check_free
from trainers.options import Device, RunOptions, Threads, consumer

if TYPE_CHECKING:
    from trainers.dit.batches import PlainImages
    from trainers.dit.cache import Cache
    from trainers.dit.gate import Gate
    from trainers.dit.grpo import Tuned
    from trainers.dit.images import Pictures
    from trainers.dit.models import ImageModel
    from trainers.dit.monitor import Monitor
    from trainers.dit.rewards import Checked, Material
    from trainers.dit.training import Learnt

ModelFlag = Annotated[Path, Flag("Folder of the model, in diffusers' layout; nothing is downloaded.")]
SkipBad = Annotated[bool, Flag("Leave out images that cannot be used, and list them.")]
Priors = Annotated[
    Path | None,
    Flag(
        "Prior tokens for GLM-Image: a safetensors file with a tensor per image, by its file name in metadata.csv.",
        metavar="FILE",
    ),
]

CACHE = "cache.json"
"""What tells a cache from a folder of images."""


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
    """Check images and their prompts, and encode them once."""
    with failing(IMAGES):
        from trainers.dit.cache import write_cache
        from trainers.dit.models import ImageModel
        from trainers.dit.priors import read_priors

        torch.set_num_threads(threads)
        loaded = ImageModel.load(model).to(choose_device(device, Hardware.detect()).device)
        pictures = _pictures(images, loaded, skip_bad=skip_bad, silent=as_json)
        plans = None if priors is None else read_priors(priors)
        write_cache(pictures, loaded, out, counter("encoded", "images", silent=as_json), priors=plans)
    facts = {"images": len(pictures.pictures), "prompts": len(pictures.prompts)}
    if as_json:
        write({"kind": "cached", "cache": str(out), **facts, "refused": [asdict(one) for one in pictures.refused]})
        return
    say(f"{facts['images']} images of {facts['prompts']} prompts, {len(pictures.refused)} left out.")
    say(f"Saved {out}. Next: quantra train dit train {quote(str(out))} --model {quote(str(model))} --out drawings/mine")


@with_flags
def train(  # noqa: PLR0913 - one argument a flag
    *,
    images: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGES", help="Folder that `cache` made, or of images to encode in every step.", show_default=False
        ),
    ],
    model: ModelFlag,
    out: Annotated[Path, Flag("Folder of the trained model; it must not exist.")],
    made_of: Annotated[
        Path | None, Flag("Images that the cache must have been made of, all of which are read to check.")
    ] = None,
    skip_bad: SkipBad = False,
    build: Given[Build],
    recipe: Given[ImageRecipe],
    watching: Given[Watching],
    run: RunOptions,
) -> None:
    """Train a model's transformer on images."""
    with failing(IMAGES):
        from trainers.dit.models import ImageModel
        from trainers.dit.training import fit

        chosen = recipe.over(ImageRecipe())
        torch.set_num_threads(run.threads)
        check_free(out, ModelError)
        given = ImageModel.load(model)
        loaded = given.learning(build.over(Build()).objective if build.flags else None)
        before = trained_words(model)
        source = _source(images, loaded, made_of, skip_bad=skip_bad, silent=run.as_json)
        watched = watching.over(Watching())
        monitor = _monitor(loaded, watched, made_of or images)
        seed_everything(chosen.seed)
        folder = run_folder(out)
        settings = {"recipe": as_settings(asdict(chosen)), "objective": str(loaded.objective), "images": source.digest}
        if monitor is not None:
            settings |= {"monitor": _as_settings(watched)}
        checkpoints = checkpoints_in(folder, run, settings, ModelError)
        consume = consumer(run, folder, sys.stdout, rank=launched_rank())
        learnt = fit(loaded, source, chosen, checkpoints, consume, monitor)
        if launched_rank() > 0:
            return
        loaded.network.module.cpu()
        words = words_after(before, source.prompts, loaded.prompts, fresh=given.objective is None)
        facts = monitor.facts if monitor else {}
        loaded.save(out, {TRAINING: {**settings, "curves": asdict(learnt), "facts": facts, WORDS: words}})
        advised = _drawing(out, source.prompts[0], priors=loaded.network.priors > 0)
    _tell_trained(learnt, out, chosen.learning_rate, watched.monitor, advised, as_json=run.as_json)


@with_flags
def grpo(
    *,
    images: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGES",
            help="Folder of metadata.csv and images: prompts to draw, and what rewards learn from.",
            show_default=False,
        ),
    ],
    model: ModelFlag,
    held_out: Annotated[Path, Flag("Folder of images that the model has not seen, for the looks at what it draws.")],
    out: Annotated[Path, Flag("Folder of the tuned model; it must not exist.")],
    reward_weights: Annotated[
        Path | None, Flag("Folder of a CLIP model, for reward clip; nothing is downloaded.", metavar="FOLDER")
    ] = None,
    skip_bad: SkipBad = False,
    recipe: Given[GrpoRecipe],
    run: RunOptions,
) -> None:
    """Tune a trained model by a reward, as far as another metric does not get worse."""
    with failing(IMAGES):
        from trainers.dit.grpo import tune
        from trainers.dit.history import read_notes
        from trainers.dit.models import ImageModel
        from trainers.dit.rewards import Material

        chosen = recipe.over(GrpoRecipe())
        torch.set_num_threads(run.threads)
        check_free(out, ModelError)
        loaded, notes, known = ImageModel.load(model), read_notes(model), trained_words(model)
        own = _pictures(images, loaded, known, skip_bad=skip_bad, silent=run.as_json)
        held = _pictures(held_out, loaded, known, skip_bad=skip_bad, silent=run.as_json)
        reward, gate = _gated(loaded, Material(own, held, reward_weights, chosen.gate_images), chosen)
        seed_everything(chosen.seed)
        folder = run_folder(out)
        settings = {"recipe": as_settings(asdict(chosen)), "images": own.digest, "held_out": held.digest}
        checkpoints = checkpoints_in(folder, run, settings, ModelError)
        consume = consumer(run, folder, sys.stdout, rank=launched_rank())
        tuned = tune(loaded, own, reward, gate, chosen, checkpoints, consume)
        if launched_rank() > 0:
            return
        loaded.network.module.cpu()
        words = None if known is None else sorted(known)
        loaded.save(out, {**notes, TUNING: {**settings, "tuned": asdict(tuned), "facts": gate.facts, WORDS: words}})
    _tell_tuned(tuned, out, as_json=run.as_json)


@with_flags
def sample(  # noqa: PLR0913 - one argument a flag
    *,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a trained model.", show_default=False)],
    prompt: Annotated[str, Flag("What is to be seen.")],
    out: Annotated[Path, Flag("The picture's file: .png.", metavar="FILE")],
    count: Annotated[int, Flag("Images, side by side in a square.", minimum=1)] = 1,
    steps: Annotated[int, Flag("How many times the network is asked.", minimum=1)] = 20,
    priors: Annotated[
        Path | None, Flag("Prior tokens for GLM-Image: a safetensors file, a tensor per image.", metavar="FILE")
    ] = None,
    guidance: Annotated[float, Flag("How far to go beyond what the prompt adds; 1: not beyond.", minimum=1)] = 2.0,
    scale: Annotated[int, Flag("Pixels of the file per pixel of the image.", minimum=1)] = 1,
    seed: Annotated[int, Flag("Of the noise that images begin with.", minimum=0, maximum=2**32 - 1)] = 0,
    device: Device = "auto",
    threads: Threads = 1,
) -> None:
    """Draw images of a prompt, and save them."""
    with failing(IMAGES):
        from trainers.dit.models import ImageModel
        from trainers.dit.priors import read_priors
        from trainers.dit.sampling import Sampling, as_image, draw_images, grid

        if out.suffix.lower() != ".png":
            raise typer.BadParameter(f"--out {out} must end in .png")
        torch.set_num_threads(threads)
        sampling = Sampling(steps=steps, guidance=guidance, seed=seed)
        plans = None if priors is None else [*read_priors(priors).values()]
        loaded = ImageModel.load(model).to(choose_device(device, Hardware.detect()).device)
        drawn = draw_images(loaded, [prompt] * count, sampling, plans)
        _tell(doubts(prompt, loaded.prompts, trained_words(model)))
        picture = as_image(grid(drawn, columns=_columns(count)))
        picture = picture.resize((picture.width * scale, picture.height * scale), resample=0)  # nearest
        try:
            picture.save(out)
        except OSError as error:
            raise DataError(f"{out} cannot be written ({error.strerror}); name another file") from error
    say(f"Saved {out}, {count} of {prompt!r}")


def _columns(count: int) -> int:
    """Of a square that holds so many."""
    return next(columns for columns in range(1, count + 1) if columns * columns >= count)


def _tell(notice: str | None) -> None:
    if notice is not None:
        say(notice)


def _pictures(
    images: Path, model: "ImageModel", known: frozenset[str] | None = None, *, skip_bad: bool, silent: bool
) -> "Pictures":
    """The images of a folder, checked; what was left out is told, and what the model does not know of its prompts."""
    from trainers.dit.images import read_pictures

    tell = counter("checked", "images", silent=silent)
    pictures = read_pictures(images, model.form, model.prompts.check, skip_bad=skip_bad, tell=tell)
    for one in pictures.refused:
        say(f"! {one.name} was left out: {one.reason}")
    _tell(doubts_of_all(pictures.prompts, model.prompts, known, images))
    return pictures


def _source(
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
        return PlainImages(_pictures(images, model, skip_bad=skip_bad, silent=silent), model.prompts)
    opened = Cache.open(images)
    opened.check_model(model)
    left = len(opened.contents.refused)
    if left:
        say(f"! {left} image{'s were' if left > 1 else ' was'} left out of the cache; {CACHE} in it says why")
    if made_of is None:
        _tell(doubts_of_all(opened.prompts, model.prompts, None, images))
    else:
        opened.check_pictures(_pictures(made_of, model, skip_bad=bool(opened.contents.refused), silent=silent))
    return opened


def _monitor(model: "ImageModel", watching: Watching, images: Path) -> "Monitor | None":
    """What watches a training, if anything is to: made, and tried, before it starts."""
    from trainers.dit.monitor import Collapse, Monitor
    from trainers.dit.rewards import rewards_of
    from trainers.dit.sampling import Sampling
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


def _as_settings(watching: Watching) -> dict[str, str | None]:
    """As texts, so that they are the same after they were written as JSON."""
    told = {**asdict(watching), "monitor": ",".join(watching.monitor or ())}
    return {name: None if value is None else str(value) for name, value in told.items()}


def _drawing(model: Path, prompt: str, *, priors: bool) -> str:
    """A command that draws an image."""
    plan = " --priors PRIORS.safetensors" if priors else ""
    return f"quantra train dit sample {quote(str(model))} --prompt {quote(prompt)} --out drawn.png{plan}"


def _tell_trained(
    learnt: "Learnt", out: Path, rate: float, monitor: str | None, advised: str, *, as_json: bool
) -> None:
    """What became of a model, and what to do with it.

    Raises:
        Exit: 1, where the training was ended for its collapse.
    """
    loss = learnt.loss[-1] if learnt.loss else None
    if as_json:
        write({"kind": "trained", "model": str(out), "loss": loss, "collapsed": learnt.collapsed})
    elif learnt.collapsed and monitor is not None:
        best = max(learnt.looks, key=lambda look: look.rewards[monitor])
        say(
            f"! the training was ended, for its reward had collapsed, {learnt.looks[-1].told}; the best weights are "
            f"kept, {best.told}. Try a --learning-rate below {rate:g}, or --patience 0 to see it through"
        )
    if not as_json:
        say(f"Saved {out}. Next: {advised}")
    if learnt.collapsed:
        raise typer.Exit(1)


def _tell_tuned(tuned: "Tuned", out: Path, *, as_json: bool) -> None:
    """What became of a model, and with which figures.

    Raises:
        Exit: 1, where the gate ended the tuning.
    """
    if as_json:
        write({"kind": "tuned", "model": str(out), "accepted": tuned.refused is None, **asdict(tuned)})
    else:
        say(f"{'!' if tuned.refused else 'ok:'} {tuned.verdict}")
        say(
            f"Saved {out}, drawn from {sum(one.groups for one in tuned.rounds)} groups, of which "
            f"{sum(one.equal for one in tuned.rounds)} had equal rewards"
        )
    if tuned.refused is not None:
        raise typer.Exit(1)


def _gated(model: "ImageModel", material: "Material", recipe: GrpoRecipe) -> "tuple[Checked, Gate]":
    """What is to be raised, and what must not get worse: made, and tried, before a tuning starts."""
    from trainers.dit.gate import Gate
    from trainers.dit.rewards import rewards_of
    from trainers.dit.sampling import Sampling
    from trainers.dit.watching import Watch

    rewards = rewards_of((recipe.reward, recipe.gate), material)
    watch = Watch(model, material, rewards, Sampling(steps=recipe.gate_steps, guidance=recipe.guidance))
    gate = Gate(watch, reward=recipe.reward, quality=recipe.gate, bound=recipe.bound, every=recipe.gate_every)
    return rewards[0], gate


def _material(model: "ImageModel", images: Path, held_out: Path, weights: Path | None, count: int) -> "Material":
    """What rewards are made of; bad images among those that are trained on were told before."""
    from trainers.dit.images import read_pictures
    from trainers.dit.rewards import Material

    own = read_pictures(images, model.form, model.prompts.check, skip_bad=True)
    held = read_pictures(held_out, model.form, model.prompts.check)
    return Material(own, held, weights, count)
