"""Sources of batches, whose order depends only on the seed and the epoch."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, Protocol, Self, TypeVar, cast, final, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from trainers.loop.data.loader import IndexedLoader, StreamLoader, has_indexed_batches
from trainers.loop.data.tree import describe, find_uncuttable, iterate_tensors, map_tensors
from trainers.loop.device import derive_seed
from trainers.loop.errors import ContractError, SettingsError

Batch = TypeVar("Batch")
Batch_co = TypeVar("Batch_co", covariant=True)


END = object()
"""Sentinel after the last batch."""


@runtime_checkable
class Source(Protocol[Batch_co]):
    """Batches that can be read again for every epoch."""

    @property
    def length(self) -> int | None:
        """Batches in an epoch; None if unknown."""
        ...

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[Batch_co]:
        """Return the batches of an epoch, always in the same order for the same epoch.

        Args:
            epoch: The epoch, counted from 0.
            start: The first batch to return, for a resume in mid-epoch or for a process of a group.
            step: Distance from one batch to the next, for the processes of a group.
        """
        ...


@final
class IterableSource(Generic[Batch]):
    """Any iterable that can be read again, such as a list of batches or a `DataLoader`.

    For a `DataLoader` over a dataset with indices, the loop reads the order from the samplers, and the workers fetch
    only the batches that this process needs. The order depends only on the epoch and on the seed of the loader's
    generator or of the training, also if samplers draw from Python's or NumPy's generators or have generators as
    attributes. A sampler with `set_epoch` gets the epoch. The random draws for a batch in a worker, or from torch's
    generator without workers, depend only on the epoch and the number of the batch.

    For any other iterable, all batches are read and the unneeded ones dropped. The iterable decides the order; its
    draws from torch's global generator depend only on seed and epoch. For a `DataLoader` over an `IterableDataset`, the
    same holds for Python's and NumPy's generators, and its workers are started again for every epoch.

    Args:
        batches: An iterable that returns a new iterator each time; not a generator.
        length: Batches in an epoch, which ends after them. By default it is the length of the collection or
            `DataLoader`, if known.

    Attributes:
        length: Batches in an epoch; None if unknown.
        sequential_class: The class of an iterable that must be read from the start to reach a batch; None if any
            batch can be read directly.
        seeds_every_batch: Whether torch's generator is seeded for every batch when it is read.

    Raises:
        ContractError: The iterable, or a loader's sampler, can be read only once; a `DistributedSampler` shards the
            data by process; or the order of a loader's batches is not reproducible.
    """

    def __init__(self, batches: Iterable[Batch], *, length: int | None = None) -> None:
        if isinstance(batches, Iterator):
            raise ContractError(
                f"a {type(batches).__name__} can be read only once, but every epoch reads the batches again; "
                "use a list, a DataLoader or a class with __iter__, or LiveSource(...) if the batches are available "
                "only once"
            )
        self._limit = length
        self.length = _find_length(batches) if length is None else length
        self._batches = batches
        self._loader: IndexedLoader | StreamLoader | None = None
        self.sequential_class = None if isinstance(batches, Sequence) else type(batches).__name__
        if isinstance(batches, DataLoader):
            if has_indexed_batches(batches):
                self._loader, self.sequential_class = IndexedLoader(batches), None
            else:
                self._loader = StreamLoader(batches)
                self.sequential_class = f"{type(batches).__name__} of {type(batches.dataset).__name__}"
        self.seeds_every_batch = isinstance(self._loader, IndexedLoader)

    @property
    def can_read_ahead(self) -> bool:
        """Whether batches may be read ahead: those of a list, or of a loader's workers."""
        batches = self._batches
        return isinstance(batches, list | tuple) or (isinstance(batches, DataLoader) and batches.num_workers > 0)

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[Batch]:
        """Return the iterable's batches; the epoch determines the random draws of a `DataLoader`.

        Raises:
            ContractError: A sampler of a `DataLoader` gives a different order each time it is read.
        """
        count = None if self._limit is None else len(range(start, self._limit, step))
        if self._loader is not None:
            batches = self._loader.batches(epoch, start=start, step=step)
            return batches if count is None else islice(batches, count)
        return islice(iter(self._batches), start, self._limit, step)

    def digest(self, epoch: int) -> str:
        """Return a hash of the beginning of an epoch's order; empty if the loop does not control the order."""
        return self._loader.digest(epoch) if isinstance(self._loader, IndexedLoader) else ""


