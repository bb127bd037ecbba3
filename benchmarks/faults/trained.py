"""Small trainings on bad disks, and files as other libraries write them, each in a process of its own.

Imports torch. Run as `python -m benchmarks.faults.trained FOLDER ARTIFACT`, it writes one of each kind of file below
the folder, for somebody who watches what it asks the system for.
"""

import hashlib
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Final, final

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.faults.models import write_checkpoints
from predictor import artifact
from trainers.loop import CheckpointReport, Checkpoints, Loop, Loss, Phase, ResidentSource, WindowReport, adamw

INPUTS, WIDTH, WINDOWS = 16, 400, 12
NUMBERS: Final = 500_000
"""Float32 numbers in what is saved in place."""
PAUSE_S: Final = 0.03
"""At most so long a process lives on that saves in place."""


@final
@dataclass(frozen=True, slots=True)
class Attempt:
    """One checkpoint of a training, and what the folder held right after it."""

    window: int
    """Counted from 1."""
    problem: str
    """Empty if it was written."""
    newest: int
    """Windows in the newest that can be loaded; 0 if none can."""
    strangers: tuple[str, ...]
    """What is no checkpoint."""


@final
@dataclass(frozen=True, slots=True)
class Course:
    """A training from its start to its end."""

    attempts: Sequence[Attempt]
    weights: str
    """Hash of the weights at the end."""


def train(folder: Path, disturb: Callable[[int], None]) -> Course:
    """Train, with a checkpoint after every window; `disturb` is told each window before its checkpoint is written."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    source = ResidentSource[Tensor].of(torch.randn(WINDOWS * 10, INPUTS), batch_size=10)

    def loss(batch: Tensor) -> Loss:
        return Loss((network(batch) - batch.sum(1, keepdim=True)).square().mean(), len(batch))

    phase = Phase[Tensor]("main", loss, network.parameters(), adamw(network.parameters(), lr=1e-2))
    checkpoints = Checkpoints(folder, keep=2, every_windows=1, every_seconds=None)
    attempts, window = list[Attempt](), 0
    with Loop([phase], modules={"network": network}, device="cpu").running(checkpoints) as run:
        for report in run.epochs(source, max_epochs=1):
            if isinstance(report, WindowReport):
                window += 1
                disturb(window)
            elif isinstance(report, CheckpointReport):
                attempts.append(_attempt(folder, window, report.problem))
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in network.parameters())
    return Course(attempts, hashlib.sha256(weights).hexdigest())


def _attempt(folder: Path, window: int, problem: str | None) -> Attempt:
    found = Checkpoints(folder).load()
    others = (path.name for path in folder.iterdir() if not path.name.startswith("window-"))
    return Attempt(window, problem or "", found.windows if found else 0, tuple(sorted(set(others) - {".lock"})))


def limiting(sizes: Mapping[int, int]) -> Callable[[int], None]:
    """Lets this process write no file larger than so many bytes from such a window on; -1 for no such limit."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def disturb(window: int) -> None:
        if window in sizes:
            resource.setrlimit(resource.RLIMIT_FSIZE, (sizes[window], most))

    return disturb


def filling(other: Path, rooms: Mapping[int, int]) -> Callable[[int], None]:
    """Leaves so much room on a small disk from such a window on, by another file that grows; -1 for all there is."""

    def disturb(window: int) -> None:
        if window in rooms:
            other.unlink(missing_ok=True)
            state = os.statvfs(other.parent)
            if rooms[window] >= 0:
                other.write_bytes(bytes(max(0, state.f_bavail * state.f_frsize - rooms[window])))

    return disturb


def in_process(folder: Path, disturb: Callable[[int], None]) -> Course | None:
    """Train in a process of its own; None if it died."""
    context = multiprocessing.get_context("fork")  # torch is imported already: a process starts at once
    listening, telling = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(telling, folder, disturb))
    process.start()
    telling.close()
    try:
        course: Course = listening.recv()
    except EOFError:
        return None
    finally:
        process.join()
    return course


def _tell(telling: Connection, folder: Path, disturb: Callable[[int], None]) -> None:
    telling.send(train(folder, disturb))


# --- the naive way


def killed_in_place(path: Path, times: int) -> int:
    """How often nothing can be loaded after a process was killed that saves into one file again and again."""
    dice, lost = Random(0), 0  # noqa: S311  moments
    for _ in range(times):
        child = os.fork()
        if child == 0:
            while True:
                torch.save({"a": torch.zeros(NUMBERS)}, path)
        time.sleep(dice.uniform(0.2, 1.0) * PAUSE_S)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lost += not is_loaded(path)
    return lost


def full_in_place(path: Path) -> str:
    """What a full disk makes of a file that is saved again."""
    torch.save({"a": torch.zeros(NUMBERS)}, path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (NUMBERS, limits[1]))
    try:
        torch.save({"a": torch.ones(NUMBERS)}, path)
    except (OSError, RuntimeError) as error:
        said = " ".join(str(error).split())[:80]
    else:
        said = "no error"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return f"{said}; the one before {'is still there' if is_loaded(path) else 'is destroyed'}"


def is_loaded(path: Path) -> bool:
    """Whether torch reads it."""
    try:
        torch.load(path, weights_only=True)
    except (OSError, RuntimeError, EOFError):
        return False
    return True


# --- what is watched


def main(folder: Path, model: Path) -> None:
    """Write checkpoints, an artifact, and a file by safetensors alone, as a user whose files nobody else may read."""
    os.umask(0o077)
    write_checkpoints(folder / "checkpoints")
    stored = artifact.load(model)
    artifact.save(folder / "models" / "1", stored.artifact, stored.golden)
    (folder / "alone").mkdir()
    save_file({"a": torch.zeros(3)}, folder / "alone" / "a.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
