"""Validation: scoring a source in evaluation mode with a fixed seed."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

import torch
from torch import nn
from torch.utils.data import DataLoader

from trainers.loop.data.batch_splitter import BatchCutter, MicroBatch
from trainers.loop.data.sources import Source
from trainers.loop.data.tree import make_mover
from trainers.loop.device import (
    Precision,
    capture_generators,
    describe_cause,
    describe_usage,
    is_out_of_memory,
    release,
    restore_generators,
    seed_everything,
)
from trainers.loop.loss import (
    Loss,
    WeightedMean,
    check_finite_score,
    check_loss,
    check_width,
    combine_losses,
    list_scalars,
    read,
)
from trainers.loop.step.guards import Nonfinite, Position

Sample = TypeVar("Sample")
Score = Callable[[Sample], Loss]


@dataclass(frozen=True)  # no slots: with them, Validation[Batch](…) fails in Python 3.11
class Validation(Generic[Sample]):
    """What to score after every epoch.

    Attributes:
        score: Computes the score of a batch on the device.
        source: The batches, or a `DataLoader` of them; every validation reads epoch 0.
    """

    score: Callable[[Sample], Loss]
    source: Source[Sample] | DataLoader[Any]


@final
class Scorer:
    """Scores batches, in smaller micro-batches if memory runs out.

    Args:
        device: The device to compute on.
        precision: The precision of the forward.
        cutter: Cuts the batches.

    Attributes:
        cutter: Holds the limit on the cost of a micro-batch.
    """

    def __init__(self, device: torch.device, precision: Precision, cutter: BatchCutter[Any]) -> None:
        self._device = device
        self._move: Callable[[Any], Any] = make_mover(device)
        self._dtype = precision.dtype
        self.cutter = cutter

    def score(
        self, score: Score[Sample], batches: Callable[[], Iterator[Sample]], epoch: int, *, seed: int
    ) -> WeightedMean:
        """Return the weighted mean over all batches; the modules must be in evaluation mode.

        The seed determines all random numbers, and the generators of the training are restored afterwards. If memory
        runs out, all batches are scored again in smaller micro-batches, so that the result depends only on the
        micro-batch size.

        Args:
            score: Computes the score of a micro-batch.
            batches: Returns an iterator from the first batch on.
            epoch: The epoch for messages.
            seed: 0 or more.

        Raises:
            ContractError: The score function did not return a valid `Loss`.
            OutOfMemoryError: Memory ran out and smaller micro-batches are not possible.
        """
        with preserve_generators(self._device), torch.inference_mode():
            losses = None
            while losses is None:
                seed_everything(seed % 2**32)
                losses = self._score_batches(score, batches(), epoch)
            return combine_losses(losses, iter(read(list_scalars(losses))))

    def _score_batches(self, score: Score[Sample], batches: Iterator[Sample], epoch: int) -> list[Loss] | None:
        """Return the scores of all micro-batches with targets; None if memory ran out and the limit was lowered."""
        losses: list[Loss] = []
        for number, batch in enumerate(batches):
            with Position("validation", epoch, number, (batch,)):
                start: int | None = 0
                while start is not None:
                    micro_batch = self.cutter.cut(batch, start)
                    loss = self._score_micro_batch(score, micro_batch)
                    if loss is None:
                        return None
                    losses.append(loss)
                    start = None if micro_batch.is_last else micro_batch.stop
        return [loss for loss in losses if loss.has_targets]

    def _score_micro_batch(self, score: Score[Sample], micro_batch: MicroBatch[Sample]) -> Loss | None:
        """Return the score of a micro-batch; None if memory ran out and the limit was lowered."""
        try:
            with nullcontext() if self._dtype is None else torch.autocast(self._device.type, dtype=self._dtype):
                loss = check_loss(score(self._move(micro_batch.batch)))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            cause = describe_cause(error)
        else:
            for mean in loss.roots():
                check_width(loss.name_of(mean), mean)
            return loss
        release(self._device)  # outside the except block, which keeps the failed frames alive
        self.cutter.lower(
            micro_batch, f"memory ran out in the validation ({cause}; now {describe_usage(self._device)})"
        )
        return None


@final
class ScoreGuard:
    """Raises on non-finite validation means.

    Args:
        nonfinite: Whether to tolerate a mean that is not finite (`skip`) or raise at once (`raise`).
        skip_limit: Raise after this many non-finite means in a row.
    """

    def __init__(self, nonfinite: Nonfinite, skip_limit: int) -> None:
        self._nonfinite = nonfinite
        self._skip_limit = skip_limit
        self._in_a_row = 0

    def note(self, mean: float) -> None:
        """Record the mean of a validation.

        Raises:
            NonFiniteError: It is not finite, and `nonfinite` is `raise` or `skip_limit` is reached.
        """
        self._in_a_row = 0 if math.isfinite(mean) else self._in_a_row + 1
        if self._nonfinite == "raise" or self._in_a_row >= self._skip_limit:
            row = f", not finite for the last {self._in_a_row} validations," if self._in_a_row > 1 else ""
            check_finite_score(mean, f"the validation's mean{row}")

    def state(self) -> dict[str, Any]:
        """Return the number of non-finite means in a row, for a checkpoint."""
        return {"in_a_row": self._in_a_row}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self._in_a_row = state["in_a_row"]


@contextmanager
def preserve_generators(device: torch.device) -> Generator[None]:
    """Restore the state of all generators at the end of the context."""
    before = capture_generators(device)
    try:
        yield
    finally:
        restore_generators(before, device)


@contextmanager
def evaluation_mode(modules: Iterable[nn.Module]) -> Generator[None]:
    """Put modules in evaluation mode, and restore the mode of every submodule at the end of the context."""
    modes: Sequence[tuple[nn.Module, bool]] = [(part, part.training) for module in modules for part in module.modules()]
    for part, _ in modes:
        part.training = False
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
