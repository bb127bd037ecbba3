"""Results of a loss function, their checks, and means weighted by count."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Self, final

import torch
from torch import Tensor

from trainers.loop.errors import ContractError, NonFiniteError, listed


@dataclass(frozen=True, slots=True)
class Term:
    """One of several means whose weighted sum is a loss, each over different targets.

    Attributes:
        mean: Mean over the batch's targets of this term, a float32 or float64 scalar (shape []).
        count: How many targets that mean is over, such as frames or tokens; 0 if the batch has none, and then `mean` is
            not looked at.
        weight: What the mean over a whole window is multiplied by, the same for all of the window; a term of weight 0
            is reported and never trained on.
    """

    mean: Tensor
    count: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of one batch.

    Attributes:
        mean: Mean loss over the batch's targets, a float32 or float64 scalar (shape []).
        count: How many targets that mean is over; 0 if the batch has none, and then `mean` is not looked at.
        parts: Further means over the same targets for the reports, such as one per horizon; scalars, never trained on.
        terms: Of a loss that `Loss.of` made, its terms by name; else none.
    """

    mean: Tensor
    count: int
    parts: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    terms: Mapping[str, Term] = field(default_factory=dict[str, Term])

    @classmethod
    def of(cls, /, **terms: Term) -> Self:
        """The weighted sum of several means over different targets, such as frames and tokens.

        The gradient of a window is that of the sum of all terms' means, each over all the targets that the term has in
        the window, times their weights. Several terms need `Phase(counts=…)`. The `mean` is the sum for this batch
        alone, and `count` the targets of all terms that are trained on.

        Args:
            terms: By name, one or more.

        Raises:
            ContractError: There is none, or one is no proper `Term`.
        """
        if not terms:
            raise ContractError("Loss.of() has no term; expected one or more, such as mel=Term(mean, count, weight=45)")
        for name, term in terms.items():
            _check_term(name, term)
        trained = [term for term in terms.values() if term.count and term.weight]
        weighted = [term.mean if term.weight == 1 else term.mean * term.weight for term in trained]
        mean = reduce(torch.add, weighted) if weighted else torch.zeros(())
        parts = {name: term.mean.detach() for name, term in terms.items()} if len(terms) == 1 else {}
        return cls(mean, sum(term.count for term in trained), parts, terms)

    @property
    def counted(self) -> bool:
        """Whether any of its means, those of terms of weight 0 included, has a target."""
        return bool(self.count) or any(term.count for term in self.terms.values())

    def roots(self) -> list[Tensor]:
        """The means, scalars, that a gradient may come from."""
        if not self.terms:
            return [self.mean]
        return [term.mean for term in self.terms.values() if term.count and term.weight]

    def name_of(self, mean: Tensor) -> str:
        """What one of its means, a scalar, is, for a message."""
        return next(
            (f"the term {name!r} of the loss" for name, term in self.terms.items() if term.mean is mean), "the loss"
        )

    def without_graph(self) -> "Loss":
        """The same numbers after the backward of the mean, which has freed its graph; that of the rest is dropped."""
        if not self.parts and not self.terms:
            return self
        return Loss(
            self.mean.detach() if self.terms else self.mean,
            self.count,
            {name: part.detach() for name, part in self.parts.items()},
            {name: replace(term, mean=term.mean.detach()) for name, term in self.terms.items()},
        )


