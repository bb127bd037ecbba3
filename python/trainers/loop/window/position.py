"""The position of the loop, for error messages."""

from collections.abc import Sequence
from typing import final

from trainers.loop.data.tree import describe
from trainers.loop.errors import LoopError

MAX_SHOWN_BATCHES = 3


@final
class Position:
    """The current phase, epoch, window and batch of the loop.

    As a context manager it adds itself to errors: as `place` to a `LoopError`, as a note to others.
    """

    __slots__ = ("_batch", "_batches", "epoch", "phase", "window")

    def __init__(self, phase: str, epoch: int, window: int, batches: Sequence[object]) -> None:
        self.phase = phase
        self.epoch = epoch
        self.window = window
        self._batches = batches
        self._batch: int | None = None

    def at(self, batch: int | None) -> None:
        """Set the current batch, counted from 0 within the window; None for the whole window."""
        self._batch = batch

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Add the position to the error and let it propagate."""
        if error is not None:
            add_place(error, str(self))

    def __str__(self) -> str:
        """The position in one line; all numbers count from 0."""
        place = f"phase {self.phase!r}, epoch {self.epoch}, window {self.window}"
        size = len(self._batches)
        if self._batch is not None:
            return f"{place}, batch {self._batch} of {size}: {describe(self._batches[self._batch])}"
        shapes = "; ".join(describe(batch) for batch in self._batches[:MAX_SHOWN_BATCHES])
        more = "; …" if size > MAX_SHOWN_BATCHES else ""
        return f"{place} of {size} batches: {shapes}{more}"


def add_place(error: BaseException, place: str) -> None:
    """Add a position to an error: as `place` to a `LoopError`, as a note to others."""
    if isinstance(error, LoopError):
        error.place = place
    else:
        error.add_note(f"in {place}")
