"""Images of digits, and a folder of models that the user's commands train and tune on them.

An interrupted run continues: finished models are loaded, an unfinished training is resumed.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, final

from diffusers.utils import logging as diffusers_logging
from transformers.utils import logging as transformers_logging

from benchmarks.environments import ROOT, run_trainer
from examples.make_digits import TRAIN, digits, transformer_of, write_images
from trainers.dit.images import ImageFolder, read_pictures
from trainers.dit.models import ImageModel

MAKER: Final = ROOT / "examples" / "make_digits.py"
VAE_STEPS, HASTY_VAE_STEPS = 400, 20
HELD_OUT, FEW_HELD_OUT = 397, 100
"""Number of held-out images: all that are not trained on, or few for a quick run."""


@final
class Workplace:
    """A folder with images of digits and the models trained on them.

    Args:
        folder: its existing content is reused.
        quick: whether to train the VAE briefly and hold out few images.

    Attributes:
        folder: the folder.
        images: folder of training images.
        held_out: folder of held-out images.
        cache: cache of the training images.
    """

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder = folder
        self.images = folder / "digits" / "images"
        self.held_out = folder / "held out"
        self.cache = folder / "cache"
        self._quick = quick

    def prepare(self) -> None:
        """Make images, encoders and cache if they do not exist."""
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
            model = ("--model", self.folder / "digits" / "base", "--out", self.cache)
            run_trainer("trainers.dit", "cache", self.images, *model, "--json")

    def base(self, seed: int) -> Path:
        """The starting model of a seed: its first weights, and the common VAE and text encoder."""
        place = self.folder / f"base-{seed}"
        if not place.is_dir():
            parts = ImageModel.load(self.folder / "digits" / "base")
            encoder: Any = parts.prompts.module
            vae: Any = parts.latents.module
            ImageModel.of(transformer_of(encoder, seed), vae, encoder, parts.prompts.tokenizer).save(place)
        return place

    def trained(self, name: str, seed: int, *words: str) -> Path:
        """Train a model with these flags if it does not exist."""
        place = self.folder / name
        if not place.is_dir():
            model = ("--model", self.base(seed), "--out", place, "--seed", seed)
            run_trainer("trainers.dit", "train", self.cache, *model, "--resume", "--json", *words)
        return place

    def tuned(self, name: str, start: Path, seed: int, *words: str) -> Path:
        """Tune a model with these flags if it does not exist; a tuning run that its gate stops is valid."""
        place = self.folder / name
        if not place.is_dir():
            model = ("--model", start, "--held-out", self.held_out, "--out", place, "--seed", seed)
            run_trainer("trainers.dit", "grpo", self.images, *model, "--resume", "--json", *words, allowed=(0, 1))
            assert place.is_dir(), f"{place} was not saved"
        return place

    def pictures(self, folder: Path) -> ImageFolder:
        """Read and check the images of a folder."""
        model = ImageModel.load(self.base(0))
        return read_pictures(folder, model.image_format, model.prompts.check)


def workplace(folder: Path, *, quick: bool) -> Workplace:
    """Prepare a workplace in a folder, for a full or a quick run."""
    place = Workplace(folder / ("quick" if quick else "whole"), quick=quick)
    place.prepare()
    return place


def quieten() -> None:
    """Silence progress bars and advice of the libraries, as the commands do."""
    transformers_logging.disable_progress_bar()
    diffusers_logging.disable_progress_bar()
    diffusers_logging.set_verbosity_error()


def seconds_of(model: Path) -> float:
    """Seconds of a training run by its own reports, over all epochs; a repeated epoch counts once."""
    lines = model.with_name(f"{model.name}.run").joinpath("reports.jsonl").read_text("utf-8").splitlines()
    reports: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return sum({one["epoch"]: float(one["seconds"]) for one in reports if one["kind"] == "epoch"}.values())
