"""A process's totals as a row of numbers, so that they travel in the same vector as the gradients.

A row is: the mean loss, the mean of every part | the count of each, in two numbers | the wishes. Of a loss of several
terms these stand in the place of the parts, and the weight of each follows its count. In the vector every process has a
row of its own and zeros in the others', so that adding up leaves each row exactly as it was sent.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import final

import torch
from torch import Tensor

from trainers.loop.errors import ContractError
from trainers.loop.loss import Loss
from trainers.loop.window.totals import LocalTotals, Wishes

LIMB = 2**20  # float32 holds integers up to 2**24, so two of these hold counts up to 2**44


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a row says.

    Attributes:
        means: Of the loss, then of every part.
        counts: The targets that each is over.
        weights: Of every term; none for parts.
        wishes: What the process wants.
    """

    means: Sequence[float]
    counts: Sequence[int]
    weights: Sequence[float]
    wishes: Wishes


@final
class RowFormat:
    """Writes and reads rows.

    Args:
        parts: The parts' names, in order.
        terms: Whether they are the terms of a loss of several.

    Attributes:
        parts: The names.
        terms: As given.
        width: Numbers in a row.
    """

    def __init__(self, parts: Sequence[str], *, terms: bool = False) -> None:
        self.parts = tuple(parts)
        self.terms = terms
        self._columns = 1 + len(self.parts)
        self._weights = len(self.parts) if terms else 0
        self.width = 3 * self._columns + self._weights + 2

    def write(self, local: LocalTotals, row: Tensor) -> None:
        """Write the totals into a row of zeros (shape [width]) without waiting for its device.

        Raises:
            ContractError: There is a part that has no place in the row.
        """
        if not local.losses:
            return
        self._check_known(local.losses)
        columns = [_counted((loss.mean, loss.count) for loss in local.losses)]
        columns += [self._column(name, local.losses) for name in self.parts]
        for place, column in enumerate(columns):
            if column:
                row[place] = weighted_mean(column, row)
        numbers = [*_limbs(columns), *(_weight(name, local.losses) for name in self.parts if self.terms)]
        row[self._columns : -2].copy_(torch.tensor(numbers, dtype=row.dtype), non_blocking=True)

    def write_wishes(self, wishes: Wishes, row: Tensor) -> None:
        """Write the wishes into a row of zeros; mostly there are none."""
        if wishes.stop:
            row[-2] = wishes.stop
        if wishes.save:
            row[-1] = 1.0

    def count(self, rows: Tensor) -> Tensor:
        """The targets of all rows (shape [N, width]), a scalar on their device, up to rounding."""
        high, low = rows[:, self._columns : self._columns + 2].sum(0)
        return high * LIMB + low

    def read(self, values: Iterator[float]) -> Row:
        """Take one row off the values."""
        means = list(islice(values, self._columns))
        counts = [int(high) * LIMB + int(low) for high, low in (islice(values, 2) for _ in range(self._columns))]
        weights = list(islice(values, self._weights))
        wishes = Wishes(stop=int(next(values)), save=bool(next(values)))
        return Row(means=means, counts=counts, weights=weights, wishes=wishes)

    def _column(self, name: str, losses: Sequence[Loss]) -> list[tuple[Tensor, int]]:
        """What all pieces say of a part or term."""
        if self.terms:
            terms = [loss.terms[name] for loss in losses if name in loss.terms]
            return _counted((term.mean, term.count) for term in terms)
        return [(loss.parts[name], loss.count) for loss in losses if name in loss.parts]

    def _check_known(self, losses: Sequence[Loss]) -> None:
        if self.terms:
            return  # they were checked against the counts
        for loss in losses:
            for name in loss.parts:
                if name not in self.parts:
                    raise ContractError(
                        f"the loss function returned the part {name!r}, which no process returned in the phase's first "
                        f"window (there: {', '.join(self.parts) or 'none'}); several processes agree on the parts "
                        "there, so every part must be in it: see that the first batches have all of them"
                    )


def weighted_mean(column: Sequence[tuple[Tensor, int]], like: Tensor) -> Tensor:
    """The mean of scalars weighted by their counts, on the device and in the dtype of `like`."""
    means = [mean.detach().to(like) for mean, _ in column]
    if len(means) == 1:
        return means[0]
    total = sum(count for _, count in column)
    # Python numbers go to the device with the operation, where a tensor of weights would have to be copied first.
    weighted = torch._foreach_mul(means, [count / total for _, count in column])  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]  no public name
    return torch.stack(weighted).sum()


def _counted(column: Iterable[tuple[Tensor, int]]) -> list[tuple[Tensor, int]]:
    return [(mean, count) for mean, count in column if count]


def _limbs(columns: Sequence[Sequence[tuple[Tensor, int]]]) -> list[int]:
    counts = [sum(count for _, count in column) for column in columns]
    return [limb for count in counts for limb in divmod(count, LIMB)]


def _weight(name: str, losses: Sequence[Loss]) -> float:
    """The weight of a term, which is the same in all pieces; 0 if no piece has the term."""
    return next((float(loss.terms[name].weight) for loss in losses if name in loss.terms), 0.0)
