"""What a baseline is: something that is fitted on a sample, and then asked about any windows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from trainers.stock.evaluation.baselines.asked import Asked
from trainers.stock.evaluation.baselines.sample import Sample

FloatArray = NDArray[np.float64]


class NoForecastError(Exception):
    """A baseline that cannot be fitted or leaves windows out, and why; it is left out, and a note says so."""


class Fit(StrEnum):
    """What of a model's information a baseline was given."""

    AS_IS = "as it is"
    """It is not moved; for what needs no fit."""
    CALIBRATED = "calibrated"
    """Fitted on the training part, then moved on the calibration part, as the model's quantiles are."""
    REFITTED = "refitted"
    """Fitted on all that the model has seen: training, selection and calibration part. Not moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Symbols that a baseline could not be fitted on."""

    by: str
    """Name of the baseline whose forecasts they have instead."""
    why: Mapping[int, str]
    """Of each, by its row of the panel."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """A baseline whose numbers stand."""

    quantiles: Callable[[Asked], FloatArray]
    """[n, H, Q] in the target's unit for a block of n windows, from what was known on the day of each."""
    replaced: Replaced | None = None

    def forecasts(self, asked: Asked) -> FloatArray:
        """[N, H, Q] a bounded number of windows at a time.

        Raises:
            NoForecastError: some windows have none; scores on the others would not compare.
        """
        found = asked.in_blocks(self.quantiles)
        lost = int((~np.isfinite(found).all(axis=(1, 2))).sum())
        if lost:
            raise NoForecastError(f"it has no forecast for {lost} of {len(asked)} windows")
        return found


Estimator = Callable[[Sample], Fitted]
"""Fits a baseline.

Raises:
    NoForecastError: it cannot be fitted on this sample.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A forecast that needs no network."""

    name: str
    estimator: Estimator
    fits: tuple[Fit, ...] = (Fit.CALIBRATED, Fit.REFITTED)
    """In which ways it stands beside a model."""

    def named(self, fit: Fit) -> str:
        """What its row of scores is called."""
        return self.name if fit is Fit.AS_IS else f"{self.name}, {fit}"
