"""Folders that appear whole or not at all, where nothing is yet: corpora, caches, judges, models and voices."""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from trainers.media.errors import MediaError


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
