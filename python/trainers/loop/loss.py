"""The result of a loss function, its checks, and means weighted by count."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Self, final

import torch
from torch import Tensor

from trainers.loop.errors import ContractError, NonFiniteError, join_names


@dataclass(frozen=True, slots=True)
class Term:
    """One of several means whose weighted sum is a loss, each over different targets.

    Attributes:
        mean: Mean over the batch's targets of this term, a float32 or float64 scalar (shape []).
        count: Number of targets in that mean, such as frames or tokens. If it is 0, `mean` is ignored.
        weight: Factor of the mean over a window, the same for all batches of the window. A term of weight 0 is
            reported but not trained on.
    """

    mean: Tensor
    count: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of one batch.

    Attributes:
        mean: Mean loss over the batch's targets, a float32 or float64 scalar (shape []).
        count: Number of targets in that mean. If it is 0, `mean` is ignored.
        parts: Further means over the same targets for the reports, such as one per horizon; scalars, not trained on.
        terms: The terms by name if `Loss.of` made the loss; otherwise empty.
    """

    mean: Tensor
    count: int
    parts: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    terms: Mapping[str, Term] = field(default_factory=dict[str, Term])

    @classmethod
    def of(cls, /, **terms: Term) -> Self:
        """The weighted sum of several means over different targets, such as frames and tokens.

        The gradient of a window is that of the weighted sum of the terms' means, each over all targets of the term in
        the window. Several terms need `Phase(counts=…)`. `mean` is the sum for this batch only, and `count` the
        number of targets of all terms that are trained on.

        Args:
            terms: One or more terms, by name.

        Raises:
            ContractError: No term was given, or one is not a valid `Term`.
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
    def has_targets(self) -> bool:
        """Whether any mean has a target, including those of terms of weight 0."""
        return bool(self.count) or any(term.count for term in self.terms.values())

    def roots(self) -> list[Tensor]:
        """Return the means, scalars, that backward starts from."""
        if not self.terms:
            return [self.mean]
        return [term.mean for term in self.terms.values() if term.count and term.weight]

    def name_of(self, mean: Tensor) -> str:
        """Return a description of one of the means, a scalar, for messages."""
        return next(
            (f"the term {name!r} of the loss" for name, term in self.terms.items() if term.mean is mean), "the loss"
        )

    def without_graph(self) -> "Loss":
        """Return the same numbers without their graphs; call it after backward has freed the graph of the mean."""
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
    """A mean over batches, each weighted by its count. If a loss has several terms, every term has separate counts."""

    __slots__ = ("_parts", "_sum", "_terms", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0
        self._parts: dict[str, tuple[float, int]] = {}
        self._terms: dict[str, tuple[float, int]] = {}

    def add(self, mean: float, count: int, parts: Mapping[str, float]) -> None:
        """Add a batch; parts that it lacks keep their mean."""
        self.count += count
        self._sum += mean * count
        for name, part in parts.items():
            self.add_part(name, part, count)

    def add_part(self, name: str, mean: float, count: int) -> None:
        """Add a part that has a separate count."""
        _add(self._parts, name, mean * count, count)

    def add_term(self, name: str, mean: float, count: int, weight: float) -> None:
        """Add a term; one of weight 0 does not affect the total, even if its mean is not finite."""
        _add(self._parts, name, mean * count, count)
        _add(self._terms, name, weight * mean * count if weight else 0.0, count)
        self.count += count if weight else 0

    @property
    def has_terms(self) -> bool:
        """Whether the mean is that of several terms over different targets."""
        return bool(self._terms)

    def merge(self, other: "WeightedMean") -> None:
        """Add the contents of another mean."""
        self.count += other.count
        self._sum += other._sum  # noqa: SLF001  of the same class
        for name, (total, count) in other._parts.items():  # noqa: SLF001
            _add(self._parts, name, total, count)
        for name, (total, count) in other._terms.items():  # noqa: SLF001
            _add(self._terms, name, total, count)

    def mean(self) -> float:
        """Return the weighted mean, or the sum of the terms' weighted means; NaN if the count is 0."""
        if not self.count:
            return math.nan
        if self._terms:
            return sum(total / count for total, count in self._terms.values() if count)
        return self._sum / self.count

    def parts(self) -> dict[str, float]:
        """Return the weighted mean of every part."""
        return {name: total / count for name, (total, count) in self._parts.items() if count}

    def state(self) -> dict[str, Any]:
        """Return the sums for a checkpoint."""
        return {"count": self.count, "sum": self._sum, "parts": dict(self._parts), "terms": dict(self._terms)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the sums."""
        self.count = state["count"]
        self._sum = state["sum"]
        self._parts = dict(state["parts"])
        self._terms = dict(state["terms"])


def _add(sums: dict[str, tuple[float, int]], name: str, total: float, count: int) -> None:
    earlier_total, earlier_count = sums.get(name, (0.0, 0))
    sums[name] = (earlier_total + total, earlier_count + count)


def check_loss(loss: object) -> Loss:
    """Return the value if it is a valid `Loss`.

    Raises:
        ContractError: It is not a `Loss`, or its mean, count or parts are invalid.
    """
    if not isinstance(loss, Loss):
        raise ContractError(f"the loss function returned {describe_value(loss)}; expected Loss(mean, count, parts)")
    _check_scalar("mean", loss.mean)
    _check_count("Loss.count", loss.count)
    for name, part in loss.parts.items():
        _check_scalar(f"parts[{name!r}]", part)
    return loss


def read(tensors: Sequence[Tensor]) -> list[float]:
    """Return scalars as Python numbers; synchronises with the device only once."""
    if not tensors:
        return []
    if tensors[0].is_cpu:
        return [tensor.item() for tensor in tensors]
    device = tensors[0].device
    return torch.stack([tensor.detach().to(device, torch.float32) for tensor in tensors]).tolist()


def list_scalars(losses: Sequence[Loss]) -> list[Tensor]:
    """Return means and parts, or the means of terms, as scalars in the order that `combine_losses` reads."""
    return [
        scalar
        for loss in losses
        for scalar in (
            [term.mean for term in loss.terms.values() if term.count]
            if loss.terms
            else (loss.mean, *loss.parts.values())
        )
    ]


def combine_losses(losses: Sequence[Loss], values: Iterator[float]) -> WeightedMean:
    """Return the weighted mean of losses, given the values of their scalars.

    Raises:
        ContractError: Some losses have terms and others do not.
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
            "some batches returned Loss(mean, count) and others Loss.of(…), whose means cannot be combined; return the "
            "same kind for every batch: a term without targets has the count 0"
        )
    return total


