"""The values that processes sum for a phase's window, in one flat vector for a single collective.

The totals of a process are a row of numbers: the mean loss and the mean of every part | the count of each, as two
numbers | the requests. For a loss of several terms, the terms replace the parts, and their weights follow the counts.
Every process fills one row and leaves zeros in the others, so that the sum preserves every row exactly.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import final

import torch
from torch import Tensor
from torch.nn import Parameter

from trainers.loop.errors import ContractError, ParallelismError
from trainers.loop.group.group import LocalTotals, WindowRequests, WindowTotals, check_targets
from trainers.loop.loss import Loss, WeightedMean

LIMB = 2**20  # float32 holds integers up to 2**24, so two of these hold counts up to 2**44


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
    requests: WindowRequests


@final
class RowFormat:
    """Writes and reads rows.

    Args:
        parts: The names of the parts, in order.
        terms: Whether the parts are the terms of a loss.

    Attributes:
        parts: The names of the parts.
        terms: Whether the parts are the terms of a loss.
        width: Number of values in a row.
    """

    def __init__(self, parts: Sequence[str], *, terms: bool = False) -> None:
        self.parts = tuple(parts)
        self.terms = terms
        self._columns = 1 + len(self.parts)
        self._weights = len(self.parts) if terms else 0
        self.width = 3 * self._columns + self._weights + 2

    def write(self, local: LocalTotals, row: Tensor) -> None:
        """Write the totals into a row of zeros (shape [width]) without synchronisation.

        Raises:
            ContractError: The loss has a part that the row does not.
        """
        if not local.losses:
            return
        self._check_known(local.losses)
        columns = [_add_targets((loss.mean, loss.count) for loss in local.losses)]
        columns += [self._column(name, local.losses) for name in self.parts]
        for index, column in enumerate(columns):
            if column:
                row[index] = weighted_mean(column, row)
        counts = [sum(count for _, count in column) for column in columns]
        limbs = [limb for count in counts for limb in divmod(count, LIMB)]
        numbers = [*limbs, *(_weight(name, local.losses) for name in self.parts if self.terms)]
        row[self._columns : -2].copy_(torch.tensor(numbers, dtype=row.dtype), non_blocking=True)

    def write_requests(self, requests: WindowRequests, row: Tensor) -> None:
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
        requests = WindowRequests(stop=int(next(values)), save=bool(next(values)))
        return ExchangeRow(means=means, counts=counts, weights=weights, requests=requests)

    def _column(self, name: str, losses: Sequence[Loss]) -> list[tuple[Tensor, int]]:
        """Return the means and counts of a part or term in all pieces."""
        if self.terms:
            terms = [loss.terms[name] for loss in losses if name in loss.terms]
            return _add_targets((term.mean, term.count) for term in terms)
        return [(loss.parts[name], loss.count) for loss in losses if name in loss.parts]

    def _check_known(self, losses: Sequence[Loss]) -> None:
        if self.terms:
            return  # terms are checked against the counts
        for loss in losses:
            for name in loss.parts:
                if name not in self.parts:
                    raise ContractError(
                        f"the loss function returned the part {name!r}, which no process returned in the phase's first "
                        f"window (there: {', '.join(self.parts) or 'none'}); processes agree on the parts in that "
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


def _add_targets(column: Iterable[tuple[Tensor, int]]) -> list[tuple[Tensor, int]]:
    return [(mean, count) for mean, count in column if count]


def _weight(name: str, losses: Sequence[Loss]) -> float:
    """Return the weight of a term, which is the same in all pieces; 0 if no piece has the term."""
    return next((float(loss.terms[name].weight) for loss in losses if name in loss.terms), 0.0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTotals:
    """The totals of all processes.

    Attributes:
        head: The rows of all processes, shape [processes, width], on the device.
        rows: The format of the rows.
        unit: The divisor of the gradients.
    """

    head: Tensor
    rows: RowFormat
    unit: float

    @property
    def correction(self) -> float | Tensor:
        """Unit divided by true count, a finite scalar on the device; 1 if the counts were known before."""
        return 1.0 if self.rows.terms else self.unit / self.rows.count(self.head).clamp(min=1.0)

    def means(self) -> Sequence[Tensor]:
        """Return the mean loss of every process, scalars."""
        return self.head[:, 0].unbind()

    def scalars(self) -> Sequence[Tensor]:
        """Return all values of all rows, as scalars."""
        return self.head.flatten().unbind()

    def read(self, values: Iterator[float]) -> WindowTotals:
        """Compute the weighted mean over all processes, and combine their requests.

        Raises:
            EmptyTargetError: No process has a target.
            ContractError: The processes have different weights for a term.
        """
        rows = [self.rows.read(values) for _ in range(self.head.shape[0])]
        self._check_weights(rows)
        loss = WeightedMean()
        for row in rows:
            self._add(row, loss)
        check_targets(loss.count)
        requests = WindowRequests(
            stop=max(row.requests.stop for row in rows),
            save=any(row.requests.save for row in rows),
        )
        return WindowTotals(loss=loss, correction=1.0 if self.rows.terms else self.unit / loss.count, requests=requests)

    def _check_weights(self, rows: Sequence[ExchangeRow]) -> None:
        for index, name in enumerate(self.rows.parts if self.rows.terms else ()):
            weights = {row.weights[index] for row in rows if row.counts[index + 1]}
            if len(weights) > 1:
                raise ContractError(
                    f"the weight of the term {name!r} differs between the processes of the group: {sorted(weights)}; "
                    "make it a function of what all of them know, such as the number of windows done"
                )

    def _add(self, row: ExchangeRow, loss: WeightedMean) -> None:
        """Add the row of a process."""
        if self.rows.terms:
            for index, name in enumerate(self.rows.parts):
                loss.add_term(name, row.means[index + 1], row.counts[index + 1], row.weights[index])
            return
        loss.add(row.means[0], row.counts[0], {})
        for name, mean, count in zip(self.rows.parts, row.means[1:], row.counts[1:], strict=True):
            loss.add_part(name, mean, count)


@final
class Bundle:
    """The vector of one phase, reused from window to window.

    It consists of: the number of processes that have a gradient, per parameter | the row of every process | the
    gradients, multiplied by the count that backward assumed and divided by the unit. The vector is float64 if a
    parameter is, otherwise float32: gradients of fewer bits are summed in float32 and rounded once, in `unpack`.

    Args:
        parameters: The phase's parameters.
        rows: The format of the rows.
        rank: Number of this process.
        size: Number of processes.
        unit: A power of two near a typical count. Dividing by it prevents the gradients from overflowing and is exact.

    Attributes:
        vector: The values to sum, shape [N].

    Raises:
        ParallelismError: The parameters are on several devices, complex, or have sparse gradients.
    """

    def __init__(self, parameters: Sequence[Parameter], *, rows: RowFormat, rank: int, size: int, unit: float) -> None:
        check_one_vector(parameters)
        self._parameters = tuple(parameters)
        self._rows = rows
        self._unit = unit
        double = any(parameter.dtype == torch.float64 for parameter in parameters)
        lengths = [parameter.numel() for parameter in parameters]
        parts = [len(lengths), size * rows.width, sum(lengths)]
        self.vector = torch.zeros(
            sum(parts), dtype=torch.float64 if double else torch.float32, device=parameters[0].device
        )
        self._owners, head, self._gradients = self.vector.split(parts)
        self._head = head.view(size, rows.width)
        self._row = self._head[rank]
        views = self._gradients.split(lengths)
        self._views = [view.view(parameter.shape) for parameter, view in zip(parameters, views, strict=True)]

    @property
    def parts(self) -> Sequence[str]:
        """The names of the parts in a row."""
        return self._rows.parts

    def pack(self, local: LocalTotals) -> None:
        """Write this process's totals and gradients into the vector.

        Raises:
            ContractError: The loss has a part that the processes have not agreed on.
        """
        self._head.zero_()
        self._rows.write(local, self._row)
        self._rows.write_requests(local.requests, self._row)
        missing = self._find_missing()
        self._owners.fill_(1.0)
        for index in missing:
            self._owners[index] = 0.0
            self._views[index].zero_()
        self._copy_present(set(missing), inward=True)
        self._gradients.mul_(local.expected / self._unit)

    def unpack(self) -> None:
        """Write the sums of all processes from the vector into the parameters' gradients.

        It synchronises only if a gradient is missing here, to read whether another process has it.
        """
        missing = self._find_missing()
        self._copy_present(set(missing), inward=False)
        if not missing:
            return
        owners = self._owners.tolist()
        for index in missing:
            if owners[index]:
                parameter = self._parameters[index]
                parameter.grad = torch.empty_like(parameter).copy_(self._views[index])

    def totals(self) -> GroupTotals:
        """Return the totals in the vector."""
        return GroupTotals(head=self._head, rows=self._rows, unit=self._unit)

    def _find_missing(self) -> list[int]:
        return [index for index, parameter in enumerate(self._parameters) if parameter.grad is None]

    def _copy_present(self, missing: set[int], *, inward: bool) -> None:
        views = [view for index, view in enumerate(self._views) if index not in missing]
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if gradients:
            target, source = (views, gradients) if inward else (gradients, views)
            torch._foreach_copy_(target, source)  # pyright: ignore[reportPrivateImportUsage]  no public name


def check_one_vector(parameters: Sequence[Parameter]) -> None:
    """Check that one real vector [N] can hold all gradients.

    Raises:
        ParallelismError: The parameters are on several devices, complex, or have sparse gradients.
    """
    if any(parameter.grad is not None and parameter.grad.is_sparse for parameter in parameters):
        raise ParallelismError(
            "a phase has sparse gradients (sparse=True), which several processes cannot sum in one vector; use dense "
            "ones, or train in one process"
        )
    devices = sorted({str(parameter.device) for parameter in parameters})
    if len(devices) > 1:
        raise ParallelismError(
            f"a phase's parameters are on several devices ({', '.join(devices)}), but a process of a group trains on "
            "one: move all modules of the phase to it"
        )
    if any(parameter.is_complex() for parameter in parameters):
        raise ParallelismError(
            "a phase has complex parameters, which a group cannot sum; use two real parameters for real and imaginary "
            "parts (torch.view_as_complex in the forward)"
        )
