"""Folders of trainings, rounds of steps, and atomic creation of folders."""

import shutil
import tempfile
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


def check_free(folder: Path, refusal: type[MediaError]) -> None:
    """Refuse a place that is taken; for what takes hours, before it begins.

    Raises:
        refusal: something is there.
    """
    if folder.exists():
        raise refusal(f"{folder} exists already; name a folder that does not, or remove it")


def own_draft(folder: Path) -> Path:
    """A new empty folder beside another, which no other process writes into.

    Raises:
        OSError: it cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    draft.chmod(0o755)
    return draft


def next_draft(folder: Path) -> Path:
    """A free place beside a folder that one process at a time writes; what a kill has left there is removed."""
    draft = folder.parent / f".{folder.name}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    return draft


@contextmanager
def appearing(folder: Path, draft: Path) -> Generator[Path]:
    """A draft, which becomes the folder if nothing goes wrong inside, and else is removed.

    Raises:
        OSError: it cannot be renamed.
    """
    try:
        yield draft
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # after the renaming there is nothing left to remove


@contextmanager
def writing(folder: Path, refusal: type[MediaError]) -> Generator[None]:
    """Tells of a place that cannot be written.

    Raises:
        refusal: in the place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise refusal(
            f"{folder} cannot be written ({error.strerror}); choose another place, or make room there"
        ) from error
