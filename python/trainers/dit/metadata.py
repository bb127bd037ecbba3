"""Reads metadata.csv: one line per image, `file|prompt`, in UTF-8.

A heading is left out. Quotation marks are characters like others.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from trainers.dit.errors import DataError

FILE: Final = "metadata.csv"
COLUMNS: Final = 2
CONDITIONS: Final = ("source_images", "source_image", "source")
"""What others call images that an image is made of."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a line says.

    Attributes:
        file: path of the image below the folder.
        prompt: in composed characters, with one blank for any white space.
    """

    file: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Refused:
    """An image or a line that was left out.

    Attributes:
        name: the image's file, or the line where it names none.
        reason: what is wrong with it, and what to do.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Row:
    """A line's cells."""

    number: int
    cells: tuple[str, ...]


def read_metadata(source: Path) -> tuple[tuple[Line, ...], tuple[Refused, ...]]:
    """The lines of `source/metadata.csv`, and those that say nothing usable.

    Raises:
        DataError: There is no such file, it is empty, not in UTF-8, or gives images as a condition.
    """
    path = source / FILE
    rows = _rows(_decoded(path, _content(source)))
    if rows and rows[0].cells[:1] == ("file",):
        _check_heading(path, rows[0].cells)
        rows = rows[1:]
    if not rows:
        raise DataError(f"{path} names no image; write a line per image: file|prompt")
    return _sorted_out(rows)


def normal_prompt(text: str) -> str:
    """A prompt in its normal form: composed characters, one blank for any white space, none around it."""
    return " ".join(unicodedata.normalize("NFC", text).split())


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


def _decoded(path: Path, content: bytes) -> str:
    """The file's text."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path} is not in UTF-8 (line {line}, byte {content[error.start]:#04x}); save it as UTF-8"
        ) from error


def _rows(text: str) -> list[_Row]:
    """Lines that are not empty."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [
        _Row(number, tuple(cell.strip() for cell in line.split("|")))
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


def _sorted_out(rows: Sequence[_Row]) -> tuple[tuple[Line, ...], tuple[Refused, ...]]:
    """Lines, and those that cannot be used; an image that stands twice is not used at all."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for row in rows:
        numbers[row.cells[0]].append(row.number)
    lines: list[Line] = []
    refused: dict[str, Refused] = {}
    for row in rows:
        name, problem = row.cells[0] or f"line {row.number}", _problem(row, numbers[row.cells[0]])
        if problem:
            refused.setdefault(name, Refused(name, problem))
        else:
            lines.append(Line(row.cells[0], normal_prompt(row.cells[1])))
    return tuple(lines), tuple(refused.values())


def _problem(row: _Row, numbers: Sequence[int]) -> str:
    """What is wrong with a line; empty where nothing is."""
    where = f"line {row.number} of {FILE}"
    if len(row.cells) != COLUMNS or not row.cells[0]:
        return f"{where} is not file|prompt, with one | between them; mend it"
    if len(numbers) > 1:
        return f"it stands on lines {', '.join(map(str, numbers))} of {FILE}; keep one"
    if _leaves(row.cells[0]):
        return f"{where} leads out of the folder; name an image in it"
    if not row.cells[1]:
        return f"{where} has no prompt; write what is to be seen, or remove the line"
    if any(unicodedata.category(sign) == "Cc" for sign in normal_prompt(row.cells[1])):
        return f"{where} has a prompt with a control character; remove it"
    return ""


def _leaves(name: str) -> bool:
    """Whether a path could lead out of the folder, on any system."""
    return "\\" in name or ":" in name or name.startswith("/") or ".." in PurePosixPath(name).parts
