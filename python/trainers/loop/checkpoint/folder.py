"""The checkpoint folder: its lock, free space, and atomic creation and removal of checkpoints."""

import errno
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainers.loop.errors import CheckpointError

UNIT = 1000
ADVICE = "free some space, keep fewer checkpoints or choose a folder on another disk"
REASONS = {
    errno.EDQUOT: f"the disk quota of this user is used up; {ADVICE}",
    errno.EFBIG: f"the file is larger than this process or file system may write; {ADVICE}",
    errno.EACCES: "this user may not write there; change the folder's permissions or choose another folder",
    errno.EPERM: "this user may not write there; change the folder's permissions or choose another folder",
    errno.EROFS: "the disk is read-only; mount it writable or choose another folder",
    errno.EIO: "the disk reports an input or output error and may be failing; choose a folder on another disk",
    errno.ENOENT: "the folder does not exist any more; was it removed while the training ran?",
    errno.ENOTDIR: "something on the path is a file, not a folder; choose another folder",
    errno.EEXIST: "there is a file of that name; choose another folder",
}

META = "meta.json"
STATE = "state.pt"
SUFFIX = ".safetensors"

DRAFT = ".draft-"
REMOVED = ".removed-"
SEARCHABLE = 0o755
PAUSES_SECONDS = (0.05, 0.2, 0.8) if sys.platform == "win32" else ()
_NAME = re.compile(r"window-(\d{9,})(?:-(\d+))?")


class DamagedError(CheckpointError):
    """A checkpoint whose files are missing, changed or unreadable; the message says which and how."""


@dataclass(frozen=True, slots=True, order=True)
class CheckpointEntry:
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


def entries(folder: Path) -> list[CheckpointEntry]:
    """All checkpoints, oldest first; empty if the folder is missing.

    Raises:
        OSError: The folder cannot be read.
    """
    if not folder.exists():
        return []
    named = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    return sorted(CheckpointEntry(int(name[1]), int(name[2] or 1), path) for name, path in named if name)


def next_entry(folder: Path, windows: int) -> CheckpointEntry:
    """A name for a checkpoint after that many windows that no other has: the present one stays until this stands."""
    revision = max((entry.revision for entry in entries(folder) if entry.windows == windows), default=0) + 1
    suffix = "" if revision == 1 else f"-{revision}"
    return CheckpointEntry(windows, revision, folder / f"window-{windows:09d}{suffix}")


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


def publish(draft_path: Path, entry: CheckpointEntry) -> None:
    """Turn a complete draft into a checkpoint, so that it is there after a power cut, or not at all.

    Raises:
        OSError: It cannot be renamed.
    """
    flush_folder(draft_path)
    move(draft_path, entry.path, PAUSES_SECONDS)
    flush_folder(entry.path.parent)


def remove(entry: CheckpointEntry) -> None:
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


if sys.platform == "win32":
    import msvcrt

    _FAR_AWAY = 1 << 30  # the locked byte cannot be read by others, the name of the holder must be

    def _try_lock(handle: int) -> bool:
        os.lseek(handle, _FAR_AWAY, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True
else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock file; the system lets it go when this process ends, however it ends.

    Raises:
        CheckpointError: Another process or another training of this one holds it.
        OSError: The file cannot be written or the file system has no locks.
    """
    with path.open("a+b", buffering=0) as file:
        if not _try_lock(file.fileno()):
            holder = path.read_text(encoding="utf-8", errors="replace") or "another process"
            raise CheckpointError(
                f"{path.parent} is in use by {holder}: two trainings cannot write into the same folder; wait "
                "for the other to end, or choose another folder"
            )
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=file.close)  # a data worker that outlives this process must not hold it
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
        try:
            yield
        finally:
            file.truncate(0)


def check_space(folder: Path, needed: int) -> None:
    """Check that a checkpoint of `needed` bytes fits.

    Raises:
        CheckpointError: It does not.
        OSError: Its free space cannot be read.
    """
    if needed > shutil.disk_usage(folder).free:
        raise full(folder, needed)


def full(folder: Path, needed: int) -> CheckpointError:
    """The error of a disk with too little room.

    Raises:
        OSError: Its free space cannot be read.
    """
    free = shutil.disk_usage(folder).free
    return CheckpointError(
        f"disk full: the checkpoint needs {shown(needed)}, {folder} has {shown(free)} free; {ADVICE}; earlier "
        "checkpoints are untouched"
    )


def reason(error: OSError) -> str:
    """What went wrong and what to do."""
    known = REASONS.get(error.errno) if error.errno is not None else None
    return known or error.strerror or str(error)


def shown(size: int) -> str:
    """A number of bytes as a person reads it."""
    value, units = float(size), ["B", "kB", "MB", "GB"]
    while value >= UNIT and len(units) > 1:
        value /= UNIT
        units.pop(0)
    return f"{value:.{0 if units[0] == 'B' else 1}f} {units[0]}"
