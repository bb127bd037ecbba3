"""Reading a source so that neither its random numbers nor the training's depend on the other's."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TypeVar, cast, final

import torch

from trainers.loop.data.sources import IterableSource, LiveSource, ResidentSource, Source
from trainers.loop.device.seeding import mixed
from trainers.loop.errors import LoopError

Batch = TypeVar("Batch")

END = object()
"""Comes after the last batch."""


def read_apart(source: Source[Batch], epoch: int, *, start: int, step: int, seed: int) -> Iterator[Batch]:
    """A source's batches, with torch's generator set for the epoch whenever the source is at work.

    So an order or an augmentation that is drawn from torch's generator is a function of seed and epoch, and a training
    that resumes in mid-epoch reads what it would have read. Outside, the generator is the training's. The generators of
    Python and NumPy are kept apart only by sources that read a `DataLoader`. A live source draws from the training's.

    Args:
        source: What is read.
        epoch: Counted from 0.
        start: The first batch wanted.
        step: Every so many of the following ones.
        seed: 0 or more.
    """
    # The order of the one is its own, and the other goes on after a resumption.
    if isinstance(source, ResidentSource | LiveSource):
        yield from source.batches(epoch, start=start, step=step)
        return
    generator = torch.default_generator
    goes_on = not isinstance(source, IterableSource) or not source.sets_every_batch
    reading = torch.Generator().manual_seed(mixed(seed, epoch)).get_state()
    batches: Iterator[Batch] | None = None
    while True:
        training = generator.get_state()
        if goes_on or batches is None:  # else every batch sets it by itself
            generator.set_state(reading)
        try:
            batches = source.batches(epoch, start=start, step=step) if batches is None else batches
            found = next(batches, END)
            if goes_on:
                reading = generator.get_state()
        finally:
            generator.set_state(training)
        if found is END:
            return
        yield cast("Batch", found)


@final
class Placed:
    """As a context it adds to an error that passes through where it happened.

    Args:
        place: Says where, when it is asked.
    """

    __slots__ = ("_place",)

    def __init__(self, place: Callable[[], str]) -> None:
        self._place = place

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """To the loop's own errors as their place, to every other as a note; none is held back."""
        if isinstance(error, LoopError):
            error.place = self._place()
        elif error is not None:
            error.add_note(f"in {self._place()}")


def order_digest(source: Source[object], epoch: int, *, seed: int) -> str:
    """Stands for the beginning of an epoch's order where a loader's samplers draw it; empty elsewhere."""
    if not isinstance(source, IterableSource):
        return ""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(mixed(seed, epoch))
        return source.digest(epoch)


def remarks(source: Source[object], *, epoch: int, window: int, processes: int) -> list[str]:
    """What a person should know of the way in which a source is read from a window of an epoch on."""
    found: list[str] = []
    if isinstance(source, LiveSource) and window:
        found.append(
            f"the source is live, so nothing of epoch {epoch + 1} is read again or skipped: what comes next is window "
            f"{window + 1}"
        )
    if isinstance(source, IterableSource) and source.passed_over and processes > 1:
        found.append(
            f"each of the {processes} processes reads and decodes all of {source.passed_over} and drops the batches of "
            "the others; a DataLoader over a dataset with indices is shared out before it is read"
        )
    return found
