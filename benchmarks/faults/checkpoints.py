"""The faults of a training's files: it is killed while it writes, the disk is full, the power is cut."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.flushed import Step, UntraceableError, mode_of, steps_of, unflushed, unreadable
from benchmarks.faults.models import NAME
from benchmarks.report import Row, at_least, at_most, unmeasured

if TYPE_CHECKING:
    from benchmarks.faults.trained import Course

KILLS, QUICK_KILLS = 50, 3
DISK: Final = "4m"
LIMITS: Final = {3: 0, 4: 2_000, 5: 30_000, 6: 60_000, 7: -1}
"""By window: the largest file that can be written from then on; the last lifts the limit."""
ROOMS: Final = {3: 0, 5: 12_288, 7: 40_960, 9: -1}
"""By window: what is left of a small disk."""


def run(place: Place) -> Iterator[Finding]:
    """Kills, then full disks, then what is watched by strace."""
    from benchmarks.faults.trained import train

    # In this process and first, so that those that are forked from it find everything imported.
    whole = train(place.work / "undisturbed", lambda _: None)
    yield _killed(place)
    yield _limited(place, whole)
    yield _on_full_disk(whole)
    yield _watched(place)


def _killed(place: Place) -> Finding:
    from benchmarks.faults.trained import killed_in_place
    from benchmarks.training.kills import EVERY, killed_often

    kills = place.count(KILLS, QUICK_KILLS)
    deaths = killed_often(place.work, kills)
    gone = killed_in_place(place.work / "alone.pt", kills)
    return Finding(
        fault="a training killed while it writes",
        done=f"{deaths.killed} times kill -9, at random moments, of a training that writes a checkpoint every {EVERY} "
        "windows; each time it is resumed, and at last compared with one that was left alone",
        calls=deaths.killed,
        wrong=int(not deaths.equal) + deaths.left,
        lost=deaths.lost,
        rows=[
            at_least("kills", deaths.killed, kills, detail="in the midst of a training"),
            at_most("weights that differ at the end", int(not deaths.equal), 0, detail="to the bit"),
            at_most("leftovers at the end", deaths.left, 0, detail=f"the kills left {deaths.half_done} half done"),
        ],
        detail=f"half written or half removed after a kill: {deaths.half_done}; at the end: {deaths.left}",
        naive=f"naive: torch.save into one file without a pause: nothing loads after {gone} of {kills} kills",
    )


# --- full disks


def _limited(place: Place, whole: "Course") -> Finding:
    """In the place of a disk that is full: files cannot grow beyond so many bytes."""
    from benchmarks.faults.trained import full_in_place, limiting

    finding = _full(whole, place.work / "limited", limiting(LIMITS), LIMITS)
    return replace(
        finding,
        fault="a file that cannot grow while a checkpoint is written",
        done=f"{finding.done}; files end at {', '.join(f'{size}' for size in LIMITS.values() if size >= 0)} bytes",
        naive=f"naive: torch.save into one file: {full_in_place(place.work / 'full.pt')}",
    )


def _on_full_disk(whole: "Course") -> Finding:
    """A real disk that another file fills."""
    from benchmarks.faults.trained import filling

    fault, done = "a disk that is full when a checkpoint is written", f"a disk of {DISK} that another file fills"
    with _small_disk() as disk:
        if disk is None:
            row = unmeasured("checkpoints", "mounting a small disk takes Linux and root", reach="<= 0")
            return Finding(fault=fault, done=done, calls=0, wrong=0, lost=0, rows=[row])
        finding = _full(whole, disk / "checkpoints", filling(disk / "other", ROOMS), ROOMS)
    rooms = ", ".join(f"{room}" for room in ROOMS.values() if room >= 0)
    return replace(finding, fault=fault, done=f"{finding.done}; {done}, with {rooms} bytes left")


def _full(whole: "Course", folder: Path, disturb: Callable[[int], None], by_window: Mapping[int, int]) -> Finding:
    """Train where writing fails for some windows, and judge each checkpoint."""
    from benchmarks.faults.trained import WINDOWS, in_process

    course = in_process(folder, disturb)
    if course is None:
        return Finding(fault="", done="the training died", calls=1, wrong=0, lost=1)
    first, last = min(by_window), max(by_window) - 1
    failed = [one for one in course.attempts if one.problem]
    rows = _rows(course, failed)
    return Finding(
        fault="",
        done=f"a training of {WINDOWS} windows with a checkpoint after each, that cannot be written from window "
        f"{first} to {last}",
        calls=len(course.attempts),
        wrong=sum(int(row.value or 0) for row in rows if row.reach == "<= 0") + (course.weights != whole.weights),
        lost=_lost(course),
        rows=[
            *rows,
            at_least("checkpoints that could not be written", len(failed), last - first + 1, detail="it was full"),
            at_most("newest checkpoints lost meanwhile", _lost(course), 0, detail="the last that was written loads"),
            at_most("weights that differ at the end", int(course.weights != whole.weights), 0, detail="to the bit"),
        ],
        detail=f"{len(failed)} of {len(course.attempts)} failed, such as: {failed[0].problem if failed else 'none'}",
    )


def _rows(course: "Course", failed: Sequence[object]) -> list[Row]:
    unreadable_ones = [one for one in course.attempts if one.problem and "checkpoints are untouched" not in one.problem]
    left = [name for one in course.attempts for name in one.strangers]
    ended = int(bool(failed) and bool(course.attempts[-1].problem))
    return [
        at_most("problems that do not say what stands", len(unreadable_ones), 0, detail="in words"),
        at_most("leftovers", len(left), 0, detail=", ".join(left) or "none"),
        at_most("trainings that write none once there is room", ended, 0, detail="the last checkpoint"),
    ]


def _lost(course: "Course") -> int:
    """How often the newest that can be loaded is not the last that was written."""
    written = lost = 0
    for one in course.attempts:
        written = written if one.problem else one.window
        lost += one.newest != written
    return lost


@contextmanager
def _small_disk() -> Generator[Path | None]:
    """A disk of its own; None where there can be none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "disk"
        folder.mkdir()
        if os.name != "posix" or os.geteuid() != 0:
            yield None
            return
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=755", "tmpfs", str(folder)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            yield None
            return
        try:
            yield folder
        finally:
            subprocess.run(["umount", str(folder)], check=True)


