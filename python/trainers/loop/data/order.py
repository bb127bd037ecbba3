"""The order of a `DataLoader`: what its samplers give, read so that the same epoch always has the same order."""

import random
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain, count, islice
from typing import Any, NamedTuple, Protocol, TypeVar, final, runtime_checkable

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from trainers.loop.device import HostGenerators, TorchGenerator, mixed
from trainers.loop.errors import ContractError

Item = TypeVar("Item")

FIRST_CHUNK, LARGEST_CHUNK = 16, 1024
"""Indices drawn at a time, twice as many each time: to set all generators takes as long as a small batch."""

COMPARED = 256
"""Indices that stand for an order."""

REPLAYED = (BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Samplers that are known to give the same order whenever their generators are set to the same state."""


Pick = tuple[int, Any]
"""What is asked of a worker: the seed that all draws for a batch come from, and an index or a list of indices."""


GENERATORS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)


class BatchRange(NamedTuple):
    """Which batches of an epoch are read.

    Attributes:
        epoch: Counted from 0.
        seed: Of the epoch, 0 to 2**63 - 1; those of its batches follow it.
        start: The first batch.
        step: From each batch to the next one wanted.
    """

    epoch: int
    seed: int
    start: int
    step: int


@runtime_checkable
class EpochAware(Protocol):
    """A sampler or a dataset that must be told the epoch, as `DistributedSampler` made usual."""

    def set_epoch(self, epoch: int, /) -> object:
        """The epoch that is read next, counted from 0."""
        ...


@final
class Samplers:
    """Everything that draws a loader's order: its sampler, and the samplers that this one reads.

    Args:
        loader: Over a dataset that is indexed.

    Attributes:
        first: What gives the batches' indices.
        replayed: Whether all of them are torch's own, which draw from torch's generators alone.

    Raises:
        ContractError: A sampler can be read only once, or gives every process a share of its own.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.first: Iterable[Any] = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        self._all = _reached(self.first)
        for sampler in self._all:
            _check(sampler)
        self.replayed = all(type(sampler) in REPLAYED or isinstance(sampler, list) for sampler in self._all)
        kept = [value for sampler in self._all for value in _attributes(sampler)]
        self._generators = [each for each in (*kept, loader.generator) if isinstance(each, GENERATORS)]
        self._seeds = [
            generator.initial_seed() if isinstance(generator, torch.Generator) else 0 for generator in self._generators
        ]

    @property
    def name(self) -> str:
        """For messages: that of the first that is not torch's own."""
        return type(next((each for each in self._all if type(each) not in REPLAYED), self.first)).__name__

    def begin(self, epoch: int, seed: int) -> None:
        """Tell them the epoch, and set the generators that they keep to a function of it.

        A generator of torch keeps to the seed that it was made with; those of Python and NumPy, which do not show
        theirs, get one of `seed`.
        """
        for sampler in self._all:
            if isinstance(sampler, EpochAware):
                sampler.set_epoch(epoch)
        for place, (generator, own) in enumerate(zip(self._generators, self._seeds, strict=True)):
            _set(generator, own=mixed(own, epoch), drawn=mixed(seed, place))


@final
class Order:
    """The index lists of an epoch, or single indices, as `Pick`s; iterated anew for every epoch.

    They are drawn a few at a time, as they are wanted. The generators of torch, and where others than torch's samplers
    draw, of Python and NumPy, are then in a state of their own that is a function of the epoch's seed. So nothing else
    that draws can change the order.
    """

    def __init__(self, samplers: Samplers) -> None:
        self._samplers = samplers
        self._checked = samplers.replayed
        self.wanted = BatchRange(epoch=0, seed=0, start=0, step=1)

    def __iter__(self) -> Iterator[Pick]:
        """The wanted ones of `wanted`."""
        return self._picks(self.wanted)

    def digest(self, epoch: int, seed: int) -> str:
        """Stands for the beginning of the order of an epoch."""
        return sha256(repr(self._beginning(epoch, seed)).encode()).hexdigest()

    def check(self, epoch: int, seed: int) -> None:
        """Read the beginning twice, the first time that it is asked for, unless torch's own samplers draw it.

        Raises:
            ContractError: It is another one the second time.
        """
        if not self._checked and self._beginning(epoch, seed) != self._beginning(epoch, seed):
            raise ContractError(
                f"the sampler {self._samplers.name} gives the same epoch in another order each time it is read, so a "
                "training could not resume in mid-epoch, and processes could not share an epoch out. Draw the order "
                "from torch's, Python's or NumPy's global generators, or from a generator that the sampler keeps as "
                "an attribute, or from the epoch by a method set_epoch(epoch); or give LiveSource(loader), which is "
                "never read again"
            )
        self._checked = True

    def _beginning(self, epoch: int, seed: int) -> list[str]:
        return [repr(index) for index in islice(chain.from_iterable(self._chunks(epoch, seed)), COMPARED)]

    def _picks(self, wanted: BatchRange) -> Iterator[Pick]:
        indices = chain.from_iterable(self._chunks(wanted.epoch, wanted.seed))
        seeds = count(wanted.seed + 1 + wanted.start, wanted.step)
        return zip(seeds, islice(indices, wanted.start, None, wanted.step), strict=False)

    def _chunks(self, epoch: int, seed: int) -> Iterator[list[Any]]:
        generators = TorchGenerator(seed) if self._samplers.replayed else HostGenerators(seed)
        with generators.inside():
            self._samplers.begin(epoch, seed)
            indices = iter(self._samplers.first)
        size = FIRST_CHUNK
        while True:
            with generators.inside():
                chunk = list(islice(indices, size))
            if not chunk:
                return
            yield chunk
            size = min(2 * size, LARGEST_CHUNK)


def _reached(first: object) -> list[object]:
    """The sampler and those that it keeps, in the order in which they are reached."""
    reached: list[object] = []
    waiting = [first]
    while waiting:
        sampler = waiting.pop(0)
        if not any(sampler is known for known in reached):
            reached.append(sampler)
            waiting.extend(value for value in _attributes(sampler) if isinstance(value, Sampler))
            if isinstance(sampler, BatchSampler):  # which takes any iterable
                waiting.append(sampler.sampler)
    return reached


def _attributes(sampler: object) -> Iterator[object]:
    """What an object keeps, and what is in the lists and tuples among that."""
    for value in getattr(sampler, "__dict__", {}).values():
        yield from value if isinstance(value, list | tuple) and not _numbers(value) else (value,)


def _numbers(values: Sequence[object]) -> bool:
    """Whether it is a list of indices, which may be long."""
    return bool(values) and isinstance(values[0], int | float | list | tuple)


def _check(sampler: object) -> None:
    if isinstance(sampler, DistributedSampler):
        raise ContractError(
            f"the loader's sampler is a {type(sampler).__name__}, which gives every process a share of its own; the "
            "loop shares the batches out itself, so that a process would train on a share of its share. Give the "
            "loader shuffle=True, or the sampler that it would have in one process: each process then reads and "
            "decodes its own batches alone"
        )
    if isinstance(sampler, Iterator):
        raise ContractError(
            f"the loader's sampler is a {type(sampler).__name__}, which can be read only once, but every epoch reads "
            "it again; give a list, or a class with __iter__"
        )


def _set(
    generator: torch.Generator | random.Random | np.random.Generator | np.random.RandomState, *, own: int, drawn: int
) -> None:
    match generator:
        case torch.Generator():
            generator.manual_seed(own)
        case random.Random():
            generator.seed(drawn)
        case np.random.Generator():
            generator.bit_generator.state = type(generator.bit_generator)(drawn).state
        case np.random.RandomState():
            generator.seed(drawn % 2**32)
