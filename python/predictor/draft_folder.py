"""Folders that appear with all of their files or not at all, also if a process is killed or the power fails."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

DRAFT: Final = ".draft-"

_FOLDER_MODE: Final = 0o755
_PAUSES_SECONDS: Final = (0.05, 0.2, 0.8) if sys.platform == "win32" else ()


@contextmanager
def publish_folder(folder: Path, *, is_durable: bool = True) -> Generator[Path]:
    """Yield an empty draft folder, which gets its final name at the end of the context.

    If the context ends with an error, the draft is removed. A process that is killed leaves it; see `remove_drafts`.

    Args:
        folder: The folder to create; its parents may be missing.
        is_durable: Whether all files are flushed to the disk first. Without it, files may be incomplete after a power
            failure, but thousands of small files are written much faster.

    Raises:
        OSError: The draft cannot be created, flushed or renamed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{DRAFT}{folder.name}-", dir=folder.parent))
    try:
        yield draft
        draft.chmod(_FOLDER_MODE)
        for path in (*sorted(draft.rglob("*"), reverse=True), draft) if is_durable else ():
            flush(path)
        rename(draft, folder)
        if is_durable:
            flush(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # no effect after the rename


def remove_drafts(parent: Path, name: str | None = None) -> None:
    """Remove the drafts that killed processes have left in a folder; only its one writer may call this.

    Args:
        parent: The folder of the drafts.
        name: Remove only the drafts of the folder of this name; None removes all.

    Raises:
        OSError: A draft cannot be removed.
    """
    for path in parent.iterdir():
        if path.name.startswith(DRAFT) and name in (None, path.name.removeprefix(DRAFT).rpartition("-")[0]):
            shutil.rmtree(path)


def rename(source: Path, target: Path, pauses: Sequence[float] = _PAUSES_SECONDS) -> None:
    """Rename, and retry after each pause (seconds), because a virus scanner may block it on Windows.

    Raises:
        OSError: All attempts failed.
    """
    for pause in pauses:
        try:
            source.rename(target)
        except PermissionError:
            time.sleep(pause)
        else:
            return
    source.rename(target)


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk.

    Raises:
        OSError: It cannot be written.
    """
    if path.is_dir() and os.name != "posix":
        return  # not possible there
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)  # a copied file may be read-only
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
