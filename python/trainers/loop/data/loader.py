"""Adapters of a `DataLoader` that read selected batches of an epoch in a reproducible order."""

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import sha256
from itertools import chain, count, islice
from typing import Any, NamedTuple, Protocol, TypeVar, final, runtime_checkable

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from trainers.loop.device import HostGenerators, PythonGenerators, TorchGenerator, derive_seed, seed_host
from trainers.loop.errors import ContractError

Item = TypeVar("Item")


FIRST_CHUNK, MAX_CHUNK = 16, 1024
"""Indices drawn at a time. The number doubles, because setting all generators takes as long as a small batch."""


COMPARED_INDICES = 256
"""Number of indices that identify an order."""


REPRODUCIBLE_SAMPLERS = (BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Samplers that always give the same order for the same state of their generators."""


IndexBatch = tuple[int, Any]
"""A request to a worker: the seed of all random draws for a batch, and an index or a list of indices."""


GENERATORS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)


class BatchRange(NamedTuple):
    """The batches of an epoch to read.

    Attributes:
        epoch: The epoch, counted from 0.
        seed: Seed of the epoch, 0 to 2**63 - 1; the seeds of its batches follow it.
        start: The first batch.
        step: Distance from one batch to the next.
    """

    epoch: int
    seed: int
    start: int
    step: int


@runtime_checkable
class EpochAware(Protocol):
    """A sampler or a dataset with `set_epoch`, like `DistributedSampler`."""

    def set_epoch(self, epoch: int, /) -> object:
        """Set the epoch that is read next, counted from 0."""
        ...


@final
class Samplers:
    """A loader's sampler, and the samplers nested in it.

    Args:
        loader: A loader over a dataset with indices.

    Attributes:
        first: The outermost sampler, which yields the indices of the batches.
        is_reproducible: Whether all samplers are torch's own, which draw only from torch's generators.

    Raises:
        ContractError: A sampler can be read only once, or it shards the data by process.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.first: Iterable[Any] = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        self._all = _find_nested_samplers(self.first)
        for sampler in self._all:
            _check_sampler(sampler)
        self.is_reproducible = all(
            type(sampler) in REPRODUCIBLE_SAMPLERS or isinstance(sampler, list) for sampler in self._all
        )
        values = [value for sampler in self._all for value in _list_attributes(sampler)]
        self._generators = [value for value in (*values, loader.generator) if isinstance(value, GENERATORS)]
        self._seeds = [
            generator.initial_seed() if isinstance(generator, torch.Generator) else 0 for generator in self._generators
        ]

    @property
    def name(self) -> str:
        """The class name for messages: of the first sampler that is not torch's own."""
        custom = (sampler for sampler in self._all if type(sampler) not in REPRODUCIBLE_SAMPLERS)
        return type(next(custom, self.first)).__name__

    def start_epoch(self, epoch: int, seed: int) -> None:
        """Set the epoch of the samplers, and seed the generators in their attributes for it.

        The new seed of a torch generator is derived from its initial seed. Generators of Python and NumPy do not expose
        an initial seed, so theirs is derived from `seed`.
        """
        for sampler in self._all:
            if isinstance(sampler, EpochAware):
                sampler.set_epoch(epoch)
        for number, (generator, initial_seed) in enumerate(zip(self._generators, self._seeds, strict=True)):
            derived = derive_seed(seed, number)
            match generator:
                case torch.Generator():
                    generator.manual_seed(derive_seed(initial_seed, epoch))
                case random.Random():
                    generator.seed(derived)
                case np.random.Generator():
                    generator.bit_generator.state = type(generator.bit_generator)(derived).state
                case np.random.RandomState():
                    generator.seed(derived % 2**32)


@final
class Order:
    """The index lists or single indices of an epoch as `IndexBatch`s; every epoch iterates it again.

    Indices are drawn lazily, a few at a time. Meanwhile the generators of torch are in a separate state that depends
    only on the epoch's seed, so that no other random draw can change the order. For samplers that are not torch's, the
    same holds for the generators of Python and NumPy.
    """

    def __init__(self, samplers: Samplers) -> None:
        self._samplers = samplers
        self._checked = samplers.is_reproducible
        self.batch_range = BatchRange(epoch=0, seed=0, start=0, step=1)

    def __iter__(self) -> Iterator[IndexBatch]:
        """Iterate over the batches of `batch_range`."""
        batch_range = self.batch_range
        indices = chain.from_iterable(self._read_chunks(batch_range.epoch, batch_range.seed))
        seeds = count(batch_range.seed + 1 + batch_range.start, batch_range.step)
        return zip(seeds, islice(indices, batch_range.start, None, batch_range.step), strict=False)

    def digest(self, epoch: int, seed: int) -> str:
        """Return a hash of the beginning of an epoch's order."""
        return sha256(repr(self._read_beginning(epoch, seed)).encode()).hexdigest()

    def check_reproducible(self, epoch: int, seed: int) -> None:
        """Check once that an order of other samplers than torch's is the same each time it is read.

        Raises:
            ContractError: It differs.
        """
        if not self._checked and self._read_beginning(epoch, seed) != self._read_beginning(epoch, seed):
            raise ContractError(
                f"the sampler {self._samplers.name} gives the same epoch in a different order each time it is read, so "
                "a training run could not resume in mid-epoch, and processes could not share an epoch. Draw the order "
                "from the global generators of torch, Python or NumPy, from a generator in an attribute of the "
                "sampler, or from the epoch in a method set_epoch(epoch); or use LiveSource(loader), which is never "
                "read again"
            )
        self._checked = True

    def _read_beginning(self, epoch: int, seed: int) -> list[str]:
        return [repr(index) for index in islice(chain.from_iterable(self._read_chunks(epoch, seed)), COMPARED_INDICES)]

    def _read_chunks(self, epoch: int, seed: int) -> Iterator[list[Any]]:
        generators = TorchGenerator(seed) if self._samplers.is_reproducible else HostGenerators(seed)
        with generators:
            self._samplers.start_epoch(epoch, seed)
            indices = iter(self._samplers.first)
        size = FIRST_CHUNK
        while True:
            with generators:
                chunk = list(islice(indices, size))
            if not chunk:
                return
            yield chunk
            size = min(2 * size, MAX_CHUNK)


def _find_nested_samplers(first: object) -> list[object]:
    """Return the sampler and all samplers nested in it, breadth first."""
    reached: list[object] = []
    pending = [first]
    while pending:
        sampler = pending.pop(0)
        if not any(sampler is other for other in reached):
            reached.append(sampler)
            pending.extend(value for value in _list_attributes(sampler) if isinstance(value, Sampler))
            if isinstance(sampler, BatchSampler):  # its sampler may be any iterable
                pending.append(sampler.sampler)
    return reached


def _list_attributes(sampler: object) -> Iterator[object]:
    """Yield the attributes of an object; lists and tuples yield their items, except for long lists of indices."""
    for value in getattr(sampler, "__dict__", {}).values():
        holds_objects = isinstance(value, list | tuple) and not (
            value and isinstance(value[0], int | float | list | tuple)
        )
        yield from value if holds_objects else (value,)


def _check_sampler(sampler: object) -> None:
    if isinstance(sampler, DistributedSampler):
        raise ContractError(
            f"the loader's sampler is a {type(sampler).__name__}, which shards the data by process, but the loop "
            "already distributes the batches, so each process would train on a part of its shard. Use shuffle=True or "
            "a sampler for one process: each process then reads only its own batches"
        )
    if isinstance(sampler, Iterator):
        raise ContractError(
            f"the loader's sampler is a {type(sampler).__name__}, which can be read only once, but every epoch reads "
            "it again; use a list, or a class with __iter__"
        )


def has_indexed_batches(loader: DataLoader[Any]) -> bool:
    """Return whether batches can be read by index: not from an `IterableDataset` or with a custom `__iter__`."""
    classes = type(loader).mro()
    subclasses = classes[: classes.index(DataLoader)]
    custom = any({"__iter__", "_get_iterator"} & vars(subclass).keys() for subclass in subclasses)
    return not custom and not isinstance(loader.dataset, IterableDataset)


@final
class IndexedLoader:
    """The batches of a loader over a dataset with indices; any batch can be read without the others.

    A second loader with the same dataset and settings reads them, using `IndexBatch`s as indices. It is created once,
    so that persistent workers stay alive between epochs.

    Args:
        loader: The user's loader; it is not iterated itself.

    Raises:
        ContractError: Its sampler can be read only once or shards the data by process; or the order of its batches
            depends on the workers' speed.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        _check_in_order(loader)
        self._generator_seed = None if loader.generator is None else loader.generator.initial_seed()
        self._base = torch.Generator()  # seeds the workers; the order does not use it
        self._iterations = 0
        self._order = Order(Samplers(loader))
        self._loader: DataLoader[Any] = DataLoader(
            SeededDataset(loader.dataset, batched=loader.batch_sampler is not None),
            batch_size=None,  # a pick is a batch
            sampler=self._order,
            collate_fn=loader.collate_fn,
            generator=self._base,
            persistent_workers=loader.persistent_workers,
            worker_init_fn=partial(_init_worker, loader.worker_init_fn),
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            multiprocessing_context=loader.multiprocessing_context,
            prefetch_factor=loader.prefetch_factor,
        )

    def batches(self, epoch: int, *, start: int, step: int) -> Iterator[Any]:
        """Return every `step`-th batch from `start` on; the others are not fetched.

        Raises:
            ContractError: The order of the epoch differs each time it is read; or, while iterating, the loader with
                persistent workers was read again.
        """
        seed = self._seed(epoch)
        self._order.check_reproducible(epoch, seed)
        self._order.batch_range = BatchRange(epoch=epoch, seed=seed, start=start, step=step)
        self._base.manual_seed(seed)
        self._iterations += 1
        return self._check_exclusive(iter(self._loader)) if self._loader.persistent_workers else iter(self._loader)

    def _check_exclusive(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches of persistent workers, which can serve only one iteration at a time."""
        iteration = self._iterations
        while batch := tuple(islice(batches, 1)):
            yield batch[0]
            if iteration != self._iterations:
                raise ContractError(
                    "a loader with persistent_workers=True was read again in the middle of an epoch, for example by a "
                    "validation with the training's source, and its workers dropped the rest of the epoch; use a "
                    "separate loader for the other source"
                )

    def digest(self, epoch: int) -> str:
        """Return a hash of the beginning of an epoch's order."""
        return self._order.digest(epoch, self._seed(epoch))

    def _seed(self, epoch: int) -> int:
        """Derive the seed of an epoch from the loader's generator, or from torch's, which the loop seeds per epoch."""
        initial_seed = torch.initial_seed() if self._generator_seed is None else self._generator_seed
        return derive_seed(initial_seed, epoch) % 2**63


@final
class SeededDataset(Dataset[Any]):
    """A dataset indexed by `IndexBatch`s: the seed of a pick determines all random draws for its batch.

    A worker seeds the generators of torch, Python and NumPy. In the training process only torch's is seeded, because
    the training uses the others.

    Args:
        dataset: The dataset to read.
        batched: Whether a pick holds a list of indices.
    """

    def __init__(self, dataset: Dataset[Any], *, batched: bool) -> None:
        self.dataset = dataset
        self._batched = batched

    def __getitem__(self, pick: IndexBatch) -> Any:
        """Return the samples for the loader's `collate_fn`."""
        seed, index = pick
        if get_worker_info() is None:
            torch.default_generator.manual_seed(seed)
        else:
            seed_host(seed)
        if not self._batched:
            return self.dataset[index]
        fetch_all: Callable[[list[Any]], Any] | None = getattr(self.dataset, "__getitems__", None)  # optional in torch
        return [self.dataset[sample] for sample in index] if fetch_all is None else fetch_all(index)


def _init_worker(worker_init_fn: Callable[[int], object] | None, worker: int) -> None:
    """Make `get_worker_info().dataset` the user's dataset, and call the loader's `worker_init_fn`."""
    info: Any = get_worker_info()
    object.__setattr__(info, "dataset", info.dataset.dataset)
    if worker_init_fn is not None:
        worker_init_fn(worker)


@final
class StreamLoader:
    """The batches of a loader that can only be read in sequence.

    In this process, Python's and NumPy's generators are seeded for the epoch too; torch's already is.

    Args:
        loader: A loader over an `IterableDataset`, or of a class with a custom `__iter__`.

    Raises:
        ContractError: A sampler shards the data by process or can be read only once; the order of the batches depends
            on the workers' speed; or a loader of a custom class has persistent workers.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        _check_in_order(loader)
        self._samplers = None if isinstance(loader.dataset, IterableDataset) else Samplers(loader)
        self._generator_seed = None if loader.generator is None else loader.generator.initial_seed()
        self._loader = _restart_workers_each_epoch(loader) if loader.persistent_workers else loader

    def batches(self, epoch: int, *, start: int, step: int) -> Iterator[Any]:
        """Read all batches from the first on, and return every `step`-th from `start` on."""
        return islice(self._read_all(epoch), start, None, step)

    def _read_all(self, epoch: int) -> Iterator[Any]:
        seed, loader = derive_seed(torch.initial_seed(), epoch), self._loader
        generators = PythonGenerators(seed)
        with generators:
            if self._samplers is not None:
                self._samplers.start_epoch(epoch, seed)
            if isinstance(loader.dataset, EpochAware):
                loader.dataset.set_epoch(epoch)
            if loader.generator is not None and self._generator_seed is not None:
                loader.generator.manual_seed(derive_seed(self._generator_seed, epoch))
            batches = iter(loader)
        while True:
            with generators:
                batch = tuple(islice(batches, 1))
            if not batch:
                return
            yield batch[0]


def _restart_workers_each_epoch(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return the same loader with workers that are started again for every epoch.

    The random draws of persistent workers depend on all earlier draws, which a resumed training cannot reproduce.
    """
    if type(loader) is not DataLoader:
        raise ContractError(
            f"a {type(loader).__name__} has a custom way of reading, and persistent workers draw different random "
            "numbers after a resume; use persistent_workers=False"
        )
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        drop_last=loader.drop_last,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
    )


def _check_in_order(loader: DataLoader[Any]) -> None:
    if loader.num_workers and not loader.in_order:
        raise ContractError(
            "the loader has in_order=False, so the order of its batches depends on the workers' speed, and a training "
            "run could not resume in mid-epoch; use in_order=True, or LiveSource(loader), which is never read again"
        )
