"""Reads metadata.csv: one line per image, `file|prompt`, in UTF-8.

A heading is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainers.dit.errors import DataError
from trainers.media.metadata import (
    FILE,
    MetadataRow,
    RejectedFile,
    has_control,
    leaves,
    lines_of,
    normal_text,
    rows_of,
    sorted_out,
)

COLUMNS: Final = 2
CONDITIONS: Final = ("source_images", "source_image", "source")
"""What others call images that an image is made of."""


@dataclass(frozen=True, slots=True)
class CaptionLine:
    """What a line says.

    Attributes:
        file: path of the image below the folder.
        prompt: in composed characters, with one blank for any white space.
    """

    file: str
    prompt: str


def read_metadata(source: Path) -> tuple[tuple[CaptionLine, ...], tuple[RejectedFile, ...]]:
    """The lines of `source/metadata.csv`, and those that say nothing usable.

    Raises:
        DataError: There is no such file, it is empty, not in UTF-8, or gives images as a condition.
    """
    path = source / FILE
    rows = rows_of(path, _content(source), DataError)
    if rows and rows[0].cells[:1] == ("file",):
        _check_heading(path, rows[0].cells)
        rows = rows[1:]
    if not rows:
        raise DataError(f"{path} names no image; write a line per image: file|prompt")
    return sorted_out(rows, _file, _problem, lambda row: CaptionLine(_file(row), normal_text(row.cells[1])))


def _check_heading(path: Path, names: Sequence[str]) -> None:
    conditions = [name for name in names if name.lower() in CONDITIONS]
    if conditions:
        raise DataError(
            f"{path} has a column {conditions[0]}: images as a condition are not supported, a prompt is all that an "
            "image is made from; leave the column out"
        )
    if tuple(names) != ("file", "prompt"):
        raise DataError(f"{path} has the columns {'|'.join(names)}; they must be file|prompt")


def _content(source: Path) -> bytes:
    """The bytes of the file."""
    path = source / FILE
    if not source.is_dir():
        raise DataError(f"there is no folder {source}; name the one that holds {FILE} and the images")
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{source} has no {FILE}; write one with a line per image: file|prompt") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from error


def _file(row: MetadataRow) -> str:
    return row.cells[0]


def _problem(row: MetadataRow, numbers: Sequence[int]) -> str:
    """What is wrong with a line; empty where nothing is."""
    where = f"line {row.number} of {FILE}"
    if len(row.cells) != COLUMNS or not row.cells[0]:
        return f"{where} is not file|prompt, with one | between them; mend it"
    if len(numbers) > 1:
        return f"it stands on lines {lines_of(numbers)} of {FILE}; keep one"
    if leaves(row.cells[0]):
        return f"{where} leads out of the folder; name an image in it"
    if not row.cells[1]:
        return f"{where} has no prompt; write what is to be seen, or remove the line"
    if has_control(normal_text(row.cells[1])):
        return f"{where} has a prompt with a control character; remove it"
    return ""
