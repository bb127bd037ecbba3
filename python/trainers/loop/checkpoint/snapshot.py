"""What goes into a checkpoint, and what comes out of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A training between two windows.

    Attributes:
        tensors: Tensors by name, in groups such as `modules` or `average`; a file per group, none for an empty one.
        state: Everything else, of optimizers, schedulers, scalers and generators: tensors and plain Python values in
            any nesting.
        epoch: The epoch, counted from 0.
        window: Windows of that epoch that are done.
        windows: All windows since the start of the training.
        best: Whether the newest recorded value is the best one.
    """

    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]
    epoch: int
    window: int
    windows: int
    best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint that was written.

    Attributes:
        folder: Where it stands.
        bytes: Its size.
        seconds: Time it took, old checkpoints' removal included.
    """

    folder: Path
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A checkpoint that was read; all tensors are on the CPU and share no memory with its files.

    Attributes:
        tensors: Tensors by name, in their groups; a group that was empty is absent.
        state: Everything else, as it was saved.
        epoch: The epoch, counted from 0.
        window: Windows of that epoch that are done.
        windows: All windows since the start of the training.
        folder: Where it stands.
        damaged: Newer checkpoints that could not be used, each with the reason.
    """

    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]
    epoch: int
    window: int
    windows: int
    folder: Path
    damaged: tuple[str, ...]
