"""What a loss function returns, the check of it, and means weighted by their counts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from trainers.loop.errors import ContractError, NonFiniteError


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of one batch.

    Attributes:
        mean: Mean loss over the batch's targets, a float32 or float64 scalar (shape []).
        count: How many targets that mean is over; 0 if the batch has none, and then `mean` is not looked at.
        parts: Further means over the same targets for the reports, such as one a horizon; scalars, never trained on.
    """

    mean: Tensor
    count: int
    parts: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])

    def without_graph(self) -> "Loss":
        """The same numbers after the backward of the mean, which has freed its graph; that of the parts is dropped."""
        if not self.parts:
            return self
        return Loss(self.mean, self.count, {name: part.detach() for name, part in self.parts.items()})


@final
class Tally:
    """A mean over batches of different sizes, each weighted by its count."""

    __slots__ = ("_parts", "_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0
        self._parts: dict[str, tuple[float, int]] = {}

    def add(self, mean: float, count: int, parts: Mapping[str, float]) -> None:
        """Count a batch in; a part that it lacks is not diluted by it."""
        self.count += count
        self._sum += mean * count
        for name, part in parts.items():
            self.add_part(name, part, count)

    def add_part(self, name: str, mean: float, count: int) -> None:
        """Count a part in that has a count of its own."""
        self._add_part(name, mean * count, count)

    def merge(self, other: "Tally") -> None:
        """Count in what another tally has counted."""
        self.count += other.count
        self._sum += other._sum  # noqa: SLF001  of the same class
        for name, (total, seen) in other._parts.items():  # noqa: SLF001
            self._add_part(name, total, seen)

    def mean(self) -> float:
        """The weighted mean; not a number while nothing was counted."""
        return self._sum / self.count if self.count else math.nan

    def parts(self) -> dict[str, float]:
        """The weighted mean of every part."""
        return {name: total / seen for name, (total, seen) in self._parts.items() if seen}

    def _add_part(self, name: str, total: float, count: int) -> None:
        before, seen = self._parts.get(name, (0.0, 0))
        self._parts[name] = (before + total, seen + count)

    def state(self) -> dict[str, Any]:
        """The sums, for a checkpoint."""
        return {"count": self.count, "sum": self._sum, "parts": dict(self._parts)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from such sums."""
        self.count = state["count"]
        self._sum = state["sum"]
        self._parts = dict(state["parts"])


def check_loss(found: object) -> Loss:
    """The value as a `Loss`.

    Raises:
        ContractError: It is none, or its mean, count or parts are not what `Loss` promises.
    """
    if not isinstance(found, Loss):
        raise ContractError(f"the loss function returned {_what(found)}; expected Loss(mean, count, parts)")
    _check_scalar("mean", found.mean)
    _check_width(found.mean)
    _check_count(found.count)
    for name, part in found.parts.items():
        _check_scalar(f"parts[{name!r}]", part)
    return found


def read(tensors: Sequence[Tensor]) -> list[float]:
    """The scalars as Python numbers, with one wait for the device in all."""
    if not tensors:
        return []
    device = tensors[0].device
    if device.type == "cpu":
        return [tensor.item() for tensor in tensors]
    return torch.stack([tensor.detach().to(device, torch.float32) for tensor in tensors]).tolist()


def scalars_of(losses: Sequence[Loss]) -> list[Tensor]:
    """Means and parts in the order in which `tally_of` wants their values."""
    return [scalar for loss in losses for scalar in (loss.mean, *loss.parts.values())]


def tally_of(losses: Sequence[Loss], values: Iterator[float]) -> Tally:
    """The weighted mean of losses, given the values of their scalars."""
    total = Tally()
    for loss in losses:
        total.add(next(values), loss.count, {name: next(values) for name in loss.parts} if loss.parts else {})
    return total


def check_finite_score(value: float, what: str) -> None:
    """Check a value that decisions rest on.

    Raises:
        NonFiniteError: It is infinite or not a number.
    """
    if not math.isfinite(value):
        raise NonFiniteError(
            f"{what} is {value}: the score function divides by zero, its data are not finite, or the network's weights "
            "are not"
        )


def _check_scalar(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise ContractError(f"Loss.{name} is {_what(value)}; expected a scalar tensor")
    if value.ndim:
        raise ContractError(f"Loss.{name} has shape {list(value.shape)}; expected a scalar: reduce it with .mean()")
    if not value.is_floating_point():
        raise ContractError(f"Loss.{name} is of {value.dtype}; expected floating point")


def _check_width(mean: Tensor) -> None:
    if mean.dtype.itemsize < torch.float32.itemsize:
        raise ContractError(
            f"Loss.mean is of {mean.dtype}, in which neither its weight in the window nor the scale of a float16 "
            "training fits; compute it in float32: apply .float() to the network's output, before the loss"
        )


def _check_count(count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool):
        raise ContractError(f"Loss.count is {_what(count)}; expected an int: the number of targets in the batch")
    if count < 0:
        raise ContractError(f"Loss.count is {count}; expected 0 or more: the number of targets in the batch")


def _what(value: object) -> str:
    match value:
        case None:
            return "None (is a `return` missing?)"
        case Tensor():
            return f"a tensor of shape {list(value.shape)}"
        case dict():
            return f"a dict with the keys {list(value)}"
        case _:
            return f"a {type(value).__name__}"
