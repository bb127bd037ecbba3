"""A folder that a person names as an artifact: a refusal says which one it is, and which one may be meant."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from predictor.artifact.folder import AGAIN, is_artifact
from predictor.artifact.manifest import MANIFEST
from predictor.errors import ArtifactError

_MOST_MEANT: Final = 3


@contextmanager
def named(folder: Path) -> Generator[None]:
    """While an artifact is read whose path a person wrote: errors begin with the path.

    A server's messages name models, never paths, so its own reading is without this.

    Raises:
        ArtifactError: the folder holds no artifact; or what the block raises, after the folder's path.
    """
    _check(folder)
    try:
        yield
    except ArtifactError as error:
        joint = "/" if "file" in error.metadata else ": "
        raise ArtifactError(f"{folder}{joint}{error.message}", metadata=error.metadata) from error


def _check(folder: Path) -> None:
    if not folder.is_dir():
        raise ArtifactError(f"{folder} is not a folder, and so not an artifact{_question(folder.parent)}")
    if is_artifact(folder):
        return
    advice = _question(folder) or f"; {AGAIN}"
    raise ArtifactError(f"{folder} holds no {MANIFEST}, and so is not an artifact{advice}", metadata={"file": MANIFEST})


def _question(folder: Path) -> str:
    """Which artifacts may be meant, the newest first: versions in the folder, or in those inside; empty for none."""
    meant = _versions(folder) or [version for line in _folders(folder) for version in _versions(line)[:1]]
    shown = [str(version) for version in meant[:_MOST_MEANT]]
    return f"; did you mean {' or '.join(shown)}?" if shown else ""


def _versions(line: Path) -> list[Path]:
    """Artifacts `line/1`, `line/2` and so on, the newest first."""
    numbered = [path for path in _folders(line) if path.name.isdecimal() and is_artifact(path)]
    return sorted(numbered, key=lambda path: int(path.name), reverse=True)


def _folders(folder: Path) -> list[Path]:
    """Those inside a folder, by name; none where it cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
