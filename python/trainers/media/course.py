"""The course of a training: its steps in rounds, and the folder beside its result from which it can go on.

OUT.run/checkpoints    what a stopped training goes on from
OUT.run/reports.jsonl  its log, beside `tensorboard/` and `profile/`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path
from typing import Any, Final

from trainers.loop import Checkpoints, launched_rank
from trainers.media.errors import MediaError
from trainers.options import RunOptions

ROUND: Final = 100
"""About so many steps are a round, after each of which there is a report and a checkpoint."""

CHECKPOINTS: Final = "checkpoints"


@dataclass(frozen=True, slots=True)
class TrainingRounds:
    """How steps are cut into rounds of one length.

    Attributes:
        rounds: 1 or more.
        round_steps: of each of them.
    """

    rounds: int
    round_steps: int


def pace_of(steps: int) -> TrainingRounds:
    """The whole rounds that hold so many steps, or a few more."""
    rounds = max(1, round(steps / ROUND))
    return TrainingRounds(rounds, ceil(steps / rounds))


def run_folder(out: Path) -> Path:
    """Where the training of what will be in `out` keeps checkpoints and log."""
    return out.with_name(f"{out.name}.run")


def checkpoints_in(
    run: Path, options: RunOptions, settings: Mapping[str, Any], refusal: type[MediaError]
) -> Checkpoints:
    """The checkpoints in the folder of a training, which know it by its settings.

    Raises:
        refusal: there are some, and nobody asked to go on from them.
        CheckpointError: another training holds the folder.
    """
    seconds = options.checkpoint_seconds
    checkpoints = Checkpoints(
        run / CHECKPOINTS,
        keep=options.keep,
        every_seconds=seconds if isfinite(seconds) else None,
        settings=settings,
    )
    if checkpoints.any and not options.resume:
        if launched_rank() == 0:
            with checkpoints.open():
                pass  # a training that runs holds the folder, and then this is an error that names it
        raise refusal(
            f"{checkpoints.folder} holds checkpoints of a training that was stopped; continue it (--resume), or remove "
            "the folder"
        )
    return checkpoints


def as_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON, which has no infinity: null stands for it."""
    return {name: None if value == float("inf") else value for name, value in values.items()}
