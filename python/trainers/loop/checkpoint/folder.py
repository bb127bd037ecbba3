"""The checkpoint folder: its lock, its free space, and the names and removal of checkpoints."""

import errno
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from predictor.draft_folder import flush, remove_drafts, rename
from predictor.file_lock import claim_file
from trainers.loop.errors import CheckpointError

UNIT = 1000
ADVICE = "free some space, keep fewer checkpoints or choose a folder on another disk"
REASONS = {
    errno.EDQUOT: f"the disk quota of this user is used up; {ADVICE}",
    errno.EFBIG: f"the file exceeds the size limit of this process or the file system; {ADVICE}",
    errno.EACCES: "this user may not write there; change the folder's permissions or choose another folder",
    errno.EPERM: "this user may not write there; change the folder's permissions or choose another folder",
    errno.EROFS: "the disk is read-only; mount it writable or choose another folder",
    errno.EIO: "the disk reports an input or output error and may be failing; choose a folder on another disk",
    errno.ENOENT: "the folder no longer exists; was it removed during the training?",
    errno.ENOTDIR: "a part of the path is a file, not a folder; choose another folder",
    errno.EEXIST: "a file of that name exists; choose another folder",
}

META = "meta.json"
STATE = "state.pt"
SUFFIX = ".safetensors"

REMOVED = ".removed-"
_NAME = re.compile(r"window-(\d{9,})(?:-(\d+))?")


class DamagedError(CheckpointError):
    """A checkpoint whose files are missing, changed or unreadable; the message names the file and the problem."""


@dataclass(frozen=True, slots=True, order=True)
class CheckpointEntry:
    """A checkpoint by its name; entries are ordered from oldest to newest.

    Attributes:
        windows: Number of windows since the start of the training.
        revision: 1, or more if the window was saved again at the end of an epoch or after a resume.
        path: The folder of the checkpoint.
    """

    windows: int
    revision: int
    path: Path


def create_folder(folder: Path) -> None:
    """Create the folder if it is missing.

    Raises:
        OSError: It cannot be created.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True)
        flush(folder.parent)


def list_entries(folder: Path) -> list[CheckpointEntry]:
    """Return all checkpoints, oldest first; empty if the folder is missing.

    Raises:
        OSError: The folder cannot be read.
    """
    if not folder.exists():
        return []
    named = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    return sorted(CheckpointEntry(int(name[1]), int(name[2] or 1), path) for name, path in named if name)


def next_entry(folder: Path, windows: int) -> CheckpointEntry:
    """Return an unused entry for a checkpoint after that many windows; an existing one of that window is kept."""
    revision = max((entry.revision for entry in list_entries(folder) if entry.windows == windows), default=0) + 1
    suffix = "" if revision == 1 else f"-{revision}"
    return CheckpointEntry(windows, revision, folder / f"window-{windows:09d}{suffix}")


def remove(entry: CheckpointEntry) -> None:
    """Remove a checkpoint; an interrupted removal does not leave a damaged checkpoint.

    Raises:
        OSError: It cannot be removed.
    """
    hidden = entry.path.with_name(f"{REMOVED}{entry.path.name}")
    rename(entry.path, hidden)
    shutil.rmtree(hidden)


def remove_leftovers(folder: Path) -> None:
    """Remove what interrupted saves and removals have left; only the holder of the folder's lock may call it.

    Raises:
        OSError: A folder cannot be removed.
    """
    remove_drafts(folder)
    for path in folder.glob(f"{REMOVED}*"):
        shutil.rmtree(path)


@contextmanager
def lock(path: Path) -> Generator[None]:
    """Hold the lock file; the system releases it when this process ends for any reason.

    Raises:
        CheckpointError: Another process, or another training in this one, holds it.
        OSError: The file cannot be written, or the file system does not support locks.
    """
    with claim_file(path) as holder:
        if holder:
            raise CheckpointError(
                f"{path.parent} is in use by {holder}: two trainings cannot write into the same folder; wait "
                "for the other to end, or choose another folder"
            )
        yield


def check_space(folder: Path, needed: int) -> None:
    """Check that a checkpoint of `needed` bytes fits.

    Raises:
        CheckpointError: It does not fit.
        OSError: The free space cannot be read.
    """
    if needed > shutil.disk_usage(folder).free:
        raise make_disk_full_error(folder, needed)


def make_disk_full_error(folder: Path, needed: int) -> CheckpointError:
    """Return the error for a disk with too little space.

    Raises:
        OSError: The free space cannot be read.
    """
    free = shutil.disk_usage(folder).free
    return CheckpointError(
        f"disk full: the checkpoint needs {format_bytes(needed)}, {folder} has {format_bytes(free)} free; {ADVICE}; "
        "earlier checkpoints are unchanged"
    )


def describe_error(error: OSError) -> str:
    """Describe an error and what to do about it."""
    reason = REASONS.get(error.errno) if error.errno is not None else None
    return reason or error.strerror or str(error)


def format_bytes(size: int) -> str:
    """Format a number of bytes, such as `1.5 GB`."""
    value, units = float(size), ["B", "kB", "MB", "GB"]
    while value >= UNIT and len(units) > 1:
        value /= UNIT
        units.pop(0)
    return f"{value:.{0 if units[0] == 'B' else 1}f} {units[0]}"
