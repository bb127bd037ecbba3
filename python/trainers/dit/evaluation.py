"""Evaluation of a model on held-out prompts, with rewards of drawn and real images."""

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
    """Score of drawn images by one reward.

    Attributes:
        name: Name of the reward.
        title: Name of the figure.
        value: Mean over the images; a distance is positive.
        real: Value of real images; for a distance, its floor.
        is_distance: Whether less is better.
        against: Number of real images that a distance compares with, else 0.
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
    """Prompts predicted by a classifier.

    Attributes:
        drawn: Prediction for each drawn image.
        real: Prediction for each real image.
    """

    drawn: tuple[str, ...]
    real: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ImageEvaluation:
    """Evaluation of a model on held-out prompts.

    Attributes:
        prompts: Prompt of each image.
        images: Drawn images, float32 [N, channels, height, width], 0 to 1.
        targets: Real images of the prompts, of the same shape.
        scores: One score per reward.
        telling: Predictions of the classifier, if used.
    """

    prompts: tuple[str, ...]
    images: Tensor
    targets: Tensor
    scores: tuple[RewardScore, ...]
    telling: ClassifierAccuracy | None

    @property
    def right(self) -> int:
        """Number of drawn images classified as their prompt; 0 without a classifier."""
        return 0 if self.telling is None else _equal(self.telling.drawn, self.prompts)

    @property
    def real_right(self) -> int:
        """Number of real images classified as their prompt; 0 without a classifier."""
        return 0 if self.telling is None else _equal(self.telling.real, self.prompts)

    @property
    def said(self) -> tuple[str, ...]:
        """The figures as lines of text."""
        count, lines = len(self.prompts), list[str]()
        if self.telling is not None:
            low, high = wilson_interval(self.right, count)
            lines.append(
                f"{self.right:,} of {count:,} images are classified as their prompt: {self.right / count:.1%}, 95 % "
                f"interval {low:.1%} to {high:.1%} (real images: {self.real_right / count:.1%})"
            )
        for one in self.scores:
            better = f"{count:,} images against {one.against:,} real ones; lower" if one.is_distance else "higher"
            lines.append(f"{one.title}: {one.value:.4g}, real images {one.real:.4g} ({better} is better)")
        return tuple(lines)

    def as_json(self) -> dict[str, Any]:
        """The figures as JSON."""
        facts: dict[str, Any] = {"images": len(self.prompts), "scores": {one.name: asdict(one) for one in self.scores}}
        if self.telling is not None:
            low, high = wilson_interval(self.right, len(self.prompts))
            share, real = self.right / len(self.prompts), self.real_right / len(self.prompts)
            facts["accuracy"] = {"share": share, "low": low, "high": high, "real": real}
        return facts


def evaluate(
    model: ImageModel,
    material: RewardInputs,
    rewards: Sequence[ValidatedReward],
    sampling: SamplingSettings,
    priors: Mapping[str, Tensor] | None = None,
    tell: Callable[[int, int], None] = lambda _done, _total: None,
) -> ImageEvaluation:
    """Draw the prompts of held-out images and score the drawings.

    Args:
        model: Trained model.
        material: Inputs of the rewards; its count is the number of images.
        rewards: Rewards to compute.
        sampling: Sampling settings.
        priors: Prior tokens of the held-out images, int64 [priors], by file name, if the network reads them.
        tell: Called with the number of images drawn and the total.

    Raises:
        RewardError: There are too few held-out images, or a reward is not finite.
        PriorError: Priors are missing or invalid, or the network reads none.
        DataError: A prompt is too long.
        SchedulerError: The model is untrained, or its scheduler cannot take that many steps exactly.
    """
    held = material.held_out.some(material.count)
    if len(held.pictures) < material.count:
        raise RewardError(
            f"{material.count} images were requested, but {material.held_out.folder} has prompts for only "
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
    """Predicted prompts of images, float [N, channels, height, width]."""
    return tuple(judge.prompts[place] for place in judge(images).argmax(1).tolist())


def _equal(found: Sequence[str], prompts: Sequence[str]) -> int:
    return sum(one == other for one, other in zip(found, prompts, strict=True))
