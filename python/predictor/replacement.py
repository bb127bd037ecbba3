"""Replacing a file whole: readers see the old one or the new one, whenever the machine stops.

Also whether something can be written at all: checked before the work whose result it would hold, which may take hours.
"""

import os
import tempfile
from pathlib import Path

from predictor.errors import ConfigurationError


def replace_file(path: Path, content: bytes) -> None:
    """Write a draft beside the file, flush it to disk, and move it into place, readable for everybody.

    Raises:
        OSError: the folder cannot be written; what was at `path` stays as it was.
    """
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    finally:
        Path(draft).unlink(missing_ok=True)  # after the replacement there is nothing left to remove


def check_file(path: Path) -> None:
    """Refuse early a file that could not be written later.

    Raises:
        ConfigurationError: the path is a folder, or its folder does not exist or cannot be written.
    """
    folder = path.absolute().parent
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; name the file in it")
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {folder} to write {path.name} into; make it first")
    _check_written(folder, path)


def check_folder(path: Path) -> None:
    """Refuse early a folder that could not be written later; neither it nor its parents need exist.

    Raises:
        ConfigurationError: something else is in its place, or the folder that it goes into cannot be written.
    """
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise ConfigurationError(f"{there} is not a folder, so {path} cannot be written; choose another place")
    _check_written(there, path)


def _check_written(folder: Path, path: Path) -> None:
    """Tries to write a file, as rights alone do not tell."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"folder {folder} cannot be written ({error.strerror}), so {path} cannot be; choose another place, or "
            "change the folder's rights"
        ) from error
