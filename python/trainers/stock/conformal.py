"""Conformal calibration: shift each quantile so that it held on the calibration split.

Conformalised quantile regression (Romano, Patterson & Candès 2019), one offset per horizon and quantile, so that both
tails are right and not only the band; the median stays. Windows that overlap are not independent: the number
of effective samples says how much an offset is worth.
"""

from typing import Final

import numpy as np

from predictor.arrays import FloatArray
from predictor.artifact import Conformal
from predictor.errors import ConfigurationError

MEDIAN: Final = 0.5


def calibrate(
    units: FloatArray, outcomes: FloatArray, levels: tuple[float, ...], *, sessions: int, horizons: tuple[int, ...]
) -> Conformal:
    """Offsets from forecasts and outcomes of the calibration split.

    Args:
        units: [N, H, Q] quantiles in units of each window's volatility.
        outcomes: [N, H] in the same unit, NaN where unknown.
        levels: [Q]
        sessions: different decision days among the N windows.
        horizons: [H] trading days.

    Raises:
        ConfigurationError: a horizon has no known outcome.
    """
    for h, horizon in enumerate(horizons):
        if not np.isfinite(outcomes[:, h]).any():
            raise ConfigurationError(
                f"split calibration has no known outcome {horizon} sessions ahead; give more bars or leave the horizon "
                "out"
            )
    offsets = [
        tuple(
            0.0 if level == MEDIAN else _offset(outcomes[:, h] - units[:, h, q], level)
            for q, level in enumerate(levels)
        )
        for h in range(len(horizons))
    ]
    return Conformal(offsets=tuple(offsets), effective_samples=tuple(sessions / h for h in horizons))


def _offset(residuals: FloatArray, level: float) -> float:
    """The shift below which a share `level` of residuals falls, with the (n + 1) correction, away from the median."""
    known = np.sort(residuals[np.isfinite(residuals)])
    count = len(known)
    exact = round((count + 1) * level, 9)  # 0.55 * 100 is a little more than 55
    rank = np.ceil(exact) if level > MEDIAN else np.floor(exact)
    return float(known[int(np.clip(rank, 1, count)) - 1])
