"""Trains in processes that are killed at random moments.

`python dying_trainer.py FOLDER KILLS` prints a JSON line per process: the signal that ended it (0 for none) and the
newest checkpoint. The last line says whether the result equals that of an uninterrupted training run.
"""

import json
import os
import pickle
import random
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import torch
from interrupted_training import Training

MAX_MOMENTS = 36  # about three windows with their checkpoints


def main(folder: Path, kills: int) -> None:
    """Run one training without interruption, then many short ones and a last one to the end."""
    torch.set_num_threads(1)
    dice = random.Random(7)
    training = Training(epochs=kills, patience=kills, every_windows=1)
    finish(training, folder / "whole")  # in this process, so that forks find everything imported
    for last in dice.choices(range(MAX_MOMENTS), k=kills):
        report_end(folder / "cut", in_process(partial(die, training, folder / "cut", last)))
    report_end(folder / "cut", in_process(partial(finish, training, folder / "cut")))
    whole, cut = ((folder / name / "left").read_bytes() for name in ("whole", "cut"))
    print(json.dumps({"equal": pickle.loads(whole) == pickle.loads(cut)}))  # noqa: S301, T201  written just now


def finish(training: Training, folder: Path) -> None:
    """Train to the end and save the result."""
    os.fsync = lambda _: None  # written data outlives the process; fsync would only take time
    left = training.live(folder).left
    (folder / "left").write_bytes(pickle.dumps(left))


def die(training: Training, folder: Path, last: int) -> None:
    """Train until killed at moment number `last`; flushing a file is a moment too."""
    moments = count()

    def moment(_: int) -> None:
        if next(moments) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = moment
    training.live(folder, moment=moment)


def in_process(work: Callable[[], None]) -> int:
    """Run in a forked process; returns the signal that ended it, 0 for none."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status and not os.WIFSIGNALED(status):
        raise SystemExit(f"a life failed with the exit status {os.waitstatus_to_exitcode(status)}")
    return os.WTERMSIG(status)


def report_end(folder: Path, ended_by: int) -> None:
    """Print how a process ended and its newest checkpoint."""
    newest = max((path.name for path in folder.glob("window-*")), default="none")
    print(json.dumps({"signal": ended_by, "newest": newest}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
