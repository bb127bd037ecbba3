"""Forecasts of many days and stocks, as a strategy reads them and a fold stores them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.errors import ConfigurationError
from predictor.networks import TargetKind, anchor_index


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecasts:
    """Forecasts of S stocks after the closes of D sessions, for H horizons and Q quantiles; NaN where there is none."""

    sessions: NDArray[np.int32]
    """[D] yyyymmdd of the decisions."""
    kind: TargetKind
    horizons: tuple[int, ...]
    """[H] sessions."""
    levels: tuple[float, ...]
    """[Q]"""
    values: FloatArray
    """[D, S, H, Q] in the target's unit."""
    scores: FloatArray | None = None
    """[D, S, H] of a ranking model: larger is expected to do better than the others that day."""

    @property
    def median(self) -> FloatArray:
        """[D, S, H] the quantile nearest to the median."""
        return self.values[..., anchor_index(self.levels)]

    @property
    def ranking(self) -> FloatArray:
        """[D, S, H] what stocks are ordered by: the model's score where it gives one, else the median."""
        return self.median if self.scores is None else self.scores

    def place(self, horizon: int) -> int:
        """Where a horizon stands among the H.

        Raises:
            ConfigurationError: it is not forecast.
        """
        if horizon not in self.horizons:
            raise ConfigurationError(f"horizon {horizon} is not forecast; the model has {list(self.horizons)}")
        return self.horizons.index(horizon)


def joined(parts: Sequence[Forecasts]) -> Forecasts:
    """The forecasts of folds that follow one another."""
    first = parts[0]
    scores = [part.scores for part in parts if part.scores is not None]
    return Forecasts(
        sessions=np.concatenate([part.sessions for part in parts]),
        kind=first.kind,
        horizons=first.horizons,
        levels=first.levels,
        values=np.concatenate([part.values for part in parts]),
        scores=np.concatenate(scores) if scores else None,
    )
