"""Splitting of batches into micro-batches when memory runs out."""

from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, final

from torch import Tensor

from trainers.loop.data.tree import find_uncuttable, iterate_non_tensors, iterate_tensors, map_tensors
from trainers.loop.errors import OutOfMemoryError

Batch = TypeVar("Batch")


class BatchSplitter(Protocol[Batch]):
    """Computes the size of a batch and slices it, so that the loop can cut it.

    The mean loss of a batch must equal the mean of its micro-batches' losses, weighted by their counts. If it does not,
    because the loss compares samples with each other, use `IndivisibleBatch`.
    """

    def samples(self, batch: Batch) -> int:
        """Return the number of samples in the batch; 1 if it cannot be cut."""
        ...

    def cost(self, batch: Batch) -> int:
        """Return the cost of one sample, at least 1, in any unit that grows with memory, such as padded frames."""
        ...

    def cut(self, batch: Batch, start: int, stop: int) -> Batch:
        """Return the samples from `start` up to, but not including, `stop`."""
        ...


@final
class SampleSplitter:
    """Cuts every tensor along its first dimension, which must be that of the samples; every micro-batch has all
    scalars.

    A batch is not cut if the first dimensions of its tensors differ, or if it holds something that a cut would make
    inconsistent: another object of that length, such as a list of names or a NumPy array, or an object with a method
    `.to`, such as a `PackedSequence`.
    """

    def samples(self, batch: object) -> int:
        """Return the common first dimension; 1 without tensors."""
        sizes = {tensor.shape[0] for _, tensor in iterate_tensors(batch) if tensor.ndim}
        size = max(1, sizes.pop()) if len(sizes) == 1 else 1
        if size > 1 and (
            any(
                isinstance(other, Sized) and not isinstance(other, str | bytes) and len(other) == size
                for other in iterate_non_tensors(batch)
            )
            or find_uncuttable(batch)
        ):
            return 1
        return size

    def cost(self, batch: object) -> int:  # noqa: ARG002  all samples cost the same
        """Return 1: the cost of a micro-batch is its number of samples."""
        return 1

    def cut(self, batch: Any, start: int, stop: int) -> Any:
        """Return views of the samples."""

        def rows(tensor: Tensor) -> Tensor:
            return tensor[start:stop] if tensor.ndim else tensor

        return map_tensors(batch, rows)


@final
class IndivisibleBatch:
    """Splitter for batches that must not be cut, such as a graph, or for a loss that ranks the samples of a batch."""

    def samples(self, batch: object) -> int:  # noqa: ARG002  required by the protocol
        """Return 1: the batch counts as one sample."""
        return 1

    def cost(self, batch: object) -> int:  # noqa: ARG002  required by the protocol
        """Return 1."""
        return 1

    def cut(self, batch: Any, start: int, stop: int) -> Any:  # noqa: ARG002  required by the protocol
        """Return the batch."""
        return batch


@dataclass(slots=True)
class MicroBatch(Generic[Batch]):
    """A micro-batch of a batch, or an uncut batch.

    Attributes:
        batch: The samples of the micro-batch.
        start: Index of the first sample in the batch.
        stop: Index after the last sample; None for an uncut batch.
        samples: Number of samples in the batch; 1 for an uncut batch.
        unit: Cost of one sample; 0 for an uncut batch.
    """

    batch: Batch
    start: int = 0
    stop: int | None = None
    samples: int = 1
    unit: int = 0

    @property
    def is_last(self) -> bool:
        """Whether this is the last micro-batch of its batch."""
        return self.stop is None or self.stop == self.samples

    @property
    def share(self) -> float:
        """Share of the batch's samples, 0 to 1."""
        return 1.0 if self.stop is None else (self.stop - self.start) / self.samples

    def __str__(self) -> str:
        """The range of samples, for messages."""
        return "the whole batch" if self.stop is None else f"samples {self.start} to {self.stop - 1} of {self.samples}"


@final
class BatchCutter(Generic[Batch]):
    """Cuts batches into micro-batches that fit in memory.

    Args:
        splitter: The splitter to cut batches with.
        refusal: The reason why batches must not be cut when memory runs out; None if they may be.
        free_memory: Frees unneeded memory and returns whether it freed any; called before a batch is cut.

    Attributes:
        limit: Maximum cost of a micro-batch; None as long as every batch has fit.
    """

    def __init__(
        self,
        splitter: BatchSplitter[Batch],
        *,
        refusal: str | None = None,
        free_memory: Callable[[], bool] = lambda: False,
    ) -> None:
        self._splitter = splitter
        self._refusal = refusal
        self._free_memory = free_memory
        self.limit: int | None = None

    def cut(self, batch: Batch, start: int) -> MicroBatch[Batch]:
        """Return the micro-batch that starts at a sample."""
        if self.limit is None:
            return MicroBatch(batch)
        samples = self._splitter.samples(batch)
        unit = self._splitter.cost(batch)
        stop = min(samples, start + max(1, self.limit // unit))
        if stop - start == samples:
            return MicroBatch(batch)
        return MicroBatch(self._splitter.cut(batch, start, stop), start, stop, samples, unit)

    def exceeds_limit(self, micro_batch: MicroBatch[Batch]) -> bool:
        """Return whether a micro-batch that was cut before the limit was lowered exceeds it."""
        return (
            self.limit is not None
            and self._count_samples(micro_batch) > 1
            and self._compute_cost(micro_batch) > self.limit
        )

    def lower(self, micro_batch: MicroBatch[Batch], problem: str) -> None:
        """Halve the limit after memory ran out in a micro-batch, unless memory could be freed for another attempt.

        Raises:
            OutOfMemoryError: The micro-batch is a single sample, or cutting is refused.
        """
        if self._free_memory():
            return
        if self._refusal is not None:
            raise OutOfMemoryError(f"{problem}; {self._refusal}")
        if self._count_samples(micro_batch) == 1:
            raise OutOfMemoryError(
                f"{problem}, with {micro_batch}, which cannot be cut: it is a single sample, or the loop does not "
                "know how to cut it. Make the network or the sample smaller, use a lower precision, free memory that "
                "other programs or kept graphs use, or define how to cut such a batch by Loop(splitter=…)"
            )
        self.limit = max(1, self._compute_cost(micro_batch) // 2)

    def _count_samples(self, micro_batch: MicroBatch[Batch]) -> int:
        return (
            self._splitter.samples(micro_batch.batch)
            if micro_batch.stop is None
            else micro_batch.stop - micro_batch.start
        )

    def _compute_cost(self, micro_batch: MicroBatch[Batch]) -> int:
        """Return the cost of a micro-batch; all samples of a batch cost the same, whatever their padding."""
        return self._count_samples(micro_batch) * (
            self._splitter.cost(micro_batch.batch) if micro_batch.stop is None else micro_batch.unit
        )
