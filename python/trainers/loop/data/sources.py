"""Sources of batches. The order of an epoch depends only on the seed and the epoch."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, Protocol, Self, TypeVar, cast, final, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from trainers.loop.data.loader import IndexedLoader, StreamLoader, taken_apart
from trainers.loop.data.tree import describe, leaves, map_tensors, of_one_piece
from trainers.loop.device import mixed
from trainers.loop.errors import ContractError, SettingsError

Batch = TypeVar("Batch")
Batch_co = TypeVar("Batch_co", covariant=True)


END = object()
"""Comes after the last batch."""


@runtime_checkable
class Source(Protocol[Batch_co]):
    """Batches that can be read again for every epoch."""

    @property
    def length(self) -> int | None:
        """Batches in an epoch; None if that is not known."""
        ...

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[Batch_co]:
        """The batches of an epoch, in the same order whenever the same epoch is asked for.

        Args:
            epoch: Counted from 0.
            start: The first batch wanted: a training that resumes in mid-epoch, or a process of a group, begins there.
            step: From each batch to the next one wanted: the processes of a group take turns.
        """
        ...


@final
class IterableSource(Generic[Batch]):
    """Any iterable that can be read again, such as a list of batches or a `DataLoader`.

    Of a `DataLoader` over a dataset with indices, the loop takes the order from the samplers and has its workers fetch
    the batches that it wants alone. The order is a function of the epoch and of the loader's own generator, or else of
    the training's seed, also where samplers draw from Python's or NumPy's generators, or keep generators of their own;
    a sampler with `set_epoch` is told the epoch. What is drawn for a batch in a worker, or from torch's generator
    without workers, is a function of the epoch and the batch's number.

    Of any other iterable, the batches that are not wanted are read and dropped, and its order is its own. What it draws
    from torch's global generator is a function of seed and epoch; of a `DataLoader` over an `IterableDataset` this
    holds for Python's and NumPy's generators, too, and its workers are started again for every epoch.

    Args:
        batches: Gives a fresh iterator each time it is iterated; not a generator.
        length: Batches in an epoch, which ends after them; if not given, taken from a collection, or from a
            `DataLoader` that knows it.

    Attributes:
        passed_over: What must be read to the end to reach a batch, by its class; None if any batch can be read alone.
        sets_every_batch: Whether torch's generator is set for every batch when it is read.

    Raises:
        ContractError: The iterable, or a loader's sampler, can be read only once; a `DistributedSampler` gives every
            process a share of its own; or a loader's batches come in an order that differs from time to time.
    """

    def __init__(self, batches: Iterable[Batch], *, length: int | None = None) -> None:
        if isinstance(batches, Iterator):
            raise ContractError(
                f"a {type(batches).__name__} can be read only once, but every epoch reads the batches again; "
                "give a list, a DataLoader or a class with __iter__, or LiveSource(...) if the batches come only once"
            )
        self._given = length
        self._length = _length(batches) if length is None else length
        self._batches = batches
        self._loading: IndexedLoader | StreamLoader | None = None
        if isinstance(batches, DataLoader):
            self._loading = IndexedLoader(batches) if taken_apart(batches) else StreamLoader(batches)
        self.passed_over = _passed_over(batches)
        self.sets_every_batch = isinstance(self._loading, IndexedLoader)

    @property
    def length(self) -> int | None:
        """Batches in an epoch; None if that is not known."""
        return self._length

    @property
    def foreseeable(self) -> bool:
        """Whether its batches are the same however early they are read: a list's, or those of a loader's workers."""
        batches = self._batches
        return isinstance(batches, list | tuple) or (isinstance(batches, DataLoader) and batches.num_workers > 0)

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[Batch]:
        """The iterable's batches; the epoch decides what a `DataLoader` draws.

        Raises:
            ContractError: A sampler of a `DataLoader` gives another order each time it is read.
        """
        wanted = None if self._given is None else len(range(start, self._given, step))
        if self._loading is not None:
            batches = self._loading.batches(epoch, start=start, step=step)
            return batches if wanted is None else islice(batches, wanted)
        return islice(iter(self._batches), start, self._given, step)

    def digest(self, epoch: int) -> str:
        """Stands for the beginning of the order of an epoch; empty where it is the iterable's own."""
        return self._loading.digest(epoch) if isinstance(self._loading, IndexedLoader) else ""


