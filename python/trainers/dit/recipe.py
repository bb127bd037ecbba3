"""Settings of image training, tuning, sampling and evaluation, with their flags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, cast, get_args

from predictor.flags import Flag
from trainers.media.run_directory import divide_into_rounds
from trainers.options import ComputationOptions

ObjectiveName = Literal["flow", "epsilon", "velocity"]
RewardName = Literal["classifier", "ssim", "psnr", "frechet", "clip"]

WARM_UP: Final = 50
"""Maximum number of warm-up steps; at most a tenth of all steps."""


def reward_names(text: str) -> tuple[RewardName, ...]:
    """Parse names of rewards, separated by commas.

    Raises:
        ValueError: A name is unknown or repeated.
    """
    names = tuple(part.strip() for part in text.split(","))
    rewards = get_args(RewardName)
    wrong = [name for name in names if name not in rewards]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not a reward; choose from {', '.join(rewards)}")
    if len(set(names)) < len(names):
        raise ValueError(f"{text} names a reward twice; name each once")
    return cast("tuple[RewardName, ...]", names)


def _check_dropout(value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{value:g} is not a share of prompts to drop; it must be 0 or more and below 1")


def _check_decay(decay: float) -> None:
    if not 0 <= decay < 1:
        raise ValueError(f"{decay:g} is not a decay; it must be 0 for no average, or below 1, such as 0.999")


def _check_noise_scale(noise: float) -> None:
    if not noise > 0:
        raise ValueError(f"{noise:g} is not a scale of noise; it must be above 0")


def _check_ratio_clip(clip: float) -> None:
    if not 0 < clip < 1:
        raise ValueError(f"{clip:g} is not a clipping range; it must be above 0 and below 1, such as 0.01")


@dataclass(frozen=True, kw_only=True)
class ImageRecipe(ComputationOptions):
    """Settings of a training run; the defaults suit a small transformer and a few thousand small images."""

    steps: Annotated[int, Flag("Optimizer steps; rounded up to whole rounds of about 100.", minimum=1)] = 1500
    batch_size: Annotated[int, Flag("Images in a batch.", minimum=1)] = 64
    learning_rate: Annotated[float, Flag("Learning rate after warm-up; large models need 0.0001.", minimum=0)] = 1e-3
    dropout: Annotated[
        float, Flag("Share of prompts that are dropped in training, as guidance requires.", check=_check_dropout)
    ] = 0.1
    ema: Annotated[
        float | None,
        Flag(
            "Keep an exponential moving average of the weights, with this decay per step; 0: the last weights.",
            metavar="DECAY",
            check=_check_decay,
        ),
    ] = 0.999

    @property
    def warm_up(self) -> int:
        """Number of warm-up steps of the learning rate."""
        pace = divide_into_rounds(self.steps)
        return min(WARM_UP, pace.rounds * pace.round_steps // 10)


@dataclass(frozen=True, kw_only=True)
class ObjectiveSettings:
    """Objective of a training run."""

    objective: Annotated[
        ObjectiveName,
        Flag("Flow matching, noise or velocity prediction; a trained model keeps its objective."),
    ] = "flow"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """Settings of image sampling."""

    steps: Annotated[int, Flag("Sampling steps per image.", minimum=1)] = 20
    guidance: Annotated[float, Flag("Scale of classifier-free guidance; 1: none.", minimum=1)] = 2.0
    seed: Annotated[int, Flag("Random seed of the initial noise.", minimum=0, maximum=2**32 - 1)] = 0
    at_once: Annotated[int, Flag("Images drawn together; fewer need less memory.", minimum=1)] = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEvaluationSettings:
    """Rewards and images of an evaluation."""

    images: Annotated[Path, Flag("Folder of metadata.csv and training images, from which rewards are created.")]
    held_out: Annotated[Path, Flag("Folder of images that the model has not seen; their prompts are drawn.")]
    rewards: Annotated[
        tuple[RewardName, ...], Flag("Rewards to compute, with commas.", metavar="REWARDS", parse=reward_names)
    ] = (
        "classifier",
        "frechet",
    )
    reward_weights: Annotated[
        Path | None, Flag("Folder of a CLIP model, for reward clip; nothing is downloaded.", metavar="FOLDER")
    ] = None
    count: Annotated[int | None, Flag("Images to draw.", minimum=2, shown_default="as many as both folders have")] = (
        None
    )
    skip_bad: Annotated[bool, Flag("Leave out images that cannot be used, and list them.")] = False


@dataclass(frozen=True, kw_only=True)
class MonitorSettings:
    """Rewards that monitor a training run, on held-out prompts drawn from the same noise each time."""

    monitor: Annotated[
        tuple[RewardName, ...] | None,
        Flag(
            "Rewards that monitor the training, such as classifier,frechet; the weights with the best first reward are "
            "kept. Needs --held-out.",
            metavar="REWARDS",
            parse=reward_names,
            none_text="none",
        ),
    ] = None
    held_out: Annotated[
        Path | None,
        Flag("Folder of metadata.csv and images that are not for training: prompts to draw, with real images."),
    ] = None
    reward_weights: Annotated[
        Path | None, Flag("Folder of a CLIP model, for reward clip; nothing is downloaded.", metavar="FOLDER")
    ] = None
    monitor_every: Annotated[int, Flag("Steps between evaluations.", minimum=1)] = 100
    monitor_images: Annotated[int, Flag("Images per evaluation.", minimum=2)] = 256
    monitor_steps: Annotated[int, Flag("Sampling steps of evaluations.", minimum=1)] = 20
    monitor_guidance: Annotated[float, Flag("Guidance of evaluations.", minimum=1)] = 2.0
    patience: Annotated[
        int,
        Flag(
            "Stop after this many consecutive evaluations whose reward has lost more than half of its gain or initial "
            "value; 0: never.",
            minimum=0,
        ),
    ] = 3


@dataclass(frozen=True, kw_only=True)
class GrpoRecipe(ComputationOptions):
    """Settings of a tuning run; the gentle defaults suit a model that already draws small images well."""

    reward: Annotated[RewardName, Flag("Reward to increase; it must have a number for each image.")] = "classifier"
    gate: Annotated[RewardName, Flag("Another reward, which must not get worse.")] = "frechet"
    bound: Annotated[float, Flag("How many times worse than at the start the gate may become.", minimum=1)] = 1.3
    gate_every: Annotated[int, Flag("Iterations between evaluations.", minimum=1)] = 5
    gate_images: Annotated[int, Flag("Images per evaluation.", minimum=2)] = 256
    gate_steps: Annotated[int, Flag("Sampling steps of evaluations.", minimum=1)] = 20
    iterations: Annotated[int, Flag("Rounds of drawing and training.", minimum=1)] = 30
    groups: Annotated[int, Flag("Prompts per iteration.", minimum=1)] = 10
    members: Annotated[int, Flag("Images per prompt, which are compared with each other.", minimum=2)] = 12
    draw_steps: Annotated[int, Flag("Sampling steps of training images.", minimum=2)] = 8
    trained_steps: Annotated[int, Flag("How many of these to train on; each is an optimizer step.", minimum=1)] = 4
    noise_scale: Annotated[float, Flag("Scale of the noise in each step.", check=_check_noise_scale)] = 0.7
    guidance: Annotated[float, Flag("Scale of classifier-free guidance; 1: none.", minimum=1)] = 1.0
    learning_rate: Annotated[float, Flag("Learning rate of all steps.", minimum=0)] = 5e-5
    ratio_clip: Annotated[
        float, Flag("Maximum relative change of a step's probability per iteration.", check=_check_ratio_clip)
    ] = 0.01
    divergence: Annotated[float, Flag("Weight of the divergence from the initial model.", minimum=0)] = 0.5
