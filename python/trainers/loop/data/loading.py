"""A `DataLoader` taken apart: the loop picks the batches, the loader's own workers fetch these and no other."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol, final, runtime_checkable

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from trainers.loop.data.order import BatchRange, EpochAware, Order, Pick, Samplers
from trainers.loop.device import LighterGenerators, mixed, seed_host
from trainers.loop.errors import ContractError


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
