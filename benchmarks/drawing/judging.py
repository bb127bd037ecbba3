"""Quality of a model's images, one for every held-out prompt, by a classifier trained on real images.

GRPO maximises the same classifier. A second one is trained on the held-out images, which no training uses.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Final, final

import torch
from torch import Tensor

from benchmarks.drawing.digits import Workplace
from trainers.dit.models import ImageModel
from trainers.dit.rewards import FrechetDistance, PromptClassifier, PromptProbability, read_pixels, train_classifier
from trainers.dit.sampling import SamplingSettings, draw_images

NOISE: Final = 1000
"""Seed of the noise that judged images start from; no training or tuning uses it."""


@final
@dataclass(frozen=True, slots=True)
class ImageScores:
    """Scores of a model's images.

    Attributes:
        accuracy: share of images that the judge assigns to their prompts.
        distance: Fréchet distance to the held-out images in the judge's features.
        rewards: the judge's probability of the prompted digit, per image.
        rewards_unused: the same by the judge trained on the held-out images.
    """

    accuracy: float
    distance: float
    rewards: tuple[float, ...]
    rewards_unused: tuple[float, ...]

    @property
    def reward(self) -> float:
        """Mean reward."""
        return mean(self.rewards)

    @classmethod
    def of(cls, scores: Mapping[str, Any]) -> "ImageScores":
        """Read scores from JSON."""
        return cls(scores["accuracy"], scores["distance"], tuple(scores["rewards"]), tuple(scores["rewards_unused"]))


@final
class ImageJudge:
    """Draws images for all held-out prompts and scores them.

    Args:
        work: folder of the images.

    Attributes:
        count: number of drawn images, and of real images to compare them with.
        floor: Fréchet distance of as many training images.
        real: share of the held-out images that the judge recognises.
    """

    def __init__(self, work: Workplace) -> None:
        own, held = work.pictures(work.images), work.pictures(work.held_out)
        self._work = work
        self._prompts = [picture.prompt for picture in held.pictures]
        self._targets = read_pixels(held)
        self.count = len(self._prompts)
        with torch.no_grad():
            self._judge, self._unused = train_classifier(own), train_classifier(held)
            self._frechet = FrechetDistance(self._judge, self._targets, read_pixels(own)[: self.count], self.count)
        self.floor = self._frechet.floor
        self.real = self._judge.accuracy(self._targets, self._prompts)

    def judged(self, model: Path, *, guidance: float = 2.0, noise: int = NOISE) -> ImageScores:
        """Scores of a saved model, from an earlier run if they exist."""
        return self.kept(
            f"{model.name}, guidance {guidance:g}, noise {noise}",
            lambda: self.figures(ImageModel.load(model), guidance=guidance, noise=noise),
        )

    def kept(self, name: str, make: Callable[[], ImageScores]) -> ImageScores:
        """Saved scores of a name; computes and saves them if missing."""
        place = self._work.folder / f"judged {name}.json"
        if not place.is_file():
            place.write_text(json.dumps(asdict(make())), "utf-8")
        return ImageScores.of(json.loads(place.read_text("utf-8")))

    def figures(self, model: ImageModel, *, guidance: float = 2.0, noise: int = NOISE) -> ImageScores:
        """Draw and score images, with default settings except these."""
        images = draw_images(model, self._prompts, SamplingSettings(guidance=guidance, seed=noise))
        with torch.no_grad():
            distance = -float(self._frechet(images, self._prompts, self._targets)[0])
        return ImageScores(
            self._judge.accuracy(images, self._prompts),
            distance,
            self._rewards(self._judge, images),
            self._rewards(self._unused, images),
        )

    @torch.no_grad()
    def _rewards(self, judge: PromptClassifier, images: Tensor) -> tuple[float, ...]:
        return tuple(PromptProbability(judge)(images, self._prompts, self._targets).tolist())