@final
class LiveSource(Generic[Batch]):
    """Batches that come once and are never read again: a replay buffer, an environment that is played, a feed.

    A training that resumes in mid-epoch goes on with whatever comes next: nothing is skipped, nothing read again, and
    a notice says so. What it draws comes from the training's generators, which are in the checkpoint. Every process of
    a group reads a source of its own and takes all that comes.

    Args:
        batches: Iterated anew in every epoch; an iterator, such as a generator that plays without end, goes on.
        length: Batches in an epoch, those of all processes of a group together; None for as many as come, which one
            process alone can do with. With one process an epoch may end earlier.
    """

    def __init__(self, batches: Iterable[Batch], *, length: int | None = None) -> None:
        self._batches = batches
        self._length = length

    @property
    def length(self) -> int | None:
        """Batches in an epoch; None if that is not known."""
        return self._length

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[Batch]:  # noqa: ARG002  no epoch is repeated
        """What comes next: as many batches as `start` and `step` leave of the epoch."""
        wanted = None if self._length is None else len(range(start, self._length, step))
        return islice(iter(self._batches), wanted)


@final
class ResidentSource(Generic[Batch]):
    """Batches picked from data that stays in memory, on the host or on the device, by a shuffled index.

    Args:
        gather: Makes the batch of some samples from their index (int64 [N]) and from nothing else: for a GPU it is
            asked a window ahead.
        samples: How many samples there are.
        batch_size: Samples in a batch; the last batch of an epoch has what is left.
        seed: Together with the epoch it gives the order.
        shuffle: False keeps the samples' own order, as validation wants it.
        drop_last: Leave out a last batch that is not full. Rarely wanted: the loop weighs small batches rightly.
        device: Where `gather` wants the index.

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
        """A source over tensors of shape [samples, …] in a tuple, NamedTuple, list, dict or dataclass.

        Raises:
            ContractError: There is no tensor, or their first dimensions differ.
        """
        first = _first_tensor(data, "first dimension")

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
        """A source of windows [N, length, …], cut from series [time, …] as they are wanted and never stored.

        Args:
            series: Tensors of one common length in time, in a tuple, NamedTuple, list, dict or dataclass. Several
                series may stand one after the other; `starts` then leaves out the windows across their borders.
            length: Steps of a window.
            batch_size: Windows in a batch.
            starts: int64 [samples]: where the windows begin; None takes all.
            seed: As for the source itself.
            shuffle: As for the source itself.

        Raises:
            ContractError: There is no tensor, their lengths differ, or a window reaches beyond the ends.
        """
        first = _first_tensor(series, "length in time")
        steps, device = len(first), first.device
        begin = torch.arange(max(0, steps - length + 1)) if starts is None else starts
        if not len(begin) or begin.min() < 0 or begin.max() + length > steps:
            raise ContractError(f"there is no window of {length} steps at each of the starts in {describe(series)}")
        begin, offsets = begin.to(device), torch.arange(length, device=device)

        def gather(index: Tensor) -> Batch:
            places = (begin[index, None] + offsets).flatten()
            shape = (len(index), length)
            return map_tensors(series, lambda tensor: tensor.index_select(0, places).reshape(*shape, *tensor.shape[1:]))

        return cls(gather, samples=len(begin), batch_size=batch_size, seed=seed, shuffle=shuffle, device=device)

    @property
    def length(self) -> int:
        """Batches in an epoch."""
        whole, rest = divmod(self._samples, self._batch_size)
        return whole + (1 if rest and not self._drop_last else 0)

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[Batch]:
        """The batches of an epoch, in an order that depends only on seed and epoch; others are not gathered."""
        order = (
            permutation(self._samples, seed=self._seed, epoch=epoch) if self._shuffle else torch.arange(self._samples)
        )
        order = order.to(self._device)
        for batch in range(start, self.length, step):
            yield self._gather(order[batch * self._batch_size : (batch + 1) * self._batch_size])


def check_source(source: object) -> None:
    """Check that something is a source.

    Raises:
        ContractError: It is not; the message says what to give.
    """
    if isinstance(source, Source):
        return
    given = f"the source is a {type(source).__name__}"
    own = "a Source of your own, which has a length and the batches of an epoch"
    if isinstance(source, Iterable):
        around = "LiveSource(...)" if isinstance(source, Iterator) else "IterableSource(...)"
        raise ContractError(f"{given}; give {around} around it, or {own}")
    raise ContractError(f"{given}, which gives no batches; give a ResidentSource, an IterableSource or {own}")


def _first_tensor(tree: object, common: str) -> Tensor:
    """The first tensor of a tree whose tensors have one common first dimension."""
    tensors = [tensor for _, tensor in leaves(tree)]
    if len({tensor.shape[:1] for tensor in tensors}) != 1 or not tensors[0].ndim or of_one_piece(tree):
        raise ContractError(f"tensors of one common {common} are needed, got {describe(tree)}")
    return tensors[0]


def _passed_over(batches: Iterable[Any]) -> str | None:
    if isinstance(batches, DataLoader):
        return None if taken_apart(batches) else f"{type(batches).__name__} of {type(batches.dataset).__name__}"
    return None if isinstance(batches, Sequence) else type(batches).__name__


def _length(batches: Iterable[Any]) -> int | None:
    if isinstance(batches, DataLoader):
        return None if isinstance(batches.dataset, IterableDataset) else _loader_length(batches)
    return len(batches) if isinstance(batches, Collection) else None


def _loader_length(loader: DataLoader[Any]) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):  # a sampler of unknown length; a BatchSampler finds out when it is asked
        return None


def permutation(samples: int, *, seed: int, epoch: int) -> Tensor:
    """The order of an epoch: int64 [samples], a function of the arguments only."""
    return torch.randperm(samples, generator=torch.Generator().manual_seed(mixed(seed, epoch)))


def read_apart(source: Source[Batch], epoch: int, *, start: int, step: int, seed: int) -> Iterator[Batch]:
    """A source's batches, with torch's generator set for the epoch whenever the source is read.

    So an order or an augmentation that is drawn from torch's generator is a function of seed and epoch, and a training
    that resumes in mid-epoch reads what it would have read. Outside, the generator is the training's. The generators of
    Python and NumPy are kept apart only by sources that read a `DataLoader`. A live source draws from the training's.

    Args:
        source: What is read.
        epoch: Counted from 0.
        start: The first batch wanted.
        step: From each batch to the next one wanted.
        seed: 0 or more.
    """
    # The order of the one is its own, and the other continues after a resume.
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
            batch = next(batches, END)
            if goes_on:
                reading = generator.get_state()
        finally:
            generator.set_state(training)
        if batch is END:
            return
        yield cast("Batch", batch)


def order_digest(source: Source[object], epoch: int, *, seed: int) -> str:
    """Stands for the beginning of an epoch's order where a loader's samplers draw it; empty elsewhere."""
    if not isinstance(source, IterableSource):
        return ""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(mixed(seed, epoch))
        return source.digest(epoch)


def remarks(source: Source[object], *, epoch: int, window: int, processes: int) -> list[str]:
    """What a person should know of the way in which a source is read from a window of an epoch on."""
    messages: list[str] = []
    if isinstance(source, LiveSource) and window:
        messages.append(
            f"the source is live, so nothing of epoch {epoch + 1} is read again or skipped: what comes next is window "
            f"{window + 1}"
        )
    if isinstance(source, IterableSource) and source.passed_over and processes > 1:
        messages.append(
            f"each of the {processes} processes reads and decodes all of {source.passed_over} and drops the batches of "
            "the others; a DataLoader over a dataset with indices is shared out before it is read"
        )
    return messages
