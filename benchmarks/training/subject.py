"""What is compared: ways to train, each behind the same four functions."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol

from torch.amp.grad_scaler import GradScaler

from benchmarks.training.job import Job

MODULES = {
    "by hand": "benchmarks.training.hand",
    "ours": "benchmarks.training.ours",
    "accelerate": "benchmarks.peers.with_accelerate",
    "fabric": "benchmarks.peers.with_fabric",
    "lightning": "benchmarks.peers.with_lightning",
    "transformers": "benchmarks.peers.with_transformers",
    "ignite": "benchmarks.peers.with_ignite",
}


class Subject(Protocol):
    """A way to train, used as its documentation says."""

    def train(self, job: Job) -> None:
        """Train."""
        ...

    def train_scaled(self, job: Job, scaler: GradScaler) -> None:
        """Train with a gradient scaler, as in float16."""
        ...

    def train_in_little_memory(self, make: Callable[[int], Job], batch_size: int) -> None:
        """Train with what is offered against memory that runs out; `make` gives the job for a batch size."""
        ...

    def train_saving(self, job: Job, folder: Path, *, every: int) -> None:
        """Train, with a checkpoint after every so many steps; go on from the newest one in the folder."""
        ...


def subject(name: str) -> Subject:
    """The subject of that name; its library is imported only here."""
    found: Subject = import_module(MODULES[name]).SUBJECT
    return found
