"""Scoring a source: evaluation mode, inference mode, every batch weighted by its count."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

import torch
from torch import nn

from trainers.loop.data.cutting import Cutter, Piece
from trainers.loop.data.sources import Source
from trainers.loop.data.tree import move
from trainers.loop.loss import Loss, Tally, check_loss, read, scalars_of, tally_of
from trainers.loop.machine.memory import is_out_of_memory, release
from trainers.loop.machine.precision import Precision
from trainers.loop.window.position import Position

Sample = TypeVar("Sample")
Score = Callable[[Sample], Loss]


@dataclass(frozen=True)  # no slots: with them, Validation[Batch](…) fails in Python 3.11
class Validation(Generic[Sample]):
    """What to score after every epoch.

    Attributes:
        score: Computes the score of a batch that is on the device.
        source: The batches, read as epoch 0 each time.
    """

    score: Callable[[Sample], Loss]
    source: Source[Sample]


@final
class Scorer:
    """Scores batches, in smaller pieces where memory runs out.

    Args:
        device: Where pieces are moved to.
        precision: What the forward computes in.
        cutter: Cuts the batches.
    """

    def __init__(self, device: torch.device, precision: Precision, cutter: Cutter[Any]) -> None:
        self._device = device
        self._dtype = precision.dtype
        self._cutter = cutter

    def total(self, score: Score[Sample], batches: Iterator[Sample], epoch: int) -> Tally:
        """The weighted mean over all batches; the modules must be in evaluation mode.

        Raises:
            ContractError: The score function returned no proper `Loss`.
            OutOfMemoryError: Memory ran out and smaller pieces are not possible.
        """
        losses: list[Loss] = []
        with torch.inference_mode():
            for number, batch in enumerate(batches):
                with Position("validation", epoch, number, (batch,)):
                    losses.extend(loss for loss in self._batch(score, batch) if loss.count)
        return tally_of(losses, iter(read(scalars_of(losses))))

    def _batch(self, score: Score[Sample], batch: Sample) -> list[Loss]:
        losses: list[Loss] = []
        start: int | None = 0
        while start is not None:
            piece = self._cutter.piece(batch, start)
            scored = self._piece(score, piece)
            if isinstance(scored, Loss):
                losses.append(scored)
                start = None if piece.last else piece.stop
            else:
                release(self._device)
                self._cutter.lower(piece, f"memory ran out in the validation ({scored})")
        return losses

    def _piece(self, score: Score[Sample], piece: Piece[Sample]) -> Loss | str:
        """The score, or what the allocator said."""
        try:
            with nullcontext() if self._dtype is None else torch.autocast(self._device.type, dtype=self._dtype):
                return check_loss(score(move(piece.batch, self._device)))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return str(error).partition("\n")[0]


@contextmanager
def evaluating(modules: Iterable[nn.Module]) -> Generator[None]:
    """Evaluation mode inside, and afterwards every submodule in the mode it had."""
    modes: Sequence[tuple[nn.Module, bool]] = [(part, part.training) for module in modules for part in module.modules()]
    for part, _ in modes:
        part.training = False
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
