"""The settings of a training on images, each with its flag."""

from dataclasses import dataclass
from math import ceil
from typing import Annotated, Final, Literal

from predictor.flags import Flag
from trainers.options import Computation

ObjectiveName = Literal["flow", "epsilon", "velocity"]

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
        float, Flag("After the first steps, which rise to it. Large models want 0.0001.", minimum=0)
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
