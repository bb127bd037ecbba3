"""Saves checkpoints in processes that are killed: one after every step that a save takes.

`python dying_saver.py FOLDER` prints a JSON line for every process that was killed: the step it died after, the window
that the newest checkpoint held before, the one that can be loaded now, and whether it is what was saved.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import torch

from trainers.loop.checkpoint.snapshot import Restored, Snapshot
from trainers.loop.checkpoint.store import Checkpoints

FILE_STEPS = ("open", "os.", "shutil.", "tempfile.")
SIZES = (0, 40, 1_000, 20_000, 50_000)


def main(folder: Path) -> None:
    """Kill savers until one survives."""
    with Checkpoints(folder, keep=1).open():
        pass
    save(folder, windows=1)
    done = 1
    for size in SIZES:
        killed = in_process(lambda size=size, windows=done + 1: save_within(folder, windows, size))
        done = tell(folder, f"byte {size}", done, killed=killed)
    for step in count(1):
        killed = in_process(lambda step=step, windows=done + 1: save_until(folder, windows, step))
        done = tell(folder, f"step {step}", done, killed=killed)
        if not killed:
            return


def snapshot(windows: int) -> Snapshot:
    """Content that is a function of the window."""
    values = torch.arange(5_000, dtype=torch.float32) + windows
    return Snapshot(
        tensors={"modules": {"weight": values}, "best": {"weight": -values}},
        state={"moments": values / 2, "rng": list(range(windows))},
        epoch=0,
        window=windows,
        windows=windows,
        best=False,
    )


def save(folder: Path, windows: int) -> None:
    """Save as a training does."""
    checkpoints = Checkpoints(folder, keep=1)
    with checkpoints.open():
        checkpoints.save(snapshot(windows))


def save_within(folder: Path, windows: int, size: int) -> None:
    """Save, and die where a file would get larger than `size` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    save(folder, windows)


def save_until(folder: Path, windows: int, last: int) -> None:
    """Save, and die with the step of number `last` that touches files."""
    steps = count(1)

    def step() -> None:
        if next(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    fsync = os.fsync

    def seen_fsync(handle: int) -> None:
        step()
        fsync(handle)

    os.fsync = seen_fsync
    sys.addaudithook(lambda event, _: step() if event.startswith(FILE_STEPS) else None)
    save(folder, windows)


def in_process(work: Callable[[], None]) -> bool:
    """Whether the process that does the work was killed."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def tell(folder: Path, died: str, before: int, *, killed: bool) -> int:
    """Load what is there, print it, and return its window."""
    checkpoints = Checkpoints(folder, keep=1)
    with checkpoints.open():
        drafts = [path.name for path in folder.iterdir() if path.name.startswith((".draft", ".removed"))]
        found = checkpoints.load()
    now = 0 if found is None else found.windows
    facts = {"died": died, "killed": killed, "before": before, "now": now, "drafts": drafts}
    print(json.dumps({**facts, "equal": found is not None and is_equal(found), "damaged": found and found.damaged}))  # noqa: T201
    return now


def is_equal(found: Restored) -> bool:
    """Whether it is what was saved."""
    made = snapshot(found.windows)
    return (
        torch.equal(found.tensors["modules"]["weight"], made.tensors["modules"]["weight"])
        and torch.equal(found.tensors["best"]["weight"], made.tensors["best"]["weight"])
        and torch.equal(found.state["moments"], made.state["moments"])
        and found.state["rng"] == made.state["rng"]
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
