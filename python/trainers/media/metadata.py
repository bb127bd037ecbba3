"""metadata.csv: one line per file, `file|text`, in UTF-8. Quotation marks are characters like others.

What a line must say is the task's; which of them are left out, and how that is told, is the same for all.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from trainers.media.errors import MediaError

FILE: Final = "metadata.csv"

SHOWN: Final = 20
"""How many bad files a message lists."""

Line = TypeVar("Line")


@dataclass(frozen=True, slots=True)
class MetadataRow:
    """A line that is not empty.

    Attributes:
        number: of the line in the file, from 1.
        cells: what stands between `|`, without blanks around it.
    """

    number: int
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RejectedFile:
    """A line or a file that was left out.

    Attributes:
        name: what the line calls the file, or the line where it names none.
        reason: what is wrong with it, and what to do.
    """

    name: str
    reason: str


def rows_of(path: Path, content: bytes, refusal: type[MediaError]) -> list[MetadataRow]:
    """Lines that are not empty.

    Args:
        path: of the file, for the message.
        content: of it.
        refusal: what is raised.

    Raises:
        refusal: it is not in UTF-8.
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


def sorted_out(
    rows: Sequence[MetadataRow],
    name_of: Callable[[MetadataRow], str],
    problem_of: Callable[[MetadataRow, Sequence[int]], str],
    line_of: Callable[[MetadataRow], Line],
) -> tuple[tuple[Line, ...], tuple[RejectedFile, ...]]:
    """Lines, and those that cannot be used.

    Args:
        rows: of the file, without its heading.
        name_of: what a row calls its file; empty where it names none.
        problem_of: what is wrong with a row, given the numbers of all lines of its name; empty where nothing is.
        line_of: what a row with no problem says.
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


def lines_of(numbers: Sequence[int]) -> str:
    """Numbers of lines in words, the first ones of many; as quickly for many as for a few."""
    more = len(numbers) - SHOWN
    return ", ".join(map(str, numbers[:SHOWN])) + (f" and {more:,} more" if more > 0 else "")


def normal_text(text: str) -> str:
    """The one form of a text: composed characters (NFC), one blank for any white space, none at the ends.

    A letter with its accent is the same whether it was typed as one character or as two. Capitals stay.
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def has_control(text: str) -> bool:
    """Whether there is a control character in a text."""
    return any(unicodedata.category(sign) == "Cc" for sign in text)


def leaves(name: str) -> bool:
    """Whether a path could lead out of its folder, on any system."""
    return "\\" in name or ":" in name or name.startswith("/") or ".." in PurePosixPath(name).parts


def listed(refused: Sequence[RejectedFile], good: int, noun: str) -> str:
    """All bad files at once, beside how many are good; the noun says what they are."""
    lines = [f"  {one.name}: {one.reason}" for one in refused[:SHOWN]]
    more = [f"  and {len(refused) - SHOWN} more"] if len(refused) > SHOWN else []
    total = len(refused) + good
    remedy = "mend them, or leave them out by --skip-bad" if good else "there is nothing to learn from"
    return "\n".join([f"{len(refused)} of {total} {noun} cannot be used; {remedy}:", *lines, *more])