# --- what is on the disk before it has its name


def _watched(place: Place) -> Finding:
    """Checkpoints and an artifact, written by a user whose files are private."""
    fault, done = "files that a power cut or another user meets", "watched by strace, with umask 077"
    folder = place.work / "watched"
    folder.mkdir()
    model = place.material.small / NAME / "1"
    try:
        steps = steps_of("benchmarks.faults.trained", str(folder), str(model), log=place.work / "strace.txt")
    except UntraceableError as error:
        why = f"{error}; tests/trainers/loop/test_checkpoints.py watches the same calls from within"
        return Finding(fault=fault, done=done, calls=0, wrong=0, lost=0, rows=[unmeasured("files", why, reach="<= 0")])
    targets = [*sorted((folder / "checkpoints").glob("window-*")), folder / "models" / "1"]
    late = [what for target in targets for what in unflushed(steps, target)]
    hidden = [what for target in targets for what in unreadable(target)]
    return Finding(
        fault=fault,
        done=f"{done}: {len(targets) - 1} checkpoints and an artifact",
        calls=sum(1 for target in targets for _ in target.rglob("*")),
        wrong=len(late) + len(hidden),
        lost=0,
        rows=[
            at_most("not flushed before they have their name", len(late), 0, detail=", ".join(late) or "none"),
            at_most("that others cannot read", len(hidden), 0, detail=", ".join(hidden) or "none"),
        ],
        detail=f"{sum(step.what == 'flushed' for step in steps)} flushes, "
        f"{sum(step.what == 'renamed' for step in steps)} renames",
        naive=_alone(steps, folder / "alone" / "a.safetensors"),
    )


def _alone(steps: Sequence[Step], path: Path) -> str:
    missing = ", ".join(unflushed(steps, path)) or "nothing"
    return f"naive: safetensors' save_file: not flushed: {missing}; its mode is {mode_of(path)}"
