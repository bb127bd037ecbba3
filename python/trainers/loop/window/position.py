"""Position of the loop, for error messages."""

from collections.abc import Sequence
from typing import final

from trainers.loop.data.tree import describe
from trainers.loop.errors import LoopError

SHOWN_BATCHES = 3


@final
class Position:
    """The phase, epoch, window and batch that the loop is at.

    As a context it adds itself to an error that passes through: as `place` to the loop's own, as a note to every other.
    No error is held back.
    """

    __slots__ = ("_batch", "_batches", "epoch", "phase", "window")

    def __init__(self, phase: str, epoch: int, window: int, batches: Sequence[object]) -> None:
        self.phase = phase
        self.epoch = epoch
        self.window = window
        self._batches = batches
        self._batch: int | None = None

    def at(self, batch: int | None) -> None:
        """Note the batch that the loop is at, counted from 0 within the window; None for the window as a whole."""
        self._batch = batch

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Say where the error happened and let it pass."""
        if error is not None:
            add_place(error, str(self))

    def __str__(self) -> str:
        """One line, all counted from 0."""
        place = f"phase {self.phase!r}, epoch {self.epoch}, window {self.window}"
        size = len(self._batches)
        if self._batch is not None:
            return f"{place}, batch {self._batch} of {size}: {describe(self._batches[self._batch])}"
        shapes = "; ".join(describe(batch) for batch in self._batches[:SHOWN_BATCHES])
        more = "; …" if size > SHOWN_BATCHES else ""
        return f"{place} of {size} batches: {shapes}{more}"


def add_place(error: BaseException, place: str) -> None:
    """Say in an error where it happened: as `place` in the loop's own, as a note in every other."""
    if isinstance(error, LoopError):
        error.place = place
    else:
        error.add_note(f"in {place}")
