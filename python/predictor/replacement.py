"""Atomic replacement of files, and checks that an output can be written before the hours of work that produce it."""

import os
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Final

from predictor.errors import ConfigurationError
from predictor.file_lock import claim_file

_DRAFT: Final = ".draft"
_MAX_DRAFT_AGE_S: Final = 3600
"""Older drafts are leftovers of killed processes."""


def replace_file(path: Path, content: bytes) -> None:
    """Write a file with mode 644 atomically: readers see the old content or the new, even after a crash.

    A process that is killed leaves its draft; a write removes the drafts of its file that are older than an hour.

    Raises:
        OSError: the folder is not writable; the file at `path` is unchanged.
    """
    for old in path.parent.glob(f".{escape(path.name)}.*{_DRAFT}"):
        with suppress(OSError):  # another process removed it, or its owner is another user
            if time.time() - old.stat().st_mtime > _MAX_DRAFT_AGE_S:
                old.unlink()
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_DRAFT)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    finally:
        Path(draft).unlink(missing_ok=True)  # missing after a replacement


def check_file(path: Path) -> None:
    """Check that a file can be written.

    Raises:
        ConfigurationError: the path is a folder, or its folder does not exist or is not writable.
    """
    folder = path.absolute().parent
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; pass the path of a file")
    if not folder.is_dir():
        raise ConfigurationError(f"folder {folder} for {path.name} does not exist; create it first")
    _check_writable(folder, path)


def check_folder(path: Path) -> None:
    """Check that a folder can be written or created; its parents may be missing as well.

    Raises:
        ConfigurationError: the path or a parent is not a folder, or the nearest existing folder is not writable.
    """
    nearest = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        raise ConfigurationError(f"{nearest} is not a folder, so {path} cannot be written; choose another path")
    _check_writable(nearest, path)


def _check_writable(folder: Path, path: Path) -> None:
    """Write a temporary file, since permissions are not sufficient evidence."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"folder {folder} is not writable ({error.strerror}), so {path} cannot be written; choose another path, or "
            "change the folder's permissions"
        ) from error


@contextmanager
def claim_output(path: Path) -> Generator[None]:
    """Let only one process write a folder or a file in this context.

    Raises:
        ConfigurationError: another process writes to `path`.
    """
    with claim_file(path / ".lock" if path.is_dir() else path.with_name(f"{path.name}.lock")) as holder:
        if holder:
            raise ConfigurationError(f"{path} is in use by {holder}; wait until it ends, or choose another --out")
        yield
