"""The settings of a training on images, each with its flag."""

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Annotated, Final, Literal

from predictor.flags import Flag
from trainers.options import Computation

ObjectiveName = Literal["flow", "epsilon", "velocity"]
RewardName = Literal["classifier", "ssim", "psnr", "frechet", "clip"]

ROUND: Final = 100
"""About so many steps lie between two reports of a whole round, after each of which there is a checkpoint."""

WARM_UP: Final = 50
"""Steps until the learning rate is full, or a tenth of all steps where those are fewer."""


def _share(value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{value:g} is not a share of prompts to drop; it must be 0 or more and below 1")


def _decay(decay: float) -> None:
    if not 0 <= decay < 1:
        raise ValueError(f"{decay:g} is not a decay; it must be 0 for no average, or below 1, such as 0.999")


@dataclass(frozen=True, kw_only=True)
class ImageRecipe(Computation):
    """How a model learns to draw; the defaults suit a small transformer on some thousand small images."""

    steps: Annotated[int, Flag("Optimizer steps; rounded up to whole rounds of about 100.", minimum=1)] = 1500
    batch_size: Annotated[int, Flag("Images in a batch.", minimum=1)] = 64
    learning_rate: Annotated[
        float, Flag("After the first steps; it falls to 0 on half a cosine wave. Large models want 0.0001.", minimum=0)
    ] = 1e-3
    dropout: Annotated[
        float, Flag("Share of prompts that are dropped, so that guidance has something to lead from.", check=_share)
    ] = 0.1
    ema: Annotated[
        float | None,
        Flag(
            "Keep an exponential moving average of the weights, with this decay per step; 0: the last weights.",
            metavar="DECAY",
            check=_decay,
        ),
    ] = 0.999

    @property
    def rounds(self) -> int:
        """How often a whole round is reported."""
        return max(1, round(self.steps / ROUND))

    @property
    def round_steps(self) -> int:
        """Steps of a round."""
        return ceil(self.steps / self.rounds)

    @property
    def all_steps(self) -> int:
        """Those of all rounds."""
        return self.rounds * self.round_steps

    @property
    def warm_up(self) -> int:
        """Steps until the learning rate is full."""
        return min(WARM_UP, self.all_steps // 10)


@dataclass(frozen=True, kw_only=True)
class Build:
    """What a model is to learn."""

    objective: Annotated[
        ObjectiveName,
        Flag("Flow matching; the noise; or the velocity. A model that has a scheduler goes on with that one's."),
    ] = "flow"


@dataclass(frozen=True, kw_only=True)
class Watching:
    """How a model that trains is watched by rewards: what it draws of held-out prompts, always from the same noise."""

    monitor: Annotated[
        RewardName | None,
        Flag("Reward to watch the training by: the best weights by it are kept. Needs --held-out.", metavar="REWARD"),
    ] = None
    held_out: Annotated[
        Path | None,
        Flag("Folder of metadata.csv and images that are not trained on: prompts to draw, and what to be like."),
    ] = None
    reward_weights: Annotated[
        Path | None, Flag("Folder of a CLIP model, for reward clip; nothing is downloaded.", metavar="FOLDER")
    ] = None
    monitor_every: Annotated[int, Flag("Steps from one look to the next.", minimum=1)] = 100
    monitor_images: Annotated[int, Flag("Images that are drawn at a look.", minimum=2)] = 256
    monitor_steps: Annotated[int, Flag("How many times the network is asked for them.", minimum=1)] = 20
    monitor_guidance: Annotated[float, Flag("Their guidance.", minimum=1)] = 2.0
    patience: Annotated[
        int,
        Flag(
            "Looks in a row that have lost more than half of what the reward had gained, after which the training is "
            "stopped; 0: never.",
            minimum=0,
        ),
    ] = 3
