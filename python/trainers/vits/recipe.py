"""Settings of speech training, each with its flag."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, Literal

from predictor.flags import Flag
from trainers.options import ComputationOptions

Size = Literal["fast", "small", "base"]
Durations = Literal["deterministic", "stochastic"]

LEARNING_RATES: Final[Mapping[Size, float]] = MappingProxyType({"fast": 2e-3, "small": 1e-3, "base": 2e-4})
"""Learning rates of new voices; larger voices need lower ones, down to the paper's."""

FINE_TUNING: Final = 2e-5
"""Learning rate for fine-tuning a trained voice, such as MMS."""

CORRECTING: Final = 5e-4
"""Learning rate for correcting a small voice."""


@dataclass(frozen=True, kw_only=True)
class SpeechRecipe(ComputationOptions):
    """Training settings; the defaults suit a new small voice on up to an hour of recordings."""

    steps: Annotated[
        int,
        Flag("Optimizer steps; rounded up to whole rounds of about 100, after each of which it is scored.", minimum=1),
    ] = 3000
    batch_size: Annotated[int, Flag("Maximum clips per batch.", minimum=1)] = 12
    batch_seconds: Annotated[float, Flag("Maximum seconds of speech per batch, padding included.", minimum=1)] = 90.0
    learning_rate: Annotated[
        float, Flag("Initial rate; halves by the end. Size small 0.001, base 0.0002, --from 0.00002.", minimum=0)
    ] = 2e-3
    slice_frames: Annotated[
        int, Flag("Frames of each clip decoded per step; more costs time and memory.", minimum=8)
    ] = 32
    adversarial_from: Annotated[
        int | None,
        Flag(
            "First step with adversarial training: crisper sound at half the speed; default: never.",
            minimum=0,
        ),
    ] = None
    weight_norm: Annotated[bool, Flag("Train the decoder with weight norm, as large voices are.")] = False
    workers: Annotated[int, Flag("Processes that prefetch clips; 0 reads between steps.", minimum=0)] = 0
    clip: Annotated[float, Flag("Clip gradients to this norm; inf: never.", metavar="NORM", minimum=0)] = 50.0


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"{share:g} is not a share; it must be above 0 and below 1, such as 0.4")


@dataclass(frozen=True, kw_only=True)
class FeedbackRecipe(SpeechRecipe):
    """Settings for correcting a voice; the defaults suit a small voice trained on up to an hour of recordings."""

    share: Annotated[
        float, Flag("Probability that a drawn clip is a correction; the others repeat the corpus.", check=_check_share)
    ] = 0.4
    steps: Annotated[
        int,
        Flag("Optimizer steps; rounded up to whole rounds of about 100, after each of which it is scored.", minimum=1),
    ] = 200
    learning_rate: Annotated[
        float, Flag("Initial rate; halves by the end. A large voice needs less: 0.00002.", minimum=0)
    ] = CORRECTING


@dataclass(frozen=True, kw_only=True)
class VoiceSizes:
    """Architecture of a new voice."""

    size: Annotated[
        Size, Flag("fast for trying, small, or base as in the paper; with --from, only of the discriminators.")
    ] = "fast"
    durations: Annotated[
        Durations, Flag("Duration predictor: deterministic learns from minutes, stochastic needs hours.")
    ] = "deterministic"
