"""Transfer of batches to the device: once per window for all phases, and one window ahead.

On a CPU nothing is copied. Otherwise windows hold batches on the host, so that counts, micro-batches and messages need
no synchronisation with the device; code that computes on a batch calls `move` for its copy. A source that may be read
ahead is read after a window's work is queued and before its results are read. When memory runs out, the copies are
dropped first, and from then on only micro-batches are moved.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, final

import torch
from torch import Tensor

from trainers.loop.data.sources import IterableSource, ResidentSource, Source
from trainers.loop.data.tree import find_opaque, iterate_tensors, make_mover, map_tensors
from trainers.loop.device import is_out_of_memory, measure_total_bytes

Batch = TypeVar("Batch")
Tree = TypeVar("Tree")

WINDOW_DIVISOR = 32
"""A window is copied to the device at once only if it takes at most 1/32 of the memory there. With the next window that
is 1/16, for inputs without activations. Larger windows are moved batch by batch."""

MAX_UNPINNED_BYTES = 64 * 1024
"""Bytes. CUDA copies tensors up to this size asynchronously from any memory, larger ones only from pinned memory
(https://docs.nvidia.com/cuda/cuda-runtime-api/api-sync-behavior.html)."""


def can_read_ahead(source: Source[Any]) -> bool:
    """Return whether a source may be read one window ahead of the training.

    This holds for data in memory, lists, and a `DataLoader` with workers, which read ahead anyway. The batches of
    other sources may depend on the state of the training, as rollouts do.
    """
    return isinstance(source, ResidentSource) or (isinstance(source, IterableSource) and source.can_read_ahead)


def create_feeder(device: torch.device, *, phases: int) -> "Feeder":
    """Create the feeder for a device.

    Args:
        device: The device of the modules.
        phases: Number of phases that use the same batches.
    """
    if device.type == "cpu":
        return DirectFeeder(device)
    memory = measure_total_bytes(device)
    max_bytes = 0 if memory is None else memory // WINDOW_DIVISOR
    return Prefetcher(DeviceTransfer(device), max_bytes=max_bytes, shared=phases > 1)


@final
class DirectFeeder:
    """Moves batches when they are used; on a CPU it does nothing. The methods are those of `Prefetcher`."""

    def __init__(self, device: torch.device) -> None:
        self.move = make_mover(device)

    def windows(self, windows: Iterator[tuple[Batch, ...]], *, ahead: bool) -> Iterator[tuple[Batch, ...]]:  # noqa: ARG002
        """Return the windows unchanged."""
        return windows

    def prefetch(self) -> None:
        """Do nothing."""

    def release_copies(self) -> bool:
        """Return False: this transfer makes no copies."""
        return False


@dataclass(slots=True)
class ReadWindow(Generic[Batch]):
    """A window that was read.

    Attributes:
        window: The batches; None after the last window.
        copies: The copies on the device, by the `id` of their batch.
        failure: The error that reading it raised.
    """

    window: tuple[Batch, ...] | None = None
    copies: dict[int, Any] = field(default_factory=dict[int, Any])
    failure: Exception | None = None


@final
class Prefetcher:
    """Provides the batches of a run's windows, on the host and on the device.

    It keeps the device copies of a window for all phases, and prefetches the next window.

    Args:
        transfer: Copies batches to the device.
        max_bytes: Maximum size in bytes of a window on the device.
        shared: Whether several phases use the same batches.
    """

    def __init__(self, transfer: "DeviceTransfer", *, max_bytes: int, shared: bool) -> None:
        self._transfer = transfer
        self._max_bytes = max_bytes
        self._shared = shared
        self._crowded = False
        self._ahead = False
        self._windows: Iterator[tuple[Any, ...]] = iter(())
        self._current: ReadWindow[Any] = ReadWindow()
        self._next: ReadWindow[Any] | None = None

    def windows(self, windows: Iterator[tuple[Batch, ...]], *, ahead: bool) -> Iterator[tuple[Batch, ...]]:
        """Yield the windows of an epoch in memory that allows asynchronous copies; closing the iterator frees all.

        Args:
            windows: The windows as read from the source.
            ahead: Whether they may be read ahead; see `can_read_ahead`.
        """
        self._windows, self._ahead = windows, ahead and self._transfer.can_overlap
        try:
            while (window := self._take_next().window) is not None:
                yield window
        finally:
            self._windows, self._current, self._next = iter(()), ReadWindow(), None

    def prefetch(self) -> None:
        """Read the next window and start its copies, if allowed; an error is raised when the window is taken.

        It is called when all work of the current window is queued.
        """
        if self._ahead and self._next is None:
            try:
                self._next = self._read()
                self._send(self._next)
            except Exception as error:  # noqa: BLE001  raised when the window is taken
                self._next = ReadWindow(failure=error)

    def move(self, batch: Tree, /) -> Tree:
        """Return a batch of the window, or a micro-batch of one, on the device; keep it if several phases use it."""
        copy = self._current.copies.get(id(batch))
        if copy is None:
            copy = self._transfer.copy(batch)
            is_batch = any(batch is other for other in self._current.window or ())
            if self._shared and is_batch and self._has_room(self._current):
                self._current.copies[id(batch)] = copy
        return copy

    def release_copies(self) -> bool:
        """Free all copies after memory ran out, keep none from now on, and return whether there were any."""
        self._crowded = True
        reads = [self._current] if self._next is None else [self._current, self._next]
        had_copies = any(read_window.copies for read_window in reads)
        for read_window in reads:
            read_window.copies.clear()
        return had_copies

    def _take_next(self) -> ReadWindow[Any]:
        """Return the next window, ready for use."""
        self._current = ReadWindow()  # free its copies first, so that at most two windows are on the device
        read_window, self._next = self._read() if self._next is None else self._next, None
        if read_window.failure is not None:
            raise read_window.failure
        for copy in read_window.copies.values():
            self._transfer.finish_copy(copy)
        self._current = read_window
        return read_window

    def _read(self) -> ReadWindow[Any]:
        window = next(self._windows, None)
        return ReadWindow(None if window is None else tuple([self._transfer.prepare(batch) for batch in window]))

    def _send(self, read_window: ReadWindow[Any]) -> None:
        """Start the copies of a window; if memory runs out, keep no copies from now on."""
        # `finish_copy` cannot reach the tensors inside an object with `.to`, so their memory might be reused too soon.
        if not self._has_room(read_window) or any(find_opaque(batch) for batch in read_window.window or ()):
            return
        try:
            for batch in read_window.window or ():
                read_window.copies[id(batch)] = self._transfer.start_copy(batch)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._crowded = True
            read_window.copies.clear()

    def _has_room(self, read_window: ReadWindow[Any]) -> bool:
        if self._crowded:
            return False
        return (
            sum(_count_bytes(tensor) for batch in read_window.window or () for _, tensor in iterate_tensors(batch))
            <= self._max_bytes
        )


Feeder = DirectFeeder | Prefetcher


@final
class DeviceTransfer:
    """Copies batches to a device; on CUDA, copies may overlap with computation on a separate stream.

    Args:
        device: The device; for CUDA including its index.

    Attributes:
        can_overlap: Whether copies may overlap with computation, so that `start_copy` may be called.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.copy: Callable[[Any], Any] = make_mover(device)
        self.can_overlap = self._stream is not None

    def prepare(self, batch: Tree) -> Tree:
        """Return the batch in pinned memory, which torch does not reuse before an asynchronous copy is complete."""
        return map_tensors(batch, _pin) if self.can_overlap else batch

    def start_copy(self, batch: Tree) -> Tree:
        """Start a copy on the copy stream, in memory that belongs to it; use it only after `finish_copy`."""
        with torch.cuda.stream(self._stream):
            return self.copy(batch)

    def finish_copy(self, batch: Any) -> None:
        """Make the computing stream wait for the copies, and prevent reuse of their memory until it is done."""
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(self._stream)
        for _, tensor in iterate_tensors(batch):
            if tensor.is_cuda:
                tensor.record_stream(computing)


def _pin(tensor: Tensor) -> Tensor:
    """Return the tensor in pinned memory, or unchanged if it is small, not on the CPU or not a plain dense tensor."""
    plain = type(tensor) is Tensor and tensor.layout == torch.strided and not tensor.requires_grad
    if not plain or not tensor.is_cpu or _count_bytes(tensor) <= MAX_UNPINNED_BYTES or tensor.is_pinned():
        return tensor
    return torch.empty_like(tensor, pin_memory=True).copy_(tensor)


def _count_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
