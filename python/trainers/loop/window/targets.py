"""The targets of a loss of several terms, counted over a window before its first backward.

The gradients of all terms are summed in `.grad`, so they cannot be corrected separately afterwards. With known counts,
a micro-batch in which a term has n of the window's N targets starts that term's backward from weight * n / N.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast, final

from torch import Tensor

from trainers.loop.data.batch_splitter import MicroBatch
from trainers.loop.errors import ContractError, join_names
from trainers.loop.loss import Loss

Batch = TypeVar("Batch")
Counts = Mapping[str, int]


@final
@dataclass(frozen=True, slots=True)
class Targets(Generic[Batch]):
    """The targets of every term in one window.

    Attributes:
        count: Counts the targets of a batch or micro-batch on the host, without a forward.
        batches: The counts of every batch of this process.
        totals: The counts of the window over all processes.
    """

    count: Callable[[Batch], Counts]
    batches: Sequence[Counts]
    totals: Counts


def count_targets(count: Callable[[Any], Counts], batch: object) -> Counts:
    """Count the targets of every term in a batch or micro-batch.

    Raises:
        ContractError: The function did not return counts by name.
    """
    counts = count(batch)
    if not isinstance(cast("object", counts), Mapping):
        raise ContractError(
            f"counts returned a {type(counts).__name__}; expected the number of targets of every term by name, such as "
            '{"mel": 8192, "tokens": 60}'
        )
    wrong = [
        f"{number!r} for {name!r}"
        for name, number in cast("Mapping[object, object]", counts).items()
        if not isinstance(number, int) or isinstance(number, bool) or number < 0
    ]
    if wrong:
        raise ContractError(f"counts returned {join_names(wrong)}; expected an int of 0 or more for every term")
    return counts


def missing_counts_error(phase: str, loss: Loss) -> ContractError:
    """Return the error for a loss of several terms in a phase without counts."""
    return ContractError(
        f"the loss has the terms {join_names([repr(name) for name in loss.terms])}, whose numbers of targets in the "
        "window "
        f"must be known before the first backward: give Phase({phase!r}, …, counts=…) a function that returns the "
        "number of targets of every term of a batch by name"
    )


def sum_counts(batches: Sequence[Counts]) -> Counts:
    """Return the sums by term."""
    total: Counter[str] = Counter()
    for counts in batches:
        total.update(counts)
    return total


@final
@dataclass(slots=True)
class TermTargets(Generic[Batch]):
    """Weights the terms of the micro-batches in one attempt at a window, and checks them against the counted targets.

    Attributes:
        targets: The counted targets of the window.
    """

    targets: Targets[Batch]
    _weights: dict[str, float] = field(default_factory=dict[str, float])
    _seen: Counter[str] = field(default_factory=Counter[str])

    def weigh(self, loss: Loss, micro_batch: MicroBatch[Batch], number: int) -> list[tuple[Tensor, float]]:
        """Return the means, scalars, to start the backward from, each with its weight in the window.

        Args:
            loss: The loss of the micro-batch.
            micro_batch: The micro-batch, on the host.
            number: The number of its batch in the window.

        Raises:
            ContractError: The terms or counts of the loss differ from the counted targets, or a weight has changed.
        """
        expected = (
            self.targets.batches[number]
            if micro_batch.stop is None
            else count_targets(self.targets.count, micro_batch.batch)
        )
        self._check_terms(loss, expected)
        for name, term in loss.terms.items():
            if self._weights.setdefault(name, term.weight) != term.weight:
                raise ContractError(
                    f"the weight of the term {name!r} is {term.weight} and was {self._weights[name]} in an earlier "
                    "micro-batch of the same window; change it only between windows"
                )
        totals = self.targets.totals
        return [
            (term.mean, term.weight * term.count / totals[name])
            for name, term in loss.terms.items()
            if term.count and term.weight
        ]

    def note(self, micro_batch: MicroBatch[Batch], number: int) -> None:
        """Count a completed micro-batch, and at the end of the batch check that the micro-batches add up to it.

        Raises:
            ContractError: The counts of the micro-batches do not add up to that of the batch.
        """
        if micro_batch.stop is None:
            return
        if micro_batch.start == 0:
            self._seen.clear()
        self._seen.update(count_targets(self.targets.count, micro_batch.batch))
        wrong = [
            f"{name!r}: {self._seen[name]} instead of {count}"
            for name, count in self.targets.batches[number].items()
            if self._seen[name] != count
        ]
        if micro_batch.last and wrong:
            raise ContractError(
                f"the micro-batches of a batch do not have the targets of the batch ({join_names(wrong)}); counts "
                "must add up over samples, and not depend on padding or on the size of the batch"
            )

    def _check_terms(self, loss: Loss, expected: Counts) -> None:
        if not loss.terms:
            raise ContractError(
                "the loss function returned Loss(mean, count), but the phase has counts; return Loss.of(…) with the "
                f"terms {join_names([repr(name) for name in expected])}, or remove counts"
            )
        for name in dict.fromkeys((*loss.terms, *expected)):
            actual, promised = loss.terms[name].count if name in loss.terms else 0, expected.get(name, 0)
            if actual != promised:
                raise ContractError(
                    f"the term {name!r} has {actual} targets in the loss and {promised} by counts, for the same "
                    "micro-batch; both must count the same, or its weight in the window is wrong"
                )
