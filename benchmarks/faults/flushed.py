"""What a program asks the system for while it writes files, by strace: is all on the disk before it has its name?"""

import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, final

CALLS: Final = "write,writev,pwrite64,fsync,fdatasync,rename,renameat,renameat2"
_STEP: Final = {
    "written": re.compile(r"\b(?:write|writev|pwrite64)\(\d+<([^>]*)>"),
    "flushed": re.compile(r"\b(?:fsync|fdatasync)\(\d+<([^>]*)>"),
    "renamed": re.compile(r'\brename(?:at2?)?\((?:AT_FDCWD\S* )?"([^"]*)", (?:AT_FDCWD\S* )?"([^"]*)"'),
}
_FILES, _FOLDERS = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH, 0o555
LONGEST_S: Final = 120.0


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One call that matters."""

    what: Literal["written", "flushed", "renamed"]
    path: str
    target: str = ""
    """The new name of what was renamed."""


class UntraceableError(RuntimeError):
    """This system lets no process be watched."""


def steps_of(module: str, *arguments: str, log: Path) -> list[Step]:
    """Run a module of Python to its end and watch it.

    Raises:
        UntraceableError: there is no strace, or it may not watch.
    """
    strace = shutil.which("strace")
    if strace is None:
        raise UntraceableError("there is no strace")
    watch = [strace, "-f", "-y", "--seccomp-bpf", "-e", f"trace={CALLS}", "-o", str(log)]
    command = [*watch, sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    if done.returncode:
        raise UntraceableError(done.stderr[-300:])
    return list(parsed(log.read_text(encoding="utf-8", errors="replace").splitlines()))


def parsed(lines: Sequence[str]) -> Iterator[Step]:
    """The steps in lines of strace; calls that failed are none."""
    for line in lines:
        if " = -1 " in line:
            continue
        if found := _STEP["written"].search(line):
            yield Step("written", found[1])
        elif found := _STEP["flushed"].search(line):
            yield Step("flushed", found[1])
        elif found := _STEP["renamed"].search(line):
            yield Step("renamed", found[1], found[2])


def unflushed(steps: Sequence[Step], target: Path) -> list[str]:
    """What could be missing, or half there, after a power cut although `target` has its name.

    Args:
        steps: In their order.
        target: A file or folder that stands; of a folder, all that is in it counts.
    """
    at = next((n for n, step in enumerate(steps) if step.target == str(target)), None)
    if at is None:
        return [f"{target.name} was written under its own name"]
    source = steps[at].path
    inner = [path.relative_to(target) for path in target.rglob("*")] if target.is_dir() else []
    places = [source, *(f"{source}/{name}" for name in inner)]
    late = [Path(place).name for place in places if not _is_flushed(steps[:at], place)]
    above = [] if _is_flushed(steps[at:], str(target.parent)) else [f"the name of {target.name}"]
    return late + above


def _is_flushed(steps: Sequence[Step], place: str) -> bool:
    """Whether it was flushed after all that was written into it."""
    last = next((step.what for step in reversed(steps) if step.path == place and step.what != "renamed"), None)
    return last == "flushed"


def unreadable(target: Path) -> list[str]:
    """What another user cannot read."""
    places = [target, *target.rglob("*")] if target.is_dir() else [target]
    wanted = {place: _FOLDERS if place.is_dir() else _FILES for place in places}
    return [f"{place.name}: {mode_of(place)}" for place, mode in wanted.items() if place.stat().st_mode & mode != mode]


def mode_of(path: Path) -> str:
    """As chmod takes it."""
    return f"{path.stat().st_mode & 0o777:04o}"
