"""What moves a model's forecasts in general: the mean size of each input's contribution over many instances.

Sizes are means over all symbols of all instances together. Their standard errors take instances as independent;
instances of neighbouring days are not, for they read much the same, and their means are less certain than told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from predictor.arrays import FloatArray
from predictor.errors import QuantraError
from predictor.forecast import Attribution, RowKind, TargetPoint
from predictor.instance import INTEGRATED_GRADIENTS, ReadInstance

MOST_REFUSALS: Final = 10
"""Refusals that a report tells one by one; those beyond them are counted."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GlobalQuery:
    """A question for what moves the forecasts of many instances."""

    instances: tuple[ReadInstance, ...]
    """Each an instance, or the error of one that could not be read, which counts as refused."""
    targets: tuple[TargetPoint, ...] = ()
    """Empty = every horizon, at the quantile nearest to 0.5."""
    method: str = INTEGRATED_GRADIENTS
    tolerance: float = 0.01
    """As `Query.tolerance`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An instance that could not be explained, or one symbol of it."""

    place: int
    """Of the instance in the query, from 0."""
    symbol: str
    """Empty = the whole instance."""
    error: QuantraError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetImportance:
    """How much each of R inputs moves one target, up or down."""

    horizon: int
    quantile: float
    unit: str
    row_names: tuple[str, ...]
    row_kinds: tuple[RowKind, ...]
    mean_size: FloatArray
    """[R] mean of the absolute contributions, in the unit."""
    standard_error: FloatArray
    """[R] of `mean_size`, from instance to instance; NaN until there are two."""
    windows: int
    """Symbols of all instances that the mean is over."""
    converged: float
    """Share of them whose explanation is within the tolerance."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GlobalImportance:
    """What is known after some of the instances."""

    model: str
    version: int
    weights_hash: str
    targets: tuple[TargetImportance, ...]
    """In the order asked; empty while no instance has been explained."""
    done: int
    """Instances so far, those refused included."""
    total: int
    refused: int
    """Instances without any explanation."""
    refused_symbols: int
    """Symbols of the others without one."""
    refusals: tuple[Refusal, ...]
    """The first MOST_REFUSALS of both."""


@final
class ImportanceTally:
    """Adds up the explanations of a query's instances, one instance after the other."""

    def __init__(self, total: int, *, model: str, version: int, weights_hash: str) -> None:
        """Start with nothing; `total` instances are to come, explained by the model that is named."""
        self._total = total
        self._model, self._version, self._weights_hash = model, version, weights_hash
        self._targets: tuple[_TargetSums, ...] = ()
        self._done = self._refused = self._refused_symbols = 0
        self._refusals: list[Refusal] = []

    def add(self, attributions: Sequence[Attribution]) -> None:
        """Take the explanations of the next instance, one per target; symbols that were refused are left out."""
        self._targets = self._targets or tuple(_TargetSums(attribution) for attribution in attributions)
        for sums, attribution in zip(self._targets, attributions, strict=True):
            sums.add(attribution)
        refusals = attributions[0].refusals
        self._refused_symbols += len(refusals)
        self._tell([Refusal(self._done, symbol, error) for symbol, error in refusals.items()])
        self._done += 1

    def refuse(self, error: QuantraError) -> None:
        """Count the next instance as one that could not be explained."""
        self._refused += 1
        self._tell([Refusal(self._done, "", error)])
        self._done += 1

    def report(self) -> GlobalImportance:
        """What is known by now."""
        return GlobalImportance(
            model=self._model,
            version=self._version,
            weights_hash=self._weights_hash,
            targets=tuple(sums.importance() for sums in self._targets),
            done=self._done,
            total=self._total,
            refused=self._refused,
            refused_symbols=self._refused_symbols,
            refusals=tuple(self._refusals),
        )

    def _tell(self, refusals: Sequence[Refusal]) -> None:
        self._refusals += refusals[: MOST_REFUSALS - len(self._refusals)]


class _TargetSums:
    """Sums over k instances for one target: n windows each, of which the absolute contributions add up to s [R]."""

    def __init__(self, first: Attribution) -> None:
        self._first = first
        self._k = self._n = self._n_n = self._converged = 0
        self._s, self._s_s, self._s_n = np.zeros((3, len(first.row_names)))

    def add(self, attribution: Attribution) -> None:
        """Take one more instance."""
        explained = np.isfinite(attribution.prediction)
        n, s = int(explained.sum()), np.abs(attribution.per_row[explained]).sum(axis=0)
        self._k += 1
        self._n += n
        self._n_n += n * n
        self._s += s
        self._s_s += s * s
        self._s_n += s * n
        self._converged += int(attribution.converged[explained].sum())

    def importance(self) -> TargetImportance:
        """The means, and how far they would be off in another sample of instances."""
        mean = self._s / self._n
        return TargetImportance(
            horizon=self._first.horizon,
            quantile=self._first.quantile,
            unit=self._first.unit,
            row_names=self._first.row_names,
            row_kinds=self._first.row_kinds,
            mean_size=mean,
            standard_error=self._standard_error(mean),
            windows=self._n,
            converged=self._converged / self._n,
        )

    def _standard_error(self, mean: FloatArray) -> FloatArray:
        """[R] of a ratio of sums over instances (Cochran 1977, "Sampling techniques", 6.4)."""
        if self._k == 1:
            return np.full_like(mean, np.nan)
        squares = self._s_s - 2 * mean * self._s_n + mean**2 * self._n_n  # of s - mean n, summed
        return np.sqrt(np.maximum(squares, 0) * self._k / (self._k - 1)) / self._n
