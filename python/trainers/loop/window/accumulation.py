"""The accumulation window: forward and backward of all its batches, weighted by their true counts.

The gradient of a window is that of the mean loss over all its targets, however they are spread over batches. A batch
with n targets starts its backward from n / expected instead of 1, which costs no further operation; `expected` is a
forecast of the window's count made from its first batch, and the update corrects it once by expected / count.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Generic, TypeVar, final

import torch
from torch import Tensor
from torch.nn import Parameter

from trainers.loop.data.tree import move
from trainers.loop.errors import EmptyTargetError
from trainers.loop.loss import Loss, check_loss
from trainers.loop.machine.precision import LossScaler, Precision
from trainers.loop.phase import Phase
from trainers.loop.window.guards import check_attached
from trainers.loop.window.position import Position

Batch = TypeVar("Batch")

KEPT_SEEDS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulation:
    """What a window's backward left behind, beside the gradients.

    Attributes:
        losses: The detached loss of every batch that had targets.
        count: Targets in the window, 1 or more.
        correction: What the gradients must still be multiplied by.
    """

    losses: Sequence[Loss]
    count: int
    correction: float


def windows(batches: Iterator[Batch], size: int) -> Iterator[tuple[Batch, ...]]:
    """Collect `size` batches at a time; the last window has what is left."""
    while window := tuple(islice(batches, size)):
        yield window


@final
class Accumulator(Generic[Batch]):
    """Adds up a phase's gradient over a window.

    Args:
        phase: Whose loss and parameters.
        foreign: Parameters of the other phases, frozen meanwhile.
        device: Where batches are moved to.
        precision: What the forward computes in.
        scaler: Scales the loss; None leaves it as it is.
    """

    def __init__(
        self,
        phase: Phase[Batch],
        foreign: Iterable[Parameter],
        device: torch.device,
        precision: Precision,
        scaler: LossScaler | None,
    ) -> None:
        self._loss = phase.loss
        self._parameters = tuple(phase.parameters)
        self._foreign = Withheld(foreign)
        self._device = device
        self._dtype = precision.dtype
        self._scaler = scaler
        self._seeds: dict[tuple[float, torch.dtype], Tensor] = {}

    def run(self, window: Sequence[Batch], position: Position) -> Accumulation:
        """Forward and backward of every batch; the parameters' gradients are the window's, up to the correction.

        Raises:
            ContractError: The loss function returned no proper `Loss`.
            DetachedLossError: A loss is connected to no graph.
            EmptyTargetError: No batch of the window has a target.
        """
        for parameter in self._parameters:
            parameter.grad = None
        losses: list[Loss] = []
        count = expected = 0
        with self._foreign:
            for number, batch in enumerate(window):
                position.at(number)
                loss = self._forward(move(batch, self._device))
                if not loss.count:
                    continue
                expected = expected or loss.count * len(window)
                self._backward(loss.mean, loss.count / expected)
                losses.append(loss.detached())
                count += loss.count
        position.at(None)
        if not count:
            raise EmptyTargetError(
                "no batch of the window has a target (every Loss.count is 0), so there is nothing to learn from; look "
                "at the mask that the count comes from, or leave such samples out of the source"
            )
        return Accumulation(losses=losses, count=count, correction=expected / count)

    def _forward(self, batch: Batch) -> Loss:
        with nullcontext() if self._dtype is None else torch.autocast(self._device.type, dtype=self._dtype):
            loss = check_loss(self._loss(batch))
        if loss.count:
            check_attached(loss.mean, self._parameters)
        return loss

    def _backward(self, mean: Tensor, weight: float) -> None:
        seed = self._seed(weight, mean)
        mean.backward(seed if self._scaler is None else self._scaler.scale(seed))

    def _seed(self, weight: float, mean: Tensor) -> Tensor:
        """What backward starts from; most windows need the same few weights."""
        key = (weight, mean.dtype)
        seed = self._seeds.get(key)
        if seed is None or seed.device != mean.device:
            if len(self._seeds) >= KEPT_SEEDS:
                self._seeds.clear()
            seed = self._seeds[key] = torch.full_like(mean, weight, requires_grad=False)
        return seed


@final
class Withheld:
    """A context in which some parameters take no part in any graph."""

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self._parameters = tuple(parameters)

    def __enter__(self) -> None:
        """Freeze them."""
        for parameter in self._parameters:
            parameter.requires_grad_(False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let them train again, whatever happened."""
        for parameter in self._parameters:
            parameter.requires_grad_(True)
