"""Where batches come from. The order of an epoch is a function of seed and epoch alone."""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, Protocol, Self, TypeVar, final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from trainers.loop.data.tree import describe, leaves, map_tensors
from trainers.loop.errors import ContractError, SettingsError
from trainers.loop.machine.seeding import mixed

Batch = TypeVar("Batch")
Batch_co = TypeVar("Batch_co", covariant=True)


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
            start: The first batch wanted: a training that goes on in mid-epoch, or a process of a group, begins there.
            step: Every so many of the following ones: the processes of a group take turns.
        """
        ...


@final
class IterableSource(Generic[Batch]):
    """Any iterable that can be read again, such as a list of batches or a `DataLoader`.

    Its order is the iterable's own. A `DataLoader` that shuffles draws it from torch's global generator, which the loop
    sets anew before every epoch, or from a generator of its own, which is set here; so the epoch can be read again.
    Batches that are not wanted are read and dropped.

    Args:
        batches: Gives a fresh iterator each time it is iterated; not a generator.
        length: Batches in an epoch; if not given, taken from a collection, or from a `DataLoader` that knows it.

    Raises:
        ContractError: The iterable can be read only once.
    """

    def __init__(self, batches: Iterable[Batch], *, length: int | None = None) -> None:
        if isinstance(batches, Iterator):
            raise ContractError(
                f"a {type(batches).__name__} can be read only once, but every epoch reads the batches again; "
                "give a list, a DataLoader or a class with __iter__"
            )
        self._batches = batches
        self._length = _length(batches) if length is None else length
        self._generator: torch.Generator | None = batches.generator if isinstance(batches, DataLoader) else None
        self._seed = 0 if self._generator is None else self._generator.initial_seed()

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
        """The iterable's batches; the epoch decides only what a `DataLoader` draws from a generator of its own."""
        if self._generator is not None:
            self._generator.manual_seed(mixed(self._seed, epoch))
        return islice(iter(self._batches), start, None, step)


@final
class ResidentSource(Generic[Batch]):
    """Batches picked from data that stays in memory, on the host or on the device, by a shuffled index.

    Args:
        gather: Makes the batch of some samples from their index (int64 [N]) and from nothing else: beside a GPU it is
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
        found = [tensor for _, tensor in leaves(data)]
        if len({tensor.shape[:1] for tensor in found}) != 1 or not found[0].ndim:
            raise ContractError(f"tensors of one common first dimension are needed, got {describe(data)}")

        def gather(index: Tensor) -> Batch:
            return map_tensors(data, lambda tensor: tensor.index_select(0, index))

        return cls(
            gather,
            samples=found[0].shape[0],
            batch_size=batch_size,
            seed=seed,
            shuffle=shuffle,
            drop_last=drop_last,
            device=found[0].device,
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
        found = [tensor for _, tensor in leaves(series)]
        if len({tensor.shape[:1] for tensor in found}) != 1 or not found[0].ndim:
            raise ContractError(f"tensors of one common length in time are needed, got {describe(series)}")
        steps, device = found[0].shape[0], found[0].device
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
        """The batches of an epoch, in an order that depends on seed and epoch alone; others are not gathered."""
        order = (
            permutation(self._samples, seed=self._seed, epoch=epoch) if self._shuffle else torch.arange(self._samples)
        )
        order = order.to(self._device)
        for batch in range(start, self.length, step):
            yield self._gather(order[batch * self._batch_size : (batch + 1) * self._batch_size])


def _length(batches: Iterable[Any]) -> int | None:
    if isinstance(batches, DataLoader):
        return None if isinstance(batches.dataset, IterableDataset) else len(batches)
    return len(batches) if isinstance(batches, Collection) else None


def permutation(samples: int, *, seed: int, epoch: int) -> Tensor:
    """The order of an epoch: int64 [samples], a function of the arguments alone."""
    return torch.randperm(samples, generator=torch.Generator().manual_seed(mixed(seed, epoch)))
