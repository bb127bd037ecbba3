"""The settings of a speech training, each with its flag."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, Literal

from predictor.flags import Flag
from trainers.options import Computation

Size = Literal["fast", "small", "base"]
Durations = Literal["deterministic", "stochastic"]

LEARNING_RATES: Final[Mapping[Size, float]] = MappingProxyType({"fast": 2e-3, "small": 1e-3, "base": 2e-4})
"""Of new voices; the larger, the lower, to the paper's."""

FINE_TUNING: Final = 2e-5
"""The learning rate for a voice that has been trained before, as MMS voices are."""

CORRECTING: Final = 5e-4
"""The learning rate for a small voice that learns from corrections."""


@dataclass(frozen=True, kw_only=True)
class SpeechRecipe(Computation):
    """How a voice is trained; the defaults suit a new small voice on an hour of recordings or less."""

    steps: Annotated[
        int,
        Flag("Optimizer steps; rounded up to whole rounds of about 100, after each of which it is scored.", minimum=1),
    ] = 3000
    batch_size: Annotated[int, Flag("Clips in a batch at most.", minimum=1)] = 12
    batch_seconds: Annotated[float, Flag("Seconds of speech in a batch at most, padding included.", minimum=1)] = 90.0
    learning_rate: Annotated[
        float, Flag("At the start; it halves until the end. Size small 0.001, base 0.0002, --from 0.00002.", minimum=0)
    ] = 2e-3
    slice_frames: Annotated[
        int, Flag("Frames of each clip that are decoded in a step; more costs time and memory.", minimum=8)
    ] = 32
    adversarial_from: Annotated[
        int | None,
        Flag(
            "The step from which discriminators judge what is decoded: crisper, and twice as slow; without: never.",
            minimum=0,
        ),
    ] = None
    weight_norm: Annotated[bool, Flag("Train the decoder weight-normed, as large voices are.")] = False
    workers: Annotated[int, Flag("Processes that read clips ahead; 0 reads between the steps.", minimum=0)] = 0
    clip: Annotated[
        float, Flag("Gradients longer than this are shortened to it; inf: never.", metavar="NORM", minimum=0)
    ] = 50.0


def _share(share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"{share:g} is not a share; it must be above 0 and below 1, such as 0.4")


@dataclass(frozen=True, kw_only=True)
class FeedbackRecipe(SpeechRecipe):
    """How a voice learns from corrections; the defaults suit a small voice that was trained on an hour or less."""

    share: Annotated[
        float, Flag("How likely a correction is in each draw; the others repeat the corpus.", check=_share)
    ] = 0.4
    steps: Annotated[
        int,
        Flag("Optimizer steps; rounded up to whole rounds of about 100, after each of which it is scored.", minimum=1),
    ] = 200
    learning_rate: Annotated[
        float, Flag("At the start; it halves until the end. A large voice wants less: 0.00002.", minimum=0)
    ] = CORRECTING


@dataclass(frozen=True, kw_only=True)
class VoiceSizes:
    """What a new voice is made of."""

    size: Annotated[
        Size, Flag("Fast for trying, small, or base as in the paper; with --from, of the discriminators alone.")
    ] = "fast"
    durations: Annotated[
        Durations, Flag("The predictor of durations: deterministic learns from minutes, stochastic needs hours.")
    ] = "deterministic"
