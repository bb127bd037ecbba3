"""The totals of a window, and the row of numbers in which processes exchange them.

The row of a process holds, in order: the mean loss and the mean of every part; the count of each, as two numbers; the
requests. For a loss of several terms, the terms replace the parts, and their weights follow the counts.
Every process fills one row and leaves zeros in the others, so that the sum preserves every row exactly.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, final

import torch
from torch import Tensor

from trainers.loop.errors import ContractError, EmptyTargetError
from trainers.loop.loss import Loss, WeightedMean, combine_losses, list_scalars

LIMB = 2**20  # float32 holds integers up to 2**24, so two of these hold counts up to 2**44


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequests:
    """The requests of a process at the end of a window; in a group, the request of one process applies to all.

    Attributes:
        stop: The number of the signal that ends the training; 0 to continue.
        save: Whether a checkpoint is due.
    """

    stop: int = 0
    save: bool = False

    @property
    def has_any(self) -> bool:
        """Whether anything is requested."""
        return self.save or self.stop != 0

    def merge(self, others: "StepRequests") -> "StepRequests":
        """Combine two requests; of two stop signals, the first one counts."""
        return StepRequests(stop=self.stop or others.stop, save=self.save or others.save) if others.has_any else self


class StepTotals(NamedTuple):
    """The totals of a window as plain numbers.

    Attributes:
        loss: Weighted mean, count and parts.
        correction: Factor that the gradients must still be multiplied by.
        requests: The requests of all processes.
    """

    loss: WeightedMean
    correction: float
    requests: StepRequests


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTotals:
    """The totals of this process.

    Attributes:
        losses: The detached loss of every micro-batch with targets; empty if there is no target.
        assumed_count: The count that backward assumed: a micro-batch with n targets started from n / this. It is 1 if
            the true counts were known before.
        requests: The requests of this process.
        targets: The targets of every term over all processes, if they were known before the first backward.
    """

    losses: Sequence[Loss]
    assumed_count: float
    requests: StepRequests
    targets: Mapping[str, int] | None = None

    @property
    def count(self) -> int:
        """Number of targets in the window."""
        return sum(loss.count for loss in self.losses)

    @property
    def correction(self) -> float:
        """Assumed count divided by true count; 1 if the counts were known before."""
        return 1.0 if self.targets is not None else self.assumed_count / (self.count or 1)

    def means(self) -> Sequence[Tensor]:
        """Return the means of the micro-batches, scalars."""
        return [loss.mean for loss in self.losses]

    def scalars(self) -> Sequence[Tensor]:
        """Return means and parts, scalars."""
        return list_scalars(self.losses)

    def read(self, values: Iterator[float]) -> StepTotals:
        """Compute the totals from the values of `scalars()`, once they are on the host.

        Raises:
            EmptyTargetError: There is no target.
        """
        loss = combine_losses(self.losses, values)
        check_targets(loss.count)
        correction = 1.0 if self.targets is not None else self.assumed_count / loss.count
        return StepTotals(loss=loss, correction=correction, requests=self.requests)


def check_targets(count: int) -> None:
    """Check that a window has targets.

    Raises:
        EmptyTargetError: The count is 0.
    """
    if not count:
        raise EmptyTargetError(
            "no batch of the window has a target (every Loss.count is 0, not counting terms of weight 0); check the "
            "mask that determines the count, or remove such samples from the source"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRow:
    """The content of a row.

    Attributes:
        means: The means of the loss and of every part.
        counts: The number of targets of each mean.
        weights: The weight of every term; empty for parts.
        requests: The requests of the process.
    """

    means: Sequence[float]
    counts: Sequence[int]
    weights: Sequence[float]
    requests: StepRequests


@final
class RowFormat:
    """Writes and reads rows.

    Args:
        names: The names of the parts or terms, in order.
        has_terms: Whether they are the terms of a loss.

    Attributes:
        names: The names of the parts or terms.
        has_terms: Whether they are terms.
        width: Number of values in a row.
    """

    def __init__(self, names: Sequence[str], *, has_terms: bool = False) -> None:
        self.names = tuple(names)
        self.has_terms = has_terms
        self._columns = 1 + len(self.names)
        self._weights = len(self.names) if has_terms else 0
        self.width = 3 * self._columns + self._weights + 2

    def write(self, local: LocalTotals, row: Tensor) -> None:
        """Write the totals into a row of zeros (shape [width]) without synchronisation.

        Raises:
            ContractError: The loss has a part that the row does not.
        """
        if not local.losses:
            return
        self._check_part_names(local.losses)
        columns = [_drop_empty((loss.mean, loss.count) for loss in local.losses)]
        columns += [self._collect_means(name, local.losses) for name in self.names]
        for index, column in enumerate(columns):
            if column:
                row[index] = weighted_mean(column, row)
        counts = [sum(count for _, count in column) for column in columns]
        limbs = [limb for count in counts for limb in divmod(count, LIMB)]
        numbers = [*limbs, *(_weight(name, local.losses) for name in self.names if self.has_terms)]
        row[self._columns : -2].copy_(torch.tensor(numbers, dtype=row.dtype), non_blocking=True)

    def write_requests(self, requests: StepRequests, row: Tensor) -> None:
        """Write the requests into a row of zeros [width]; usually there are none."""
        if requests.stop:
            row[-2] = requests.stop
        if requests.save:
            row[-1] = 1.0

    def count(self, rows: Tensor) -> Tensor:
        """Return the number of targets of all rows (shape [N, width]), up to rounding, as a scalar on their device."""
        high, low = rows[:, self._columns : self._columns + 2].sum(0)
        return high * LIMB + low

    def read(self, values: Iterator[float]) -> ExchangeRow:
        """Read one row from the values."""
        means = list(islice(values, self._columns))
        counts = [int(high) * LIMB + int(low) for high, low in (islice(values, 2) for _ in range(self._columns))]
        weights = list(islice(values, self._weights))
        requests = StepRequests(stop=int(next(values)), save=bool(next(values)))
        return ExchangeRow(means=means, counts=counts, weights=weights, requests=requests)

    def _collect_means(self, name: str, losses: Sequence[Loss]) -> list[tuple[Tensor, int]]:
        """Return the means and counts of a part or term in all micro-batches."""
        if self.has_terms:
            terms = [loss.terms[name] for loss in losses if name in loss.terms]
            return _drop_empty((term.mean, term.count) for term in terms)
        return [(loss.parts[name], loss.count) for loss in losses if name in loss.parts]

    def _check_part_names(self, losses: Sequence[Loss]) -> None:
        if self.has_terms:
            return  # terms are checked against the counts
        for loss in losses:
            for name in loss.parts:
                if name not in self.names:
                    raise ContractError(
                        f"the loss function returned the part {name!r}, which no process returned in the phase's first "
                        f"window (there: {', '.join(self.names) or 'none'}); processes agree on the parts in that "
                        "window: make sure that the first batches have all of them"
                    )


def weighted_mean(column: Sequence[tuple[Tensor, int]], like: Tensor) -> Tensor:
    """Return the mean of scalars weighted by their counts, on the device and in the dtype of `like`."""
    means = [mean.detach().to(like) for mean, _ in column]
    if len(means) == 1:
        return means[0]
    total = sum(count for _, count in column)
    # Python numbers are passed with the operation; a tensor of weights would need a copy to the device first.
    weighted = torch._foreach_mul(means, [count / total for _, count in column])  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]  no public name
    return torch.stack(weighted).sum()


def _drop_empty(column: Iterable[tuple[Tensor, int]]) -> list[tuple[Tensor, int]]:
    return [(mean, count) for mean, count in column if count]


def _weight(name: str, losses: Sequence[Loss]) -> float:
    """Return the weight of a term, which is the same in all micro-batches; 0 if no micro-batch has the term."""
    return next((float(loss.terms[name].weight) for loss in losses if name in loss.terms), 0.0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTotals:
    """The totals of all processes.

    Attributes:
        rows: The rows of all processes, shape [processes, width], on the device.
        row_format: The format of the rows.
        divisor: The divisor of the gradients.
    """

    rows: Tensor
    row_format: RowFormat
    divisor: float

    @property
    def correction(self) -> float | Tensor:
        """Unit divided by true count, a finite scalar on the device; 1 if the counts were known before."""
        return 1.0 if self.row_format.has_terms else self.divisor / self.row_format.count(self.rows).clamp(min=1.0)

    def means(self) -> Sequence[Tensor]:
        """Return the mean loss of every process, scalars."""
        return self.rows[:, 0].unbind()

    def scalars(self) -> Sequence[Tensor]:
        """Return all values of all rows, as scalars."""
        return self.rows.flatten().unbind()

    def read(self, values: Iterator[float]) -> StepTotals:
        """Compute the totals of all processes from the values of `scalars()`, and combine their requests.

        Raises:
            EmptyTargetError: No process has a target.
            ContractError: The processes have different weights for a term.
        """
        rows = [self.row_format.read(values) for _ in range(self.rows.shape[0])]
        self._check_weights(rows)
        loss = WeightedMean()
        for row in rows:
            self._add(row, loss)
        check_targets(loss.count)
        requests = StepRequests(
            stop=max(row.requests.stop for row in rows),
            save=any(row.requests.save for row in rows),
        )
        return StepTotals(
            loss=loss, correction=1.0 if self.row_format.has_terms else self.divisor / loss.count, requests=requests
        )

    def _check_weights(self, rows: Sequence[ExchangeRow]) -> None:
        for index, name in enumerate(self.row_format.names if self.row_format.has_terms else ()):
            weights = {row.weights[index] for row in rows if row.counts[index + 1]}
            if len(weights) > 1:
                raise ContractError(
                    f"the weight of the term {name!r} differs between the processes of the group: {sorted(weights)}; "
                    "make it a function of what all of them know, such as the number of windows done"
                )

    def _add(self, row: ExchangeRow, loss: WeightedMean) -> None:
        """Add the row of a process."""
        if self.row_format.has_terms:
            for index, name in enumerate(self.row_format.names):
                loss.add_term(name, row.means[index + 1], row.counts[index + 1], row.weights[index])
            return
        loss.add(row.means[0], row.counts[0], {})
        for name, mean, count in zip(self.row_format.names, row.means[1:], row.counts[1:], strict=True):
            loss.add_part(name, mean, count)


Totals = LocalTotals | GroupTotals
"""The totals on the device, so that one synchronisation reads them with the gradient's norm."""
