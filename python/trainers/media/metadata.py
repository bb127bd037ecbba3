"""metadata.csv: one line per file, `file|text`, in UTF-8; quotation marks have no special meaning."""

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from trainers.media.errors import MediaError

FILE: Final = "metadata.csv"

MAX_LISTED: Final = 20
"""Number of unusable files that a message lists."""

Line = TypeVar("Line")


@dataclass(frozen=True, slots=True)
class MetadataRow:
    """A non-empty line.

    Attributes:
        number: Line number in the file, from 1.
        cells: Its columns, stripped.
    """

    number: int
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RejectedFile:
    """A line or a file that was left out.

    Attributes:
        name: Name of the file, or "line N" if the line names none.
        reason: The problem and the remedy.
    """

    name: str
    reason: str


def parse_rows(path: Path, content: bytes, refusal: type[MediaError]) -> list[MetadataRow]:
    """Non-empty lines of a metadata file.

    Args:
        path: Path of the file, for the message.
        content: Bytes of the file.
        refusal: Error class to raise.

    Raises:
        refusal: The file is not UTF-8.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise refusal(
            f"{path} is not in UTF-8 (line {line}, byte {content[error.start]:#04x}); save it as UTF-8"
        ) from error
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [
        MetadataRow(number, tuple(cell.strip() for cell in line.split("|")))
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


def partition_rows(
    rows: Sequence[MetadataRow],
    name_of: Callable[[MetadataRow], str],
    problem_of: Callable[[MetadataRow, Sequence[int]], str],
    line_of: Callable[[MetadataRow], Line],
) -> tuple[tuple[Line, ...], tuple[RejectedFile, ...]]:
    """Split rows into usable lines and rejected files.

    Args:
        rows: Rows of the file, without its heading.
        name_of: Returns the file name in a row, or an empty string.
        problem_of: Returns the problem of a row, or an empty string; its second argument has the numbers of all lines
            with the same name.
        line_of: Parses a row without problems.
    """
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for row in rows:
        numbers[name_of(row)].append(row.number)
    lines: list[Line] = []
    refused: dict[str, RejectedFile] = {}
    for row in rows:
        name, problem = name_of(row) or f"line {row.number}", problem_of(row, numbers[name_of(row)])
        if problem:
            refused.setdefault(name, RejectedFile(name, problem))
        else:
            lines.append(line_of(row))
    return tuple(lines), tuple(refused.values())


def join_line_numbers(numbers: Sequence[int]) -> str:
    """List line numbers in words, up to `MAX_LISTED` of them."""
    rest = len(numbers) - MAX_LISTED
    return ", ".join(map(str, numbers[:MAX_LISTED])) + (f" and {rest:,} more" if rest > 0 else "")


def normal_text(text: str) -> str:
    """Normalise a text: composed characters (NFC), single spaces, none at the ends; case is kept."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def has_control(text: str) -> bool:
    """Whether a text contains a control character."""
    return any(unicodedata.category(char) == "Cc" for char in text)


def leads_outside(name: str) -> bool:
    """Whether a path could lead out of its folder on any operating system."""
    return "\\" in name or ":" in name or name.startswith("/") or ".." in PurePosixPath(name).parts


def describe_rejections(refused: Sequence[RejectedFile], usable_count: int, noun: str) -> str:
    """Message that lists the rejected files and their share of all.

    Args:
        refused: Rejected files.
        usable_count: Number of usable files.
        noun: Plural noun for the files.
    """
    lines = [f"  {rejected.name}: {rejected.reason}" for rejected in refused[:MAX_LISTED]]
    rest = [f"  and {len(refused) - MAX_LISTED} more"] if len(refused) > MAX_LISTED else []
    total = len(refused) + usable_count
    remedy = "fix them, or leave them out with --skip-bad" if usable_count else "nothing is left to train on"
    return "\n".join([f"{len(refused)} of {total} {noun} cannot be used; {remedy}:", *lines, *rest])
