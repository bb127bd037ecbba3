"""Room on the disk, and what the system's errors mean in a person's words."""

import errno
import shutil
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


def check_space(folder: Path, needed: int) -> None:
    """Check that a checkpoint of `needed` bytes fits.

    Raises:
        CheckpointError: It does not.
        OSError: The folder cannot be asked.
    """
    if needed > shutil.disk_usage(folder).free:
        raise full(folder, needed)


def full(folder: Path, needed: int) -> CheckpointError:
    """The error of a disk with too little room.

    Raises:
        OSError: The folder cannot be asked.
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
