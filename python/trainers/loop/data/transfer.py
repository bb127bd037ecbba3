"""Transfer of batches to the device: once per window for all phases, and one window ahead.

On a CPU nothing is copied. Elsewhere the windows stay batches on the host, so that counts, pieces and messages are
made of them without a wait; whatever uses a batch asks for its copy. A source whose batches do not depend on when they
are read is read one window ahead, after everything of a window has been queued and before its results are waited for.
When memory runs out, the copies are dropped first and permanently; then only pieces are moved.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, final

import torch
from torch import Tensor

from trainers.loop.data.sources import IterableSource, ResidentSource, Source
from trainers.loop.data.tree import indivisible, leaves, map_tensors, mover
from trainers.loop.device import is_out_of_memory, total_bytes

Batch = TypeVar("Batch")
Tree = TypeVar("Tree")

SHARE = 32
"""A window lies on the device as a whole only if it takes at most this part of the memory there: with the next one, a
sixteenth, which is inputs alone and no activations. Larger windows are moved batch by batch."""

UNPINNED = 64 * 1024
"""Bytes. Smaller tensors CUDA copies without a wait from any memory; larger ones only from pinned memory
(https://docs.nvidia.com/cuda/cuda-runtime-api/api-sync-behavior.html)."""


class Feeder(Protocol):
    """What a run asks for the batches of its windows."""

    def windows(self, windows: Iterator[tuple[Batch, ...]], *, ahead: bool) -> Iterator[tuple[Batch, ...]]:
        """The windows of an epoch, batches on the host; nothing stays behind when the iterator is closed.

        Args:
            windows: Reads them.
            ahead: Whether they may be read ahead, as `foreseeable` says.
        """
        ...

    def look_ahead(self) -> None:
        """ReadWindow the next window, if it may be; called when all that a window computes is queued."""
        ...

    def move(self, batch: Tree, /) -> Tree:
        """A batch of the window, or a piece of one, on the device."""
        ...

    def give_up(self) -> bool:
        """Free every copy, because memory ran out, and keep none from now on; whether there was one."""
        ...


class DeviceTransfer(Protocol):
    """Copies batches to a device."""

    @property
    def overlaps(self) -> bool:
        """Whether copies overlap with the computation."""
        ...

    def readied(self, batch: Tree) -> Tree:
        """The batch in memory that it can be copied from without a wait."""
        ...

    def moved(self, batch: Tree) -> Tree:
        """Its copy, for what is queued from now on."""
        ...

    def sent(self, batch: Tree) -> Tree:
        """Its copy, which may be used only once it was received."""
        ...

    def received(self, batch: Any) -> None:
        """Let what is queued from now on wait until the copy has arrived."""
        ...


def foreseeable(source: Source[Any]) -> bool:
    """Whether a source gives the same batches if it is read one window ahead of the training.

    True of data in memory, of lists, and of a `DataLoader` with workers, which read ahead themselves. Another source
    may make its batches of what the training has come to, such as rollouts.
    """
    return isinstance(source, ResidentSource) or (isinstance(source, IterableSource) and source.foreseeable)


def feeder_for(device: torch.device, *, phases: int) -> Feeder:
    """What feeds a device.

    Args:
        device: Where the modules are.
        phases: How many may use the same batches.
    """
    if device.type == "cpu":
        return DirectFeeder(device)
    carrier = StreamTransfer(device) if device.type == "cuda" else DirectTransfer(device)
    memory = total_bytes(device)
    return Prefetcher(carrier, most=0 if memory is None else memory // SHARE, shared=phases > 1)


@final
class DirectFeeder:
    """Moves whatever is asked for, when it is asked for; on a CPU that is nothing at all."""

    def __init__(self, device: torch.device) -> None:
        self.move = mover(device)

    def windows(self, windows: Iterator[tuple[Batch, ...]], *, ahead: bool) -> Iterator[tuple[Batch, ...]]:  # noqa: ARG002
        """As they are."""
        return windows

    def look_ahead(self) -> None:
        """There is nothing to gain."""

    def give_up(self) -> bool:
        """There is no copy."""
        return False


@dataclass(slots=True)
class ReadWindow(Generic[Batch]):
    """A window that was read.

    Attributes:
        window: Its batches; None after the last window.
        copies: Those on the device, by the `id` of their batch.
        failure: What reading it raised.
    """

    window: tuple[Batch, ...] | None = None
    copies: dict[int, Any] = field(default_factory=dict[int, Any])
    failure: Exception | None = None


@final
class Prefetcher:
    """Keeps the copies of a window for all phases, and fetches the next one's meanwhile.

    Args:
        carrier: Copies to the device.
        most: Bytes of a window that may lie on the device.
        shared: Whether several phases use the same batches.
    """

    def __init__(self, carrier: DeviceTransfer, *, most: int, shared: bool) -> None:
        self._carrier = carrier
        self._most = most
        self._shared = shared
        self._crowded = False
        self._ahead = False
        self._windows: Iterator[tuple[Any, ...]] = iter(())
        self._now: ReadWindow[Any] = ReadWindow()
        self._next: ReadWindow[Any] | None = None

    def windows(self, windows: Iterator[tuple[Batch, ...]], *, ahead: bool) -> Iterator[tuple[Batch, ...]]:
        """The windows of an epoch, in memory that they can be copied from without a wait."""
        self._windows, self._ahead = windows, ahead and self._carrier.overlaps
        try:
            while (window := self._taken().window) is not None:
                yield window
        finally:
            self._windows, self._now, self._next = iter(()), ReadWindow(), None

    def look_ahead(self) -> None:
        """ReadWindow the next window and send it; an error is raised when the window is wanted, which is not now."""
        if self._ahead and self._next is None:
            try:
                self._next = self._read()
                self._send(self._next)
            except Exception as error:  # noqa: BLE001  raised when the window is taken
                self._next = ReadWindow(failure=error)

    def move(self, batch: Tree, /) -> Tree:
        """The copy of a batch of the window, kept where another phase may ask for it too; or that of a piece."""
        copy = self._now.copies.get(id(batch))
        if copy is None:
            copy = self._carrier.moved(batch)
            if self._shared and self._fits(self._now) and any(batch is whole for whole in self._now.window or ()):
                self._now.copies[id(batch)] = copy
        return copy

    def give_up(self) -> bool:
        """Free the copies of this window and of the next."""
        self._crowded = True
        reads = [self._now] if self._next is None else [self._now, self._next]
        held = any(read.copies for read in reads)
        for read in reads:
            read.copies.clear()
        return held

    def _taken(self) -> ReadWindow[Any]:
        """The next window, ready to be used."""
        self._now = ReadWindow()  # its copies first, so that there are never those of three windows
        taken, self._next = self._read() if self._next is None else self._next, None
        if taken.failure is not None:
            raise taken.failure
        for copy in taken.copies.values():
            self._carrier.received(copy)
        self._now = taken
        return taken

    def _read(self) -> ReadWindow[Any]:
        window = next(self._windows, None)
        return ReadWindow(None if window is None else tuple([self._carrier.readied(batch) for batch in window]))

    def _send(self, read: ReadWindow[Any]) -> None:
        """Begin to copy a window; where memory is short, none is kept on the device from now on."""
        # The memory of an object that moves itself could not be kept until the stream that computes is done with it.
        if not self._fits(read) or any(indivisible(batch) for batch in read.window or ()):
            return
        try:
            for batch in read.window or ():
                read.copies[id(batch)] = self._carrier.sent(batch)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._crowded = True
            read.copies.clear()

    def _fits(self, read: ReadWindow[Any]) -> bool:
        """Whether the window may lie on the device."""
        if self._crowded:
            return False
        return sum(_size(tensor) for batch in read.window or () for _, tensor in leaves(batch)) <= self._most


@final
class DirectTransfer:
    """Copies to a device whose copies do not run beside its computation, as far as this loop knows."""

    overlaps = False

    def __init__(self, device: torch.device) -> None:
        self._move: Callable[[Any], Any] = mover(device)

    def readied(self, batch: Tree) -> Tree:
        """As it is."""
        return batch

    def moved(self, batch: Tree) -> Tree:
        """Its copy."""
        return self._move(batch)

    def sent(self, batch: Tree) -> Tree:
        """Its copy."""
        return self._move(batch)

    def received(self, batch: Any) -> None:
        """It was there at once."""


@final
class StreamTransfer:
    """Copies to a CUDA device on a separate stream.

    Args:
        device: With its number.
    """

    overlaps = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._move: Callable[[Any], Any] = mover(device)
        self._stream = torch.cuda.Stream(device)

    def readied(self, batch: Tree) -> Tree:
        """In pinned memory, which torch does not use again before the copy from it is done."""
        return map_tensors(batch, _pinned)

    def moved(self, batch: Tree) -> Tree:
        """Its copy, on the stream that computes."""
        return self._move(batch)

    def sent(self, batch: Tree) -> Tree:
        """Its copy, in memory that belongs to the stream of copies."""
        with torch.cuda.stream(self._stream):
            return self._move(batch)

    def received(self, batch: Any) -> None:
        """Let the stream that computes wait for the copies, and their memory be used again only after that stream."""
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(self._stream)
        for _, tensor in leaves(batch):
            if tensor.is_cuda:
                tensor.record_stream(computing)


def _pinned(tensor: Tensor) -> Tensor:
    """The tensor in pinned memory; as it is if it is small, elsewhere, or more than plain numbers."""
    plain = type(tensor) is Tensor and tensor.layout == torch.strided and not tensor.requires_grad
    if not plain or not tensor.is_cpu or _size(tensor) <= UNPINNED or tensor.is_pinned():
        return tensor
    return torch.empty_like(tensor, pin_memory=True).copy_(tensor)


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
