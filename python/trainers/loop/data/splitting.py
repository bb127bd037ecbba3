"""Splitting of batches into pieces when memory runs out."""

from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, final

from torch import Tensor

from trainers.loop.data.tree import leaves, map_tensors, of_one_piece, others
from trainers.loop.errors import OutOfMemoryError

Batch = TypeVar("Batch")


class BatchSplitter(Protocol[Batch]):
    """Size and slices of a batch, so that the loop can cut it.

    The mean loss of a batch must be the mean of its pieces' losses, weighted by their counts. Where it is not, because
    the loss compares samples with each other, the batch is one sample: `IndivisibleBatch`.
    """

    def samples(self, batch: Batch) -> int:
        """Number of samples in the batch; 1 if it cannot be cut."""
        ...

    def cost(self, batch: Batch) -> int:
        """Cost of one sample, at least 1, in any unit that grows with memory, such as padded frames."""
        ...

    def piece(self, batch: Batch, start: int, stop: int) -> Batch:
        """The samples from `start` to before `stop`."""
        ...


@final
class SampleSplitter:
    """Cuts every tensor along its first dimension, which must be that of the samples; scalars go to every piece.

    A batch whose tensors have different first dimensions is not cut, nor is one with something else of that length,
    such as a list of names or a NumPy array, which would no longer match the tensors, nor one with an object that moves
    itself by `.to`, such as a `PackedSequence`, whose insides are its own.
    """

    def samples(self, batch: object) -> int:
        """The common first dimension; 1 if there is none."""
        sizes = {tensor.shape[0] for _, tensor in leaves(batch) if tensor.ndim}
        size = max(1, sizes.pop()) if len(sizes) == 1 else 1
        whole = size > 1 and (any(_has_length(other, size) for other in others(batch)) or of_one_piece(batch))
        return 1 if whole else size

    def cost(self, batch: object) -> int:  # noqa: ARG002  all samples cost the same
        """1: the cost is the number of samples."""
        return 1

    def piece(self, batch: Any, start: int, stop: int) -> Any:
        """Views of the samples."""

        def rows(tensor: Tensor) -> Tensor:
            return tensor[start:stop] if tensor.ndim else tensor

        return map_tensors(batch, rows)


def _has_length(value: object, length: int) -> bool:
    return isinstance(value, Sized) and not isinstance(value, str | bytes) and len(value) == length


@final
class IndivisibleBatch:
    """For batches that must not be cut, such as one graph, or a loss that ranks the samples of a batch."""

    def samples(self, batch: object) -> int:  # noqa: ARG002  whatever it holds
        """1: the whole batch."""
        return 1

    def cost(self, batch: object) -> int:  # noqa: ARG002  there is nothing to compare it with
        """1."""
        return 1

    def piece(self, batch: Any, start: int, stop: int) -> Any:  # noqa: ARG002  there is only one
        """The batch."""
        return batch


@dataclass(slots=True)
class MicroBatch(Generic[Batch]):
    """Some samples of a batch.

    Attributes:
        batch: The samples.
        start: The first of them in the batch.
        stop: The one after the last; None for a batch that was not cut.
        samples: Samples of the whole batch; 1 for one that was not cut.
        unit: Cost of one sample; 0 for a batch that was not cut.
    """

    batch: Batch
    start: int = 0
    stop: int | None = None
    samples: int = 1
    unit: int = 0

    @property
    def last(self) -> bool:
        """Whether it is the last piece of its batch."""
        return self.stop is None or self.stop == self.samples

    @property
    def share(self) -> float:
        """Its share of the batch, 0 to 1."""
        return 1.0 if self.stop is None else (self.stop - self.start) / self.samples

    def __str__(self) -> str:
        """Which samples, for messages."""
        return "the whole batch" if self.stop is None else f"samples {self.start} to {self.stop - 1} of {self.samples}"


@final
class BatchCutter(Generic[Batch]):
    """Cuts batches into pieces that fit in memory.

    Args:
        cutting: How batches are cut.
        refusal: Why batches are not cut when memory runs out; None if they are.
        spare: Frees unneeded memory and returns whether it freed any; called before a batch is cut.

    Attributes:
        limit: Largest cost of a piece; None while every batch has fitted.
    """

    def __init__(
        self, cutting: BatchSplitter[Batch], *, refusal: str | None = None, spare: Callable[[], bool] = lambda: False
    ) -> None:
        self._cutting = cutting
        self._refusal = refusal
        self._spare = spare
        self.limit: int | None = None

    def piece(self, batch: Batch, start: int) -> MicroBatch[Batch]:
        """The piece that begins at a sample."""
        if self.limit is None:
            return MicroBatch(batch)
        samples = self._cutting.samples(batch)
        unit = self._cutting.cost(batch)
        stop = min(samples, start + max(1, self.limit // unit))
        if stop - start == samples:
            return MicroBatch(batch)
        return MicroBatch(self._cutting.piece(batch, start, stop), start, stop, samples, unit)

    def would_cut(self, piece: MicroBatch[Batch]) -> bool:
        """Whether a piece from before the limit was lowered is larger than pieces are now."""
        return self.limit is not None and self._size(piece) > 1 and self._cost(piece) > self.limit

    def lower(self, piece: MicroBatch[Batch], problem: str) -> None:
        """Halve the limit after memory ran out in a piece, unless memory could be freed for another try.

        Raises:
            OutOfMemoryError: The piece is a single sample, or cutting is refused.
        """
        if self._spare():
            return
        if self._refusal is not None:
            raise OutOfMemoryError(f"{problem}; {self._refusal}")
        if self._size(piece) == 1:
            raise OutOfMemoryError(
                f"{problem}, with {piece}, which cannot be cut: it is a single sample, or the loop does not know how "
                "to cut it. Make the network or the sample smaller, use a lower precision, free memory that other "
                "programs or kept graphs hold, or say how to cut such a batch by Loop(cutting=…)"
            )
        self.limit = max(1, self._cost(piece) // 2)

    def _size(self, piece: MicroBatch[Batch]) -> int:
        return self._cutting.samples(piece.batch) if piece.stop is None else piece.stop - piece.start

    def _cost(self, piece: MicroBatch[Batch]) -> int:
        """The cost of a piece; all samples of a batch cost the same, even if a piece has less padding."""
        return self._size(piece) * (self._cutting.cost(piece.batch) if piece.stop is None else piece.unit)