def check_width(name: str, mean: Tensor) -> None:
    """Check that a mean, a scalar, is precise enough to be weighted and compared.

    Raises:
        ContractError: It has fewer than 32 bits.
    """
    if mean.dtype.itemsize < torch.float32.itemsize:
        raise ContractError(
            f"the mean of {name} is {mean.dtype}, which has too few bits for its weight in the window and for the "
            "scale of a float16 training, and converting the mean would be too late; compute it in float32: apply "
            ".float() to the network's output before the loss"
        )


def check_finite_score(value: float, score_name: str) -> None:
    """Check that a score is finite.

    Raises:
        NonFiniteError: It is infinite or NaN.
    """
    if not math.isfinite(value):
        raise NonFiniteError(
            f"{score_name} is {value}: the score function divides by zero, or its data or the network's weights are "
            "not finite"
        )


def _check_scalar(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise ContractError(f"Loss.{name} is {describe_value(value)}; expected a scalar tensor")
    if value.ndim:
        raise ContractError(f"Loss.{name} has shape {list(value.shape)}; expected a scalar: reduce it with .mean()")
    if not value.is_floating_point():
        raise ContractError(f"Loss.{name} is {value.dtype}; expected floating point")


def _check_term(name: str, term: object) -> None:
    if not isinstance(term, Term):
        raise ContractError(f"the term {name!r} is {describe_value(term)}; expected Term(mean, count, weight=…)")
    _check_scalar(f"of({name}).mean", term.mean)
    _check_count(f"the count of the term {name!r}", term.count)
    weight: Any = term.weight
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not math.isfinite(weight):
        raise ContractError(
            f"the weight of the term {name!r} is {term.weight!r}; expected a finite number, such as 45.0"
        )


def _check_count(name: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool):
        raise ContractError(f"{name} is {describe_value(count)}; expected an int: the number of targets in the batch")
    if count < 0:
        raise ContractError(f"{name} is {count}; expected 0 or more: the number of targets in the batch")


def describe_value(value: object) -> str:
    """Describe a value for messages: its class, the shape of a tensor [...] or the keys of a dict."""
    match value:
        case None:
            return "None (is a `return` missing?)"
        case Tensor():
            return f"a tensor of shape {list(value.shape)}"
        case Mapping():
            return f"a dict with the keys [{join_names([repr(key) for key in value])}]" if value else "an empty dict"
        case _:
            return f"a {type(value).__name__}"
