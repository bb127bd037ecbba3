"""Judging what a model draws of held-out prompts: by rewards, beside what the same rewards say of real images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import torch
from torch import Tensor

from trainers.dit.errors import RewardError
from trainers.dit.models import ImageModel
from trainers.dit.prompts import gathered_priors
from trainers.dit.recipe import SamplingSettings
from trainers.dit.rewards import (
    FrechetDistance,
    PromptClassifier,
    PromptProbability,
    RewardInputs,
    ValidatedReward,
    pixels_of,
)
from trainers.dit.sampling import draw_images
from trainers.dit.statistics import wilson_interval


@dataclass(frozen=True, slots=True)
class RewardScore:
    """What a reward says of what was drawn.

    Attributes:
        name: of the reward.
        title: what its number is called.
        value: the mean over the images; a distance without its minus.
        real: the same of real images; of a distance, its floor.
        is_distance: whether less is better.
        against: of a distance, real images on its other side; else 0.
    """

    name: str
    title: str
    value: float
    real: float
    is_distance: bool = False
    against: int = 0


@final
@dataclass(frozen=True, slots=True)
class ClassifierAccuracy:
    """Which prompts a classifier takes images for.

    Attributes:
        drawn: prompt for each image that was drawn.
        real: the same of real images, one for each.
    """

    drawn: tuple[str, ...]
    real: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ImageEvaluation:
    """How a model draws held-out prompts.

    Attributes:
        prompts: that were drawn, one for each image.
        images: that were drawn, float32 [N, channels, height, width], 0 to 1.
        targets: real images of the prompts, of the same shape.
        scores: one for each reward.
        telling: by the classifier; None where it was not asked.
    """

    prompts: tuple[str, ...]
    images: Tensor
    targets: Tensor
    scores: tuple[RewardScore, ...]
    telling: ClassifierAccuracy | None

    @property
    def right(self) -> int:
        """Images that are taken for what they were to show; 0 where no classifier was asked."""
        return 0 if self.telling is None else _equal(self.telling.drawn, self.prompts)

    @property
    def real_right(self) -> int:
        """The same of the real images."""
        return 0 if self.telling is None else _equal(self.telling.real, self.prompts)

    @property
    def said(self) -> tuple[str, ...]:
        """The figures in words, a line each."""
        count, lines = len(self.prompts), list[str]()
        if self.telling is not None:
            low, high = wilson_interval(self.right, count)
            lines.append(
                f"{self.right:,} of {count:,} images are taken for their prompt: {self.right / count:.1%}, 95 % "
                f"interval {low:.1%} to {high:.1%} (of the real images {self.real_right / count:.1%})"
            )
        for one in self.scores:
            better = f"of {count:,} images and {one.against:,} real ones; less" if one.is_distance else "more"
            lines.append(f"{one.title}: {one.value:.4g}, real images {one.real:.4g} ({better} is better)")
        return tuple(lines)

    def as_json(self) -> dict[str, Any]:
        """The figures, for programs."""
        told: dict[str, Any] = {"images": len(self.prompts), "scores": {one.name: asdict(one) for one in self.scores}}
        if self.telling is not None:
            low, high = wilson_interval(self.right, len(self.prompts))
            share, real = self.right / len(self.prompts), self.real_right / len(self.prompts)
            told["accuracy"] = {"share": share, "low": low, "high": high, "real": real}
        return told


def evaluate(
    model: ImageModel,
    material: RewardInputs,
    rewards: Sequence[ValidatedReward],
    sampling: SamplingSettings,
    priors: Mapping[str, Tensor] | None = None,
    tell: Callable[[int, int], None] = lambda _done, _total: None,
) -> ImageEvaluation:
    """Draw the prompts of held-out images, as many as the material counts, and let rewards judge.

    Args:
        model: trained.
        material: what the rewards are made of.
        rewards: who judges.
        sampling: how images are drawn.
        priors: plans of the held-out images, by their file, each int64 [priors]; None for a network that reads none.
        tell: called with how many images are drawn, and of how many.

    Raises:
        RewardError: there are fewer held-out images than are to be drawn, or what a reward says is no number.
        PriorError: plans are missing or are none, or the network reads none.
        DataError: a prompt is too long.
        SchedulerError: the model has learnt nothing yet, or its scheduler cannot take exactly so many steps.
    """
    held = material.held_out.some(material.count)
    if len(held.pictures) < material.count:
        raise RewardError(
            f"{material.count} images are to be drawn, and {material.held_out.folder} has prompts for "
            f"{len(held.pictures)}; draw fewer, or hold out more"
        )
    prompts, targets = [picture.prompt for picture in held.pictures], pixels_of(held)
    plans = gathered_priors(priors, [picture.file for picture in held.pictures], model.network)
    images = draw_images(model, prompts, sampling, plans if model.network.priors else None, tell)
    judge = next((one.reward.judge for one in rewards if isinstance(one.reward, PromptProbability)), None)
    return ImageEvaluation(
        prompts=tuple(prompts),
        images=images,
        targets=targets,
        scores=tuple(_score(one, images, prompts, targets) for one in rewards),
        telling=None if judge is None else ClassifierAccuracy(_named(judge, images), _named(judge, targets)),
    )


def _score(reward: ValidatedReward, images: Tensor, prompts: Sequence[str], targets: Tensor) -> RewardScore:
    said = float(reward(images, prompts, targets).mean())
    if isinstance(reward.reward, FrechetDistance):
        frechet = reward.reward
        return RewardScore(reward.name, reward.title, -said, frechet.floor, is_distance=True, against=frechet.against)
    return RewardScore(reward.name, reward.title, said, float(reward(targets, prompts, targets).mean()))


@torch.no_grad()
def _named(judge: PromptClassifier, images: Tensor) -> tuple[str, ...]:
    """The prompt that a classifier takes each of some images for, float [N, channels, height, width]."""
    return tuple(judge.prompts[place] for place in judge(images).argmax(1).tolist())


def _equal(found: Sequence[str], prompts: Sequence[str]) -> int:
    return sum(one == other for one, other in zip(found, prompts, strict=True))
