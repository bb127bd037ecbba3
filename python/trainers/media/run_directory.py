"""Folders of training runs, and rounds of steps."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path
from typing import Any, Final

from trainers.loop import Checkpoints, launched_rank
from trainers.media.errors import MediaError
from trainers.options import RunOptions

ROUND: Final = 100
"""Approximate steps per round; each round ends with a report and a checkpoint."""

CHECKPOINTS: Final = "checkpoints"


@dataclass(frozen=True, slots=True)
class TrainingRounds:
    """Rounds of equal length.

    Attributes:
        rounds: Number of rounds, 1 or more.
        round_steps: Steps of each round.
    """

    rounds: int
    round_steps: int


def divide_into_rounds(steps: int) -> TrainingRounds:
    """Divide steps into whole rounds, rounding up."""
    rounds = max(1, round(steps / ROUND))
    return TrainingRounds(rounds, ceil(steps / rounds))


def locate_run(out: Path) -> Path:
    """Folder for checkpoints and log of the run that writes `out`."""
    return out.with_name(f"{out.name}.run")


def create_checkpoints(
    run: Path, options: RunOptions, settings: Mapping[str, Any], refusal: type[MediaError]
) -> Checkpoints:
    """Checkpoints of a training run, identified by its settings.

    Raises:
        refusal: Checkpoints exist, and `options.resume` is False.
        CheckpointError: Another run uses the folder.
    """
    seconds = options.checkpoint_seconds
    checkpoints = Checkpoints(
        run / CHECKPOINTS,
        keep=options.keep,
        every_seconds=seconds if isfinite(seconds) else None,
        settings=settings,
    )
    if not checkpoints.is_empty and not options.resume:
        if launched_rank() == 0:
            with checkpoints.open():
                pass  # raises an error that names the run if one is using the folder
        raise refusal(
            f"{checkpoints.folder} holds checkpoints of a stopped run; continue it (--resume), or remove the folder"
        )
    return checkpoints


def encode_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON, with infinity as null."""
    return {name: None if value == float("inf") else value for name, value in values.items()}


def check_free(folder: Path, refusal: type[MediaError]) -> None:
    """Check before hours of work that a folder does not exist yet.

    Raises:
        refusal: The folder exists.
    """
    if folder.exists():
        raise refusal(f"{folder} already exists; choose another folder, or remove it")


@contextmanager
def convert_write_errors(folder: Path, refusal: type[MediaError]) -> Generator[None]:
    """Convert OSError into `refusal`.

    Raises:
        refusal: The folder cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise refusal(f"{folder} cannot be written ({error.strerror}); choose another folder, or free space") from error
