"""Reading a source so that neither its random numbers nor the training's depend on the other's."""

from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

import torch

from trainers.loop.data.sources import ResidentSource, Source
from trainers.loop.machine.seeding import mixed

Batch = TypeVar("Batch")


def read_apart(source: Source[Batch], epoch: int, *, start: int, step: int, seed: int) -> Iterator[Batch]:
    """A source's batches, with torch's generator set for the epoch whenever the source is at work.

    So an order or an augmentation that is drawn from torch's generator is a function of seed and epoch, and a training
    that resumes in mid-epoch reads what it would have read. Outside, the generator is the training's. The generators of
    Python and NumPy are not kept apart.

    Args:
        source: What is read.
        epoch: Counted from 0.
        start: The first batch wanted.
        step: Every so many of the following ones.
        seed: 0 or more.
    """
    if isinstance(source, ResidentSource):  # its order is a function of seed and epoch by itself
        yield from source.batches(epoch, start=start, step=step)
        return
    generator = torch.default_generator
    reading = torch.Generator().manual_seed(mixed(seed, epoch)).get_state()
    batches: Iterator[Batch] | None = None
    while True:
        training = generator.get_state()
        generator.set_state(reading)
        try:
            batches = source.batches(epoch, start=start, step=step) if batches is None else batches
            found = tuple(islice(batches, 1))
        finally:
            reading = generator.get_state()
            generator.set_state(training)
        if not found:
            return
        yield found[0]
