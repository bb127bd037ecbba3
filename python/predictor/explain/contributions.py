"""The numbers behind one explained target, and the baseline that they start from."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Baseline:
    """The window that contributions count from, usually the average training day.

    Observed features are scaled, so their training mean is 0; which cells are known is not varied; the conformal
    offsets count from 0. All numbers come from the training split.
    """

    name: str
    """Such as `train_mean`; travels with every attribution."""
    known: NDArray[np.float32]
    """[K] one value per known feature, for every session."""
    static: NDArray[np.float32]
    """[C]"""
    location: NDArray[np.float64]
    """[H] level of the target, in its unit."""
    scale: NDArray[np.float64]
    """[H] volatility of the target, in its unit, positive."""

    def __post_init__(self) -> None:
        if not (self.scale > 0).all():
            raise ConfigurationError(f"baseline {self.name!r} has scale {self.scale.min():g}, but it must be positive")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contributions:
    """Signed contributions to one horizon and quantile for N windows, in the target's unit.

    A window's contributions add up to `prediction - baseline_prediction` within `relative_gap`.
    Legend: T encoder sessions, D future sessions, F observed, K known, C static features.
    """

    observed: FloatArray
    """[N, T, F] exactly 0 where a cell is unknown."""
    known: FloatArray
    """[N, T + D, K]"""
    static: FloatArray
    """[N, C]"""
    location: FloatArray
    """[N]"""
    scale: FloatArray
    """[N]"""
    conformal: FloatArray
    """[N] all conformal offsets together."""
    neighbours: FloatArray
    """[N, M - 1] each other stock that the forecast depends on, with all its inputs; width 0 for none."""
    prediction: FloatArray
    """[N]"""
    baseline_prediction: FloatArray
    """[N] the forecast at the baseline with the window's own mask."""
    relative_gap: FloatArray
    """[N] |sum - difference| / max(|difference|, floor), where the floor is 5 % of the window's volatility over the
    horizon (scale x spread)."""
    converged: NDArray[np.bool_]
    """[N] whether the gap is within the tolerance asked for."""
    nodes: NDArray[np.int32]
    """[N] quadrature nodes used."""

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The contributions to several groups of windows, one after the other."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def total(self) -> FloatArray:
        """[N] sum of all contributions."""
        return (
            self.observed.sum((1, 2))
            + self.known.sum((1, 2))
            + self.static.sum(1)
            + self.location
            + self.scale
            + self.conformal
            + self.neighbours.sum(1)
        )
