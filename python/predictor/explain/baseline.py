"""What a forecast is compared with."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    """[K] one value a known feature, for every session."""
    static: NDArray[np.float32]
    """[C]"""
    location: NDArray[np.float64]
    """[H] level of the target, in its unit."""
    scale: NDArray[np.float64]
    """[H] volatility of the target, in its unit, positive."""

    def __post_init__(self) -> None:
        if not (self.scale > 0).all():
            raise ConfigurationError(f"baseline {self.name!r} has scale {self.scale.min():g}, but it must be positive")
