"""Global importance: the mean absolute contribution of each input over many instances.

Means are over all symbols of all instances. Standard errors treat instances as independent. Instances of neighbouring
days overlap and are dependent, so their true standard errors are larger.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from predictor.arrays import FloatArray
from predictor.errors import QuantraError
from predictor.forecast import Attribution, RowKind, TargetPoint
from predictor.instance import InstanceOrError

MAX_REFUSALS: Final = 10
"""Refusals that a report lists; further ones are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GlobalExplanationQuery:
    """A request to explain the forecasts of many instances together."""

    instances: tuple[InstanceOrError, ...]
    """An instance, or the error of one that could not be decoded, which counts as refused."""
    targets: tuple[TargetPoint, ...] = ()
    """Empty = every horizon, at the quantile nearest to 0.5."""
    method: str = ""
    """As `ExplanationQuery.method`."""
    tolerance: float = 0.01
    """As `ExplanationQuery.tolerance`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error of an instance, or of one symbol, that could not be explained."""

    place: int
    """Index of the instance in the query, from 0."""
    symbol: str
    """Empty = the instance."""
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
    """[R] mean of the absolute contributions, in `unit`."""
    standard_error: FloatArray
    """[R] standard error of `mean_size` over instances; NaN for a single instance."""
    windows: int
    """Explained symbols of all instances."""
    converged_share: float
    """Share of `windows` whose explanation is within the tolerance."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GlobalImportance:
    """Global importance after `done` of `total` instances."""

    model: str
    version: int
    weights_hash: str
    targets: tuple[TargetImportance, ...]
    """In the order of the query; empty while no instance has been explained."""
    done: int
    """Instances so far, refused ones included."""
    total: int
    refused: int
    """Instances that could not be explained."""
    refused_symbols: int
    """Symbols that could not be explained in instances that could."""
    refusals: tuple[Refusal, ...]
    """The first MAX_REFUSALS errors of instances and symbols."""


@final
class ImportanceTally:
    """Accumulates the explanations of a query's instances, one instance at a time."""

    def __init__(self, total: int, *, model: str, version: int, weights_hash: str) -> None:
        """Start an empty tally of `total` instances."""
        self._total = total
        self._model, self._version, self._weights_hash = model, version, weights_hash
        self._targets: tuple[_TargetSums, ...] = ()
        self._done_count = self._refused_count = self._refused_symbols = 0
        self._refusals: list[Refusal] = []

    def add(self, attributions: Sequence[Attribution]) -> None:
        """Add the explanations of the next instance, one per target, without its refused symbols."""
        self._targets = self._targets or tuple(_TargetSums(attribution) for attribution in attributions)
        for sums, attribution in zip(self._targets, attributions, strict=True):
            sums.add(attribution)
        refusals = attributions[0].refusals
        self._refused_symbols += len(refusals)
        self._list_refusals([Refusal(self._done_count, symbol, error) for symbol, error in refusals.items()])
        self._done_count += 1

    def refuse(self, error: QuantraError) -> None:
        """Count the next instance as one that could not be explained."""
        self._refused_count += 1
        self._list_refusals([Refusal(self._done_count, "", error)])
        self._done_count += 1

    def report(self) -> GlobalImportance:
        """The global importance so far."""
        return GlobalImportance(
            model=self._model,
            version=self._version,
            weights_hash=self._weights_hash,
            targets=tuple(sums.importance() for sums in self._targets),
            done=self._done_count,
            total=self._total,
            refused=self._refused_count,
            refused_symbols=self._refused_symbols,
            refusals=tuple(self._refusals),
        )

    def _list_refusals(self, refusals: Sequence[Refusal]) -> None:
        self._refusals += refusals[: MAX_REFUSALS - len(self._refusals)]


class _TargetSums:
    """Sums over k instances for one target; each has n windows, whose absolute contributions add up to s [R]."""

    def __init__(self, first: Attribution) -> None:
        self._first = first
        self._k = self._n = self._n_n = self._converged = 0
        self._s, self._s_s, self._s_n = np.zeros((3, len(first.row_names)))

    def add(self, attribution: Attribution) -> None:
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
        """The means and their standard errors."""
        mean = self._s / self._n
        # standard error of a ratio of sums over instances (Cochran 1977, "Sampling techniques", 6.4)
        error = np.full_like(mean, np.nan)
        if self._k > 1:
            squares = self._s_s - 2 * mean * self._s_n + mean**2 * self._n_n  # of s - mean n, summed
            error = np.sqrt(np.maximum(squares, 0) * self._k / (self._k - 1)) / self._n
        return TargetImportance(
            horizon=self._first.horizon,
            quantile=self._first.quantile,
            unit=self._first.unit,
            row_names=self._first.row_names,
            row_kinds=self._first.row_kinds,
            mean_size=mean,
            standard_error=error,
            windows=self._n,
            converged_share=self._converged / self._n,
        )
