"""Whether the history of a moved file is still there: `git log --follow` of its new name, beyond the commit before."""

import re
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.structure.table import Line
from benchmarks.training.asking import ROOT

TABLE: Final = ROOT / "docs" / "moved.md"
SAMPLE: Final = 12
_CELL: Final = re.compile(r"[\w./-]+\.(?:py|cs|md)\b")


class Move(NamedTuple):
    """A file's path before and now, from the root."""

    then: str
    now: str


def rows(commit: str) -> list[Line]:
    """Of a sample of moves, spread over the table, how many have a history that begins before the commit."""
    name = "moved files whose history goes on"
    if not TABLE.is_file():
        return [Line(name=name, before=None, now=None, reach="all", met=None, detail=f"{TABLE.name} is not there")]
    sample = _sample(moves(TABLE.read_text(encoding="utf-8")))
    lost = [move.now for move in sample if not reaches_past(commit, move.now)]
    detail = f"lost: {', '.join(lost)}" if lost else ", ".join(move.now for move in sample)
    return [
        Line(
            name=f"{name}, of {len(sample)}",
            before=None,
            now=len(sample) - len(lost),
            reach="all",
            met=not lost,
            detail=detail,
        )
    ]


def moves(page: str) -> list[Move]:
    """The rows of the page's tables that name one file on either side, and another one now."""
    found: list[Move] = []
    for line in page.splitlines():
        cells = [_CELL.findall(cell) for cell in line.strip().strip("|").split("|")]
        match cells:
            case [[then], [now]] if then != now:
                found.append(Move(then, now))
            case _:
                pass
    return found


def reaches_past(commit: str, path: str) -> bool:
    """Whether `git log --follow` of a file names a commit that is, or stands before, this one."""
    hashes = _git("log", "--follow", "--format=%H", "--", path).stdout.split()
    return bool(hashes) and _git("merge-base", "--is-ancestor", hashes[-1], commit).returncode == 0


def _sample(found: list[Move]) -> list[Move]:
    there = [move for move in found if Path(ROOT, move.now).is_file()]
    return there[:: max(len(there) // SAMPLE, 1)][:SAMPLE]


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True)
