"""Replacing a file whole: readers see the old one or the new one, whenever the machine stops."""

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a draft beside the file, flush it to disk, and move it into place, readable for everybody.

    Raises:
        OSError: the folder cannot be written; what stood at `path` stays as it was.
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
        Path(draft).unlink(missing_ok=True)  # after the replacement there is none
