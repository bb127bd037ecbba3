"""Digits, and models that are trained and tuned on them by the commands that a user has, each once in a folder.

A run that was stopped goes on where it was: finished models are read, an unfinished training is resumed.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from diffusers.utils import logging as diffusers_logging
from transformers.utils import logging as transformers_logging

from benchmarks.environments import ROOT
from examples.make_digits import TRAIN, digits, transformer_of, write_images
from trainers.dit.images import ImageFolder, read_pictures
from trainers.dit.models import ImageModel

MAKER: Final = ROOT / "examples" / "make_digits.py"
VAE_STEPS, HASTY_VAE_STEPS = 400, 20
HELD_OUT, FEW_HELD_OUT = 397, 100
"""Images to judge by; all that are not trained on."""


@final
class Workplace:
    """A folder with images of digits and the models that were trained on them.

    Args:
        folder: what is there is used again.
        quick: whether the VAE is trained for a moment only, and few images are held out.

    Attributes:
        folder: as given.
        images: the folder of those to learn from.
        held_out: the folder of those to judge by.
        cache: of those to learn from.
    """

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder = folder
        self.images = folder / "digits" / "images"
        self.held_out = folder / "held out"
        self.cache = folder / "cache"
        self._quick = quick

    def prepare(self) -> None:
        """Make images, encoders and cache, unless they are there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "digits" / "base").is_dir():
            shutil.rmtree(self.folder / "digits", ignore_errors=True)
            steps = HASTY_VAE_STEPS if self._quick else VAE_STEPS
            made = [sys.executable, MAKER, self.folder / "digits", "--vae-steps", str(steps)]
            subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        if not (self.held_out / "metadata.csv").is_file():
            shutil.rmtree(self.held_out, ignore_errors=True)
            until = TRAIN + (FEW_HELD_OUT if self._quick else HELD_OUT)
            pixels, targets = digits()
            write_images(self.held_out, pixels[TRAIN:until], targets[TRAIN:until])
        if not self.cache.is_dir():
            run("cache", self.images, "--model", self.folder / "digits" / "base", "--out", self.cache, "--json")

    def base(self, seed: int) -> Path:
        """What a training with this seed begins with: first weights of its own, and everybody's VAE and encoder."""
        place = self.folder / f"base-{seed}"
        if not place.is_dir():
            parts = ImageModel.load(self.folder / "digits" / "base")
            encoder: Any = parts.prompts.module
            vae: Any = parts.latents.module
            ImageModel.of(transformer_of(encoder, seed), vae, encoder, parts.prompts.tokenizer).save(place)
        return place

    def trained(self, name: str, seed: int, *words: str) -> Path:
        """A model by `train` with these flags."""
        place = self.folder / name
        if not place.is_dir():
            model = ("--model", self.base(seed), "--out", place, "--seed", seed)
            run("train", self.cache, *model, "--resume", "--json", *words)
        return place

    def tuned(self, name: str, start: Path, seed: int, *words: str) -> Path:
        """A model by `grpo` with these flags; that its gate ended the tuning is no failure."""
        place = self.folder / name
        if not place.is_dir():
            model = ("--model", start, "--held-out", self.held_out, "--out", place, "--seed", seed)
            run("grpo", self.images, *model, "--resume", "--json", *words, allowed=(0, 1))
            assert place.is_dir(), f"{place} was not saved"
        return place

    def pictures(self, folder: Path) -> ImageFolder:
        """The images of one of its folders, checked."""
        model = ImageModel.load(self.base(0))
        return read_pictures(folder, model.form, model.prompts.check)


def workplace(folder: Path, *, quick: bool) -> Workplace:
    """Prepared below a folder, for the figures or for a quick run."""
    place = Workplace(folder / ("quick" if quick else "whole"), quick=quick)
    place.prepare()
    return place


def quieten() -> None:
    """No progress bars and no advice of the libraries', as the commands have it."""
    transformers_logging.disable_progress_bar()
    diffusers_logging.disable_progress_bar()
    diffusers_logging.set_verbosity_error()


def seconds_of(model: Path) -> float:
    """What a training took, all its rounds together, by its own reports; a round that was repeated counts once."""
    lines = model.with_name(f"{model.name}.run").joinpath("reports.jsonl").read_text("utf-8").splitlines()
    reports: list[Mapping[str, Any]] = [json.loads(line) for line in lines]
    return sum({one["epoch"]: float(one["seconds"]) for one in reports if one["kind"] == "epoch"}.values())


def run(command: str, *words: object, allowed: Collection[int] = (0,)) -> str:
    """What a command of `python -m trainers.dit` writes; its messages are shown."""
    line: Sequence[str] = [sys.executable, "-m", "trainers.dit", command, *(str(word) for word in words)]
    done = subprocess.run(line, check=False, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    if done.returncode not in allowed:
        raise subprocess.CalledProcessError(done.returncode, line)
    return done.stdout
