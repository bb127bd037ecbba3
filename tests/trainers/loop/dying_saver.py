"""Saves checkpoints in processes that are killed, one after each step of a save.

`python dying_saver.py FOLDER` prints a JSON line per killed process: the step after which it was killed, the window of
the newest checkpoint before, the one that can be loaded now, and whether it equals what was saved.
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

from trainers.loop.checkpoint.snapshot import LoadedCheckpoint, Snapshot
from trainers.loop.checkpoint.store import Checkpoints

FILE_STEPS = ("open", "os.", "shutil.", "tempfile.")
MAX_STEPS = 100
SIZES = (0, 40, 1_000, 10_000, 20_500)  # the last is more than the tensors of a file take, and less than the state


def main(folder: Path) -> None:
    """Kill savers until one survives; each starts with one checkpoint, after an odd number of windows."""
    os.fsync = lambda _: None  # written data outlives the process; fsync would only take time
    for index, size in enumerate(SIZES):
        before = 2 * index + 1
        save(folder, before)
        killed = in_process(lambda size=size, windows=before + 1: save_within(folder, windows, size))
        report_checkpoint(folder, f"byte {size}", before, killed=killed)
    for step in range(1, MAX_STEPS):
        before = 2 * (len(SIZES) + step) + 1
        save(folder, before)
        killed = in_process(lambda step=step, windows=before + 1: save_until(folder, windows, step))
        report_checkpoint(folder, f"step {step}", before, killed=killed)
        if not killed:
            return


def snapshot(windows: int) -> Snapshot:
    """A snapshot that depends only on the window."""
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
    """Save a checkpoint as a training run does."""
    checkpoints = Checkpoints(folder, keep=1)
    with checkpoints.open():
        checkpoints.save(snapshot(windows))


def save_within(folder: Path, windows: int, size: int) -> None:
    """Save, and die when a file would exceed `size` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    save(folder, windows)


def save_until(folder: Path, windows: int, last: int) -> None:
    """Save, and die at the file operation number `last`."""
    steps = count(1)

    def step() -> None:
        if next(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = lambda _: step()
    sys.addaudithook(lambda event, _: step() if event.startswith(FILE_STEPS) else None)
    save(folder, windows)


def in_process(work: Callable[[], None]) -> bool:
    """Run in a forked process; returns whether it was killed."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def report_checkpoint(folder: Path, died: str, before: int, *, killed: bool) -> None:
    """Load the newest checkpoint and print the result."""
    checkpoints = Checkpoints(folder, keep=1)
    with checkpoints.open():
        drafts = [path.name for path in folder.iterdir() if path.name.startswith((".draft", ".removed"))]
        found = checkpoints.load()
    now = 0 if found is None else found.windows
    facts = {"died": died, "killed": killed, "before": before, "now": now, "drafts": drafts}
    print(json.dumps({**facts, "equal": found is not None and is_equal(found), "damaged": found and found.damaged}))  # noqa: T201


def is_equal(found: LoadedCheckpoint) -> bool:
    """Whether the checkpoint equals what was saved."""
    made = snapshot(found.windows)
    return (
        torch.equal(found.tensors["modules"]["weight"], made.tensors["modules"]["weight"])
        and torch.equal(found.tensors["best"]["weight"], made.tensors["best"]["weight"])
        and torch.equal(found.state["moments"], made.state["moments"])
        and found.state["rng"] == made.state["rng"]
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
