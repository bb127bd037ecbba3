"""A `DataLoader` adapter: the loop selects the batches, and the loader's workers fetch only these."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
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

from trainers.loop.device import HostGenerators, LighterGenerators, TorchGenerator, mixed, seed_host
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
    """A sampler or a dataset with `set_epoch`, like `DistributedSampler`."""

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
        replayed: Whether all are torch's classes, which draw only from torch's generators.

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


def taken_apart(loader: DataLoader[Any]) -> bool:
    """Whether single batches can be read: not of a stream, nor by a class of loader that reads in its own way."""
    kinds = type(loader).mro()
    own = any({"__iter__", "_get_iterator"} & vars(kind).keys() for kind in kinds[: kinds.index(DataLoader)])
    return not own and not isinstance(loader.dataset, IterableDataset)


@runtime_checkable
class BatchedDataset(Protocol):
    """A dataset that fetches the samples of a batch at once."""

    def __getitems__(self, index: list[Any], /) -> Any:
        """The samples, for `collate_fn`."""
        ...


@final
class IndexedLoader:
    """The batches of a loader over an indexed dataset, of which any can be read without the others.

    They are read through one further loader of the same dataset and the same settings, so that workers that stay alive
    do so between epochs. It asks for picks instead of indices.

    Args:
        loader: As the user made it; it is not iterated itself.

    Raises:
        ContractError: Its sampler can be read only once, or gives every process a share of its own; or its batches come
            in an order that depends on the workers' speed.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        _check_in_order(loader)
        own = loader.generator
        self._own_seed = None if own is None else own.initial_seed()
        self._base = torch.Generator()  # draws what workers begin with; never the order
        self._readings = 0
        self._order = Order(Samplers(loader))
        self._loader: DataLoader[Any] = DataLoader(
            PickedSamples(loader.dataset, listed=loader.batch_sampler is not None),
            batch_size=None,  # a pick is a whole batch
            sampler=self._order,
            collate_fn=loader.collate_fn,
            generator=self._base,
            persistent_workers=loader.persistent_workers,
            worker_init_fn=WorkerStart(loader.worker_init_fn),
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            multiprocessing_context=loader.multiprocessing_context,
            prefetch_factor=loader.prefetch_factor,
        )

    def batches(self, epoch: int, *, start: int, step: int) -> Iterator[Any]:
        """The batches from `start` on, every `step`-th; the others are not fetched.

        Raises:
            ContractError: The order of an epoch is another one each time it is read; or, when the next batch is asked
            for, workers that stay alive have been given another reading.
        """
        seed = self._seed(epoch)
        self._order.check(epoch, seed)
        self._order.wanted = BatchRange(epoch=epoch, seed=seed, start=start, step=step)
        self._base.manual_seed(seed)
        self._readings += 1
        return self._alone(iter(self._loader)) if self._loader.persistent_workers else iter(self._loader)

    def _alone(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches of workers that stay alive, and can serve but one reading at a time."""
        reading = self._readings
        while batch := tuple(islice(batches, 1)):
            yield batch[0]
            if reading != self._readings:
                raise ContractError(
                    "a loader with persistent_workers=True was read again while an epoch of it was under way, as by a "
                    "validation over the training's source, and its workers dropped the rest of the epoch; give the "
                    "other reading a source with a loader of its own"
                )

    def digest(self, epoch: int) -> str:
        """Stands for the beginning of an epoch's order."""
        return self._order.digest(epoch, self._seed(epoch))

    def _seed(self, epoch: int) -> int:
        """That of the loader's own generator decides, or that of torch's, which the loop sets for every epoch."""
        return mixed(torch.initial_seed() if self._own_seed is None else self._own_seed, epoch) % 2**63


@final
class PickedSamples(Dataset[Any]):
    """A dataset that is asked by picks: all that is drawn for a batch comes from the pick's seed.

    In a worker this holds for the generators of torch, Python and NumPy. In the training's own process torch's alone is
    set, because the training goes on with the others.

    Args:
        dataset: What is read.
        listed: Whether a pick holds a list of indices.
    """

    def __init__(self, dataset: Dataset[Any], *, listed: bool) -> None:
        self.dataset = dataset
        self._listed = listed
        self._bulk = dataset if isinstance(dataset, BatchedDataset) else None

    def __getitem__(self, pick: Pick) -> Any:
        """What the loader's `collate_fn` makes a batch of."""
        seed, index = pick
        if get_worker_info() is None:
            torch.default_generator.manual_seed(seed)
        else:
            seed_host(seed)
        return self._samples(index) if self._listed else self.dataset[index]

    def _samples(self, index: list[Any]) -> Any:
        return [self.dataset[one] for one in index] if self._bulk is None else self._bulk.__getitems__(index)


@final
class WorkerStart:
    """Starts a worker: it sees its own dataset, as without the loop.

    Args:
        then: The loader's `worker_init_fn`.
    """

    def __init__(self, then: Callable[[int], object] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        """Give `get_worker_info().dataset` the meaning that it has in every worker, and go on."""
        info: Any = get_worker_info()
        object.__setattr__(info, "dataset", info.dataset.dataset)
        if self._then is not None:
            self._then(worker)


@final
class StreamLoader:
    """Batches that can only be read one after the other, from a loader that is not taken apart.

    Python's and NumPy's generators are set for the epoch, too, wherever this process draws; torch's is set already.

    Args:
        loader: Over an `IterableDataset`, or of a class that reads in a way of its own.

    Raises:
        ContractError: A sampler gives every process a share of its own, or can be read only once; the batches come in
            an order that depends on the workers' speed; or workers stay alive that cannot be replaced.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        _check_in_order(loader)
        self._samplers = None if isinstance(loader.dataset, IterableDataset) else Samplers(loader)
        self._own_seed = None if loader.generator is None else loader.generator.initial_seed()
        self._loader = _restarting(loader) if loader.persistent_workers else loader

    def batches(self, epoch: int, *, start: int, step: int) -> Iterator[Any]:
        """All batches from the first on are read, and those not wanted dropped."""
        return islice(self._all(epoch), start, None, step)

    def _all(self, epoch: int) -> Iterator[Any]:
        seed, loader = mixed(torch.initial_seed(), epoch), self._loader
        generators = LighterGenerators(seed)
        with generators:
            if self._samplers is not None:
                self._samplers.begin(epoch, seed)
            if isinstance(loader.dataset, EpochAware):
                loader.dataset.set_epoch(epoch)
            if loader.generator is not None and self._own_seed is not None:
                loader.generator.manual_seed(mixed(self._own_seed, epoch))
            batches = iter(loader)
        while True:
            with generators:
                batch = tuple(islice(batches, 1))
            if not batch:
                return
            yield batch[0]


def _restarting(loader: DataLoader[Any]) -> DataLoader[Any]:
    """The same loader of a stream with workers that are started for every epoch.

    What workers that stay alive draw depends on all that they have drawn before, which a resumed training cannot know.
    """
    if type(loader) is not DataLoader:
        raise ContractError(
            f"a {type(loader).__name__} reads in a way of its own, and workers that stay alive draw other random "
            "numbers after a resume; give it persistent_workers=False"
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
            "the loader has in_order=False, so its batches come in an order that depends on the workers' speed, and a "
            "training could not resume in mid-epoch; give it in_order=True, or give LiveSource(loader), which is never "
            "read again"
        )
