"""Validation of a source in evaluation mode, with separate random numbers and batches weighted by count."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

import torch
from torch import nn

from trainers.loop.data.sources import Source
from trainers.loop.data.splitting import BatchCutter, MicroBatch
from trainers.loop.data.tree import mover
from trainers.loop.device import (
    Precision,
    captured,
    cause_of,
    is_out_of_memory,
    release,
    restore,
    seed_everything,
    usage,
)
from trainers.loop.loss import (
    Loss,
    WeightedMean,
    check_finite_score,
    check_loss,
    check_width,
    read,
    scalars_of,
    weighted_mean_of,
)
from trainers.loop.window.guards import Nonfinite
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

    Attributes:
        cutter: As given; the most that a piece may cost is in it.
    """

    def __init__(self, device: torch.device, precision: Precision, cutter: BatchCutter[Any]) -> None:
        self._device = device
        self._move: Callable[[Any], Any] = mover(device)
        self._dtype = precision.dtype
        self.cutter = cutter

    def total(
        self, score: Score[Sample], batches: Callable[[], Iterator[Sample]], epoch: int, *, seed: int
    ) -> WeightedMean:
        """The weighted mean over all batches; the modules must be in evaluation mode.

        Random numbers are the same for the same seed, and the training does not notice that they were drawn. Where
        memory runs out, all is scored again in smaller pieces, so that the result depends only on their size.

        Args:
            score: Computes the score of a piece.
            batches: Reads them from the first on.
            epoch: For messages.
            seed: 0 or more.

        Raises:
            ContractError: The score function returned no proper `Loss`.
            OutOfMemoryError: Memory ran out and smaller pieces are not possible.
        """
        with apart(self._device), torch.inference_mode():
            losses = None
            while losses is None:
                seed_everything(seed % 2**32)
                losses = self._losses(score, batches(), epoch)
            return weighted_mean_of(losses, iter(read(scalars_of(losses))))

    def _losses(self, score: Score[Sample], batches: Iterator[Sample], epoch: int) -> list[Loss] | None:
        """The scores of all pieces that have targets; None if memory ran out, and pieces will now be smaller."""
        losses: list[Loss] = []
        for number, batch in enumerate(batches):
            with Position("validation", epoch, number, (batch,)):
                start: int | None = 0
                while start is not None:
                    piece = self.cutter.piece(batch, start)
                    loss = self._scored(score, piece)
                    if loss is None:
                        return None
                    losses.append(loss)
                    start = None if piece.last else piece.stop
        return [loss for loss in losses if loss.counted]

    def _scored(self, score: Score[Sample], piece: MicroBatch[Sample]) -> Loss | None:
        """The score of a piece; None if memory ran out, and pieces will now be smaller."""
        try:
            with nullcontext() if self._dtype is None else torch.autocast(self._device.type, dtype=self._dtype):
                return _checked(score(self._move(piece.batch)))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            cause = cause_of(error)
        release(self._device)  # outside of the except block, which keeps the failed frames
        self.cutter.lower(piece, f"memory ran out in the validation ({cause}; now {usage(self._device)})")
        return None


def _checked(score: object) -> Loss:
    """The score, which decisions will compare with others."""
    loss = check_loss(score)
    for mean in loss.roots():
        check_width(loss.name_of(mean), mean)
    return loss


@final
class ScoreGuard:
    """Watches what validations come to.

    Args:
        nonfinite: Whether a mean that is not finite is only reported (`skip`) or raises.
        skip_limit: This many of them in a row raise.
    """

    def __init__(self, nonfinite: Nonfinite, skip_limit: int) -> None:
        self._nonfinite = nonfinite
        self._skip_limit = skip_limit
        self._in_a_row = 0

    def note(self, mean: float) -> None:
        """Take the mean of a validation.

        Raises:
            NonFiniteError: It is not finite, and that raises, or it was one too many in a row.
        """
        self._in_a_row = 0 if math.isfinite(mean) else self._in_a_row + 1
        if self._nonfinite == "raise" or self._in_a_row >= self._skip_limit:
            several = f", not finite for the last {self._in_a_row} validations," if self._in_a_row > 1 else ""
            check_finite_score(mean, f"the validation's mean{several}")

    def state(self) -> dict[str, Any]:
        """How many were not finite in a row, for a checkpoint."""
        return {"in_a_row": self._in_a_row}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        self._in_a_row = state["in_a_row"]


@contextmanager
def apart(device: torch.device) -> Generator[None]:
    """Whatever is drawn inside, the generators are afterwards as they were."""
    before = captured(device)
    try:
        yield
    finally:
        restore(before, device)


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