@final
class LiveSource(Generic[Batch]):
    """Batches that are available only once, such as those of a replay buffer, an environment or a feed.

    A training run that resumes in mid-epoch continues with the next batch: nothing is skipped or read again, and a
    notice reports this. The source draws from the training's generators, which the checkpoint saves. In a group, every
    process has a separate source and reads all of its batches.

    Args:
        batches: The batches. Every epoch calls `iter` on them, so an iterator continues where it stopped.
        length: Batches in an epoch, in total over all processes of a group; None for all batches, which is possible
            with one process only. With one process, an epoch may end earlier.

    Attributes:
        length: Batches in an epoch; None if unknown.
    """

    def __init__(self, batches: Iterable[Batch], *, length: int | None = None) -> None:
        self._batches = batches
        self.length = length

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[Batch]:  # noqa: ARG002  no epoch is repeated
        """Return the next batches, as many as `start` and `step` leave of the epoch."""
        count = None if self.length is None else len(range(start, self.length, step))
        return islice(iter(self._batches), count)


@final
class ResidentSource(Generic[Batch]):
    """Batches gathered by a shuffled index from data in the memory of the host or the device.

    Args:
        gather: Returns the batch for the index of its samples (int64 [N]). It must not depend on anything else,
            because batches for a GPU are read a window ahead.
        samples: Number of samples.
        batch_size: Samples in a batch; the last batch of an epoch may be smaller.
        seed: Determines the order together with the epoch.
        shuffle: False keeps the order of the samples, as for validation.
        drop_last: Drop a last batch that is not full. It is rarely needed, because the loop weights batches by count.
        device: The device of the index that `gather` gets.

    Raises:
        SettingsError: `samples` or `batch_size` is below 1.
    """

    def __init__(
        self,
        gather: Callable[[Tensor], Batch],
        *,
        samples: int,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        if samples < 1 or batch_size < 1:
            raise SettingsError(f"samples is {samples} and batch_size is {batch_size}; both must be 1 or more")
        self._gather = gather
        self._samples = samples
        self._batch_size = batch_size
        self._seed = seed
        self._shuffle = shuffle
        self._drop_last = drop_last
        self._device = device

    @classmethod
    def of(cls, data: Batch, *, batch_size: int, seed: int = 0, shuffle: bool = True, drop_last: bool = False) -> Self:
        """Create a source over tensors of shape [samples, …] in a tuple, NamedTuple, list, dict or dataclass.

        Raises:
            ContractError: There is no tensor, or the first dimensions differ.
        """
        first = _find_first_tensor(data, "first dimension")

        def gather(index: Tensor) -> Batch:
            return map_tensors(data, lambda tensor: tensor.index_select(0, index))

        return cls(
            gather,
            samples=len(first),
            batch_size=batch_size,
            seed=seed,
            shuffle=shuffle,
            drop_last=drop_last,
            device=first.device,
        )

    @classmethod
    def of_windows(
        cls,
        series: Batch,
        *,
        length: int,
        batch_size: int,
        starts: Tensor | None = None,
        seed: int = 0,
        shuffle: bool = True,
    ) -> Self:
        """Create a source of windows [N, length, …], which are cut from series [time, …] for every batch.

        Args:
            series: Tensors of the same length in time, in a tuple, NamedTuple, list, dict or dataclass. Several series
                may be concatenated; `starts` must then leave out the windows that cross a boundary.
            length: Steps of a window.
            batch_size: Windows in a batch.
            starts: The first steps of the windows, int64 [samples]; None takes all windows.
            seed: As for the class.
            shuffle: As for the class.

        Raises:
            ContractError: There is no tensor, the lengths differ, or a window extends beyond the series.
        """
        first = _find_first_tensor(series, "length in time")
        total, device = len(first), first.device
        begin = torch.arange(max(0, total - length + 1)) if starts is None else starts
        if not len(begin) or begin.min() < 0 or begin.max() + length > total:
            raise ContractError(f"no window of {length} steps fits at every start in {describe(series)}; check starts")
        begin, offsets = begin.to(device), torch.arange(length, device=device)

        def gather(index: Tensor) -> Batch:
            steps = (begin[index, None] + offsets).flatten()
            shape = (len(index), length)
            return map_tensors(series, lambda tensor: tensor.index_select(0, steps).reshape(*shape, *tensor.shape[1:]))

        return cls(gather, samples=len(begin), batch_size=batch_size, seed=seed, shuffle=shuffle, device=device)

    @property
    def length(self) -> int:
        """Batches in an epoch."""
        full, rest = divmod(self._samples, self._batch_size)
        return full + (1 if rest and not self._drop_last else 0)

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[Batch]:
        """Gather every `step`-th batch of an epoch, in an order that depends only on seed and epoch."""
        order = (
            shuffle_indices(self._samples, seed=self._seed, epoch=epoch)
            if self._shuffle
            else torch.arange(self._samples)
        )
        order = order.to(self._device)
        for batch in range(start, self.length, step):
            yield self._gather(order[batch * self._batch_size : (batch + 1) * self._batch_size])


def check_source(source: object) -> None:
    """Check that an object is a source.

    Raises:
        ContractError: The object is not a `Source`; the message says what to pass instead.
    """
    if isinstance(source, Source):
        return
    problem = f"the source is a {type(source).__name__}"
    custom = "a custom Source with length and batches(epoch)"
    if isinstance(source, Iterable):
        wrapper = "LiveSource(...)" if isinstance(source, Iterator) else "IterableSource(...)"
        raise ContractError(f"{problem}; wrap it in {wrapper}, or use {custom}")
    raise ContractError(f"{problem}, which has no batches; use a ResidentSource, an IterableSource or {custom}")


def _find_first_tensor(tree: object, common: str) -> Tensor:
    """Return the first tensor of a tree, and check that all tensors have the same first dimension."""
    tensors = [tensor for _, tensor in iterate_tensors(tree)]
    if len({tensor.shape[:1] for tensor in tensors}) != 1 or not tensors[0].ndim or find_uncuttable(tree):
        raise ContractError(f"expected tensors of one common {common}, got {describe(tree)}")
    return tensors[0]


def _find_length(batches: Iterable[Any]) -> int | None:
    if not isinstance(batches, DataLoader):
        return len(batches) if isinstance(batches, Collection) else None
    if isinstance(batches.dataset, IterableDataset):
        return None
    try:
        return len(batches)
    except (TypeError, NotImplementedError):  # a sampler of unknown length, or a BatchSampler around one
        return None


def shuffle_indices(samples: int, *, seed: int, epoch: int) -> Tensor:
    """Return the order of an epoch, int64 [samples]; it depends only on the arguments."""
    return torch.randperm(samples, generator=torch.Generator().manual_seed(derive_seed(seed, epoch)))


def read_batches(source: Source[Batch], epoch: int, *, start: int, step: int, seed: int) -> Iterator[Batch]:
    """Yield a source's batches, and give torch's generator a separate state while the source is read.

    Orders and augmentations that are drawn from torch's generator therefore depend only on seed and epoch, and a
    training that resumes in mid-epoch reads the same batches. The generators of Python and NumPy have a separate state
    only in sources that read a `DataLoader`. A live source draws from the training's generators.

    Args:
        source: The source to read.
        epoch: The epoch, counted from 0.
        start: The first batch.
        step: Distance from one batch to the next.
        seed: 0 or more.
    """
    # A resident source seeds its own order, and a live source continues after a resume.
    if isinstance(source, ResidentSource | LiveSource):
        yield from source.batches(epoch, start=start, step=step)
        return
    generator = torch.default_generator
    keeps_state = not isinstance(source, IterableSource) or not source.seeds_every_batch
    source_state = torch.Generator().manual_seed(derive_seed(seed, epoch)).get_state()
    batches: Iterator[Batch] | None = None
    while True:
        loop_state = generator.get_state()
        if keeps_state or batches is None:  # otherwise every batch seeds it
            generator.set_state(source_state)
        try:
            batches = source.batches(epoch, start=start, step=step) if batches is None else batches
            batch = next(batches, END)
            if keeps_state:
                source_state = generator.get_state()
        finally:
            generator.set_state(loop_state)
        if batch is END:
            return
        yield cast("Batch", batch)


def hash_order(source: Source[object], epoch: int, *, seed: int) -> str:
    """Return a hash of the beginning of an epoch's order; empty if the loop does not control the order."""
    if not isinstance(source, IterableSource):
        return ""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(seed, epoch))
        return source.digest(epoch)


def describe_reading(source: Source[object], *, epoch: int, window: int, processes: int) -> list[str]:
    """Return notices for the user on how a source is read from a window of an epoch on."""
    messages: list[str] = []
    if isinstance(source, LiveSource) and window:
        messages.append(
            f"the source is live, so no batch of epoch {epoch + 1} is read again or skipped: the next batches are "
            f"window {window + 1}"
        )
    if isinstance(source, IterableSource) and source.sequential_class and processes > 1:
        messages.append(
            f"each of the {processes} processes reads and decodes all of {source.sequential_class} and drops the "
            "batches of the others; with a DataLoader over a dataset with indices, each process reads only its own "
            "batches"
        )
    return messages
