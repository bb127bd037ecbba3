"""The folder of all checkpoints: its names, and how a checkpoint appears in it and leaves it, whole each time."""

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DRAFT = ".draft-"
REMOVED = ".removed-"
SEARCHABLE = 0o755
PAUSES_SECONDS = (0.05, 0.2, 0.8) if sys.platform == "win32" else ()
_NAME = re.compile(r"window-(\d{9,})(?:-(\d+))?")


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A checkpoint by its name; the newest is the greatest.

    Attributes:
        windows: All windows since the start of the training.
        revision: 1, and more for a window that was saved again, at an epoch's end or after a resume.
        path: Its folder.
    """

    windows: int
    revision: int
    path: Path


def make(folder: Path) -> None:
    """Make the folder if it is not there.

    Raises:
        OSError: It cannot be made.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True)
        flush_folder(folder.parent)


def entries(folder: Path) -> list[Entry]:
    """All checkpoints, oldest first; none where there is no folder.

    Raises:
        OSError: The folder cannot be read.
    """
    if not folder.exists():
        return []
    found = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    return sorted(Entry(int(name[1]), int(name[2] or 1), path) for name, path in found if name)


def next_entry(folder: Path, windows: int) -> Entry:
    """The name for a checkpoint after so many windows, which no other has: the present one stays until this stands."""
    revision = max((entry.revision for entry in entries(folder) if entry.windows == windows), default=0) + 1
    suffix = "" if revision == 1 else f"-{revision}"
    return Entry(windows, revision, folder / f"window-{windows:09d}{suffix}")


@contextmanager
def draft(folder: Path) -> Generator[Path]:
    """A new folder under a name that is no checkpoint's; what is left of it at the end is removed.

    Raises:
        OSError: It cannot be made.
    """
    path = Path(tempfile.mkdtemp(prefix=DRAFT, dir=folder))
    try:
        path.chmod(SEARCHABLE)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)  # nothing is left after publish()


def publish(draft_path: Path, entry: Entry) -> None:
    """Turn a complete draft into a checkpoint, so that it is there after a power cut, or not at all.

    Raises:
        OSError: It cannot be renamed.
    """
    flush_folder(draft_path)
    move(draft_path, entry.path, PAUSES_SECONDS)
    flush_folder(entry.path.parent)


def remove(entry: Entry) -> None:
    """Remove a checkpoint; one whose removal is cut short is not taken for a damaged one.

    Raises:
        OSError: It cannot be removed.
    """
    hidden = entry.path.with_name(f"{REMOVED}{entry.path.name}")
    move(entry.path, hidden, PAUSES_SECONDS)
    shutil.rmtree(hidden)


def sweep(folder: Path) -> None:
    """Remove what processes left that ended while they saved or removed; only for the holder of the folder's lock.

    Raises:
        OSError: Something cannot be removed.
    """
    for path in folder.iterdir():
        if path.name.startswith((DRAFT, REMOVED)):
            shutil.rmtree(path)


def move(source: Path, target: Path, pauses: Sequence[float]) -> None:
    """Rename; again after each pause (seconds) where Windows refuses because a virus scanner is looking.

    Raises:
        OSError: It was refused each time.
    """
    for pause in pauses:
        try:
            source.rename(target)
        except PermissionError:
            time.sleep(pause)
        else:
            return
    source.rename(target)


def flush_folder(folder: Path) -> None:
    """Put the names in a folder on the disk, where the system offers that."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
