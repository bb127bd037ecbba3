"""Evaluation of a model on held-out prompts, with rewards of drawn and real images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any, final

import torch
from torch import Tensor

from trainers.dit.models import ImageModel
from trainers.dit.prompts import gather_priors
from trainers.dit.recipe import SamplingSettings
from trainers.dit.rewards import (
    FrechetDistance,
    PromptClassifier,
    PromptProbability,
    RewardInputs,
    ValidatedReward,
    read_pixels,
)
from trainers.dit.sampling import draw_images


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """95 % confidence interval of a proportion, `right` of `count` samples; `count` is at least 1.

    Wilson, "Probable inference, the law of succession, and statistical inference" (1927).
    """
    z = NormalDist().inv_cdf(0.5 + 0.95 / 2)
    share, weight = right / count, z * z / count
    middle = (share + weight / 2) / (1 + weight)
    spread = sqrt(share * (1 - share) * weight + weight * weight / 4) / (1 + weight)
    return max(0.0, middle - spread), min(1.0, middle + spread)


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
class ClassifierPredictions:
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
        predictions: Predictions of the classifier, if used.
    """

    prompts: tuple[str, ...]
    images: Tensor
    targets: Tensor
    scores: tuple[RewardScore, ...]
    predictions: ClassifierPredictions | None

    @property
    def correct(self) -> int:
        """Number of drawn images classified as their prompt; 0 without a classifier."""
        return 0 if self.predictions is None else _count_equal(self.predictions.drawn, self.prompts)

    @property
    def real_correct(self) -> int:
        """Number of real images classified as their prompt; 0 without a classifier."""
        return 0 if self.predictions is None else _count_equal(self.predictions.real, self.prompts)

    @property
    def summary(self) -> tuple[str, ...]:
        """The figures as lines of text."""
        count, lines = len(self.prompts), list[str]()
        if self.predictions is not None:
            low, high = wilson_interval(self.correct, count)
            lines.append(
                f"{self.correct:,} of {count:,} images are classified as their prompt: {self.correct / count:.1%}, "
                f"95 % interval {low:.1%} to {high:.1%} (real images: {self.real_correct / count:.1%})"
            )
        for score in self.scores:
            better = f"{count:,} images against {score.against:,} real ones; lower" if score.is_distance else "higher"
            lines.append(f"{score.title}: {score.value:.4g}, real images {score.real:.4g} ({better} is better)")
        return tuple(lines)

    def as_json(self) -> dict[str, Any]:
        """The figures as JSON."""
        scores = {score.name: asdict(score) for score in self.scores}
        facts: dict[str, Any] = {"images": len(self.prompts), "scores": scores}
        if self.predictions is not None:
            low, high = wilson_interval(self.correct, len(self.prompts))
            share, real = self.correct / len(self.prompts), self.real_correct / len(self.prompts)
            facts["accuracy"] = {"share": share, "low": low, "high": high, "real": real}
        return facts


def evaluate(
    model: ImageModel,
    inputs: RewardInputs,
    rewards: Sequence[ValidatedReward],
    sampling: SamplingSettings,
    priors: Mapping[str, Tensor] | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> ImageEvaluation:
    """Draw the prompts of held-out images and score the drawings.

    Args:
        model: Trained model.
        inputs: Inputs of the rewards; its count is the number of images.
        rewards: Rewards to compute.
        sampling: Sampling settings.
        priors: Prior tokens of the held-out images, int64 [priors], by file name, if the network reads them.
        on_progress: Called with the number of images drawn and the total.

    Raises:
        RewardError: There are too few held-out images, or a reward is not finite.
        PriorError: Priors are missing or invalid, or the network reads none.
        DataError: A prompt is too long.
        SchedulerError: The model is untrained, or its scheduler cannot take that many steps exactly.
    """
    held_out = inputs.choose_held_out()
    prompts, targets = [picture.prompt for picture in held_out.pictures], read_pixels(held_out)
    gathered = gather_priors(priors, [picture.file for picture in held_out.pictures], model.network)
    images = draw_images(model, prompts, sampling, gathered if model.network.prior_count else None, on_progress)
    scores: list[RewardScore] = []
    for reward in rewards:
        value = float(reward(images, prompts, targets).mean())
        if isinstance(reward.reward, FrechetDistance):
            floor, against = reward.reward.floor, reward.reward.against
            scores.append(RewardScore(reward.name, reward.title, -value, floor, is_distance=True, against=against))
        else:
            real = float(reward(targets, prompts, targets).mean())
            scores.append(RewardScore(reward.name, reward.title, value, real))
    probability = next(
        (validated.reward for validated in rewards if isinstance(validated.reward, PromptProbability)), None
    )
    predictions = None
    if probability is not None:
        classifier = probability.classifier
        predictions = ClassifierPredictions(_predict(classifier, images), _predict(classifier, targets))
    return ImageEvaluation(
        prompts=tuple(prompts),
        images=images,
        targets=targets,
        scores=tuple(scores),
        predictions=predictions,
    )


@torch.no_grad()
def _predict(classifier: PromptClassifier, images: Tensor) -> tuple[str, ...]:
    """Predicted prompts of images, float [N, channels, height, width]."""
    return tuple(classifier.prompts[index] for index in classifier(images).argmax(1).tolist())


def _count_equal(predictions: Sequence[str], prompts: Sequence[str]) -> int:
    return sum(predicted == prompt for predicted, prompt in zip(predictions, prompts, strict=True))