@final
class WeightedMean:
    """A mean over batches of different sizes, each weighted by its count; of several terms, each by its own."""

    __slots__ = ("_parts", "_sum", "_terms", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0
        self._parts: dict[str, tuple[float, int]] = {}
        self._terms: dict[str, tuple[float, int]] = {}

    def add(self, mean: float, count: int, parts: Mapping[str, float]) -> None:
        """Count a batch in; a part that it lacks is not diluted by it."""
        self.count += count
        self._sum += mean * count
        for name, part in parts.items():
            self.add_part(name, part, count)

    def add_part(self, name: str, mean: float, count: int) -> None:
        """Add a part that has a separate count."""
        _add(self._parts, name, mean * count, count)

    def add_term(self, name: str, mean: float, count: int, weight: float) -> None:
        """Count a term in; one of weight 0 adds nothing to the mean, whatever its own is."""
        _add(self._parts, name, mean * count, count)
        _add(self._terms, name, weight * mean * count if weight else 0.0, count)
        self.count += count if weight else 0

    @property
    def has_terms(self) -> bool:
        """Whether the mean is that of several terms over different targets."""
        return bool(self._terms)

    def merge(self, other: "WeightedMean") -> None:
        """Count in what another mean has counted."""
        self.count += other.count
        self._sum += other._sum  # noqa: SLF001  of the same class
        for name, (total, seen) in other._parts.items():  # noqa: SLF001
            _add(self._parts, name, total, seen)
        for name, (total, seen) in other._terms.items():  # noqa: SLF001
            _add(self._terms, name, total, seen)

    def mean(self) -> float:
        """The weighted mean, of several terms the sum of theirs; not a number while nothing was counted."""
        if not self.count:
            return math.nan
        if self._terms:
            return sum(total / seen for total, seen in self._terms.values() if seen)
        return self._sum / self.count

    def parts(self) -> dict[str, float]:
        """The weighted mean of every part."""
        return {name: total / seen for name, (total, seen) in self._parts.items() if seen}

    def state(self) -> dict[str, Any]:
        """The sums, for a checkpoint."""
        return {"count": self.count, "sum": self._sum, "parts": dict(self._parts), "terms": dict(self._terms)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from such sums."""
        self.count = state["count"]
        self._sum = state["sum"]
        self._parts = dict(state["parts"])
        self._terms = dict(state.get("terms", {}))  # checkpoints from before there were terms have none


def _add(sums: dict[str, tuple[float, int]], name: str, total: float, count: int) -> None:
    before, seen = sums.get(name, (0.0, 0))
    sums[name] = (before + total, seen + count)


def check_loss(loss: object) -> Loss:
    """The value as a `Loss`.

    Raises:
        ContractError: It is none, or its mean, count or parts are not what `Loss` promises.
    """
    if not isinstance(loss, Loss):
        raise ContractError(f"the loss function returned {described(loss)}; expected Loss(mean, count, parts)")
    _check_scalar("mean", loss.mean)
    _check_count("Loss.count", loss.count)
    for name, part in loss.parts.items():
        _check_scalar(f"parts[{name!r}]", part)
    return loss


def read(tensors: Sequence[Tensor]) -> list[float]:
    """The scalars as Python numbers, with one wait for the device in all."""
    if not tensors:
        return []
    if tensors[0].is_cpu:
        return [tensor.item() for tensor in tensors]
    device = tensors[0].device
    return torch.stack([tensor.detach().to(device, torch.float32) for tensor in tensors]).tolist()


def scalars_of(losses: Sequence[Loss]) -> list[Tensor]:
    """Means and parts, or the means of terms, all scalars, in the order that `weighted_mean_of` wants."""
    return [
        scalar
        for loss in losses
        for scalar in (
            [term.mean for term in loss.terms.values() if term.count]
            if loss.terms
            else (loss.mean, *loss.parts.values())
        )
    ]


def weighted_mean_of(losses: Sequence[Loss], values: Iterator[float]) -> WeightedMean:
    """The weighted mean of losses, given the values of their scalars.

    Raises:
        ContractError: Some have terms and others have not.
    """
    total = WeightedMean()
    plain = 0
    for loss in losses:
        if loss.terms:
            for name, term in loss.terms.items():
                total.add_term(name, next(values) if term.count else 0.0, term.count, term.weight)
        else:
            plain += 1
            total.add(next(values), loss.count, {name: next(values) for name in loss.parts} if loss.parts else {})
    if 0 < plain < len(losses):
        raise ContractError(
            "some batches gave Loss(mean, count) and others Loss.of(…), whose means cannot be added up; return the "
            "same kind for every batch: a term without targets has the count 0"
        )
    return total


def check_width(name: str, mean: Tensor) -> None:
    """Check that a mean, a scalar, holds the weight that it has in its window, and enough digits to be compared.

    Raises:
        ContractError: It has fewer than 32 bits.
    """
    if mean.dtype.itemsize < torch.float32.itemsize:
        raise ContractError(
            f"the mean of {name} is of {mean.dtype}, in which neither its weight in the window nor the scale of a "
            "float16 training fits, and converting the mean would be too late; compute it in float32: apply .float() "
            "to the network's output, before the loss"
        )


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
        raise ContractError(f"Loss.{name} is {described(value)}; expected a scalar tensor")
    if value.ndim:
        raise ContractError(f"Loss.{name} has shape {list(value.shape)}; expected a scalar: reduce it with .mean()")
    if not value.is_floating_point():
        raise ContractError(f"Loss.{name} is of {value.dtype}; expected floating point")


def _check_term(name: str, term: object) -> None:
    if not isinstance(term, Term):
        raise ContractError(f"the term {name!r} is {described(term)}; expected Term(mean, count, weight=…)")
    _check_scalar(f"of({name}).mean", term.mean)
    _check_count(f"the count of the term {name!r}", term.count)
    if not _is_finite_number(term.weight):
        raise ContractError(
            f"the weight of the term {name!r} is {term.weight!r}; expected a finite number, such as 45.0"
        )


def _is_finite_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_count(name: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool):
        raise ContractError(f"{name} is {described(count)}; expected an int: the number of targets in the batch")
    if count < 0:
        raise ContractError(f"{name} is {count}; expected 0 or more: the number of targets in the batch")


def described(value: object) -> str:
    """What something is, for messages: its class, with the shape of a tensor [...] or the keys of a dict."""
    match value:
        case None:
            return "None (is a `return` missing?)"
        case Tensor():
            return f"a tensor of shape {list(value.shape)}"
        case Mapping():
            return f"a dict with the keys [{listed([repr(key) for key in value])}]" if value else "an empty dict"
        case _:
            return f"a {type(value).__name__}"
