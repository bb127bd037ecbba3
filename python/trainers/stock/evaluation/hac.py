"""Errors of a daily series' mean whose days are not independent: Newey & West (1987), and what they lack if short."""

from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def newey_west(daily: FloatArray, lag: int) -> tuple[float, float] | None:
    """Mean and standard error of a daily series [D], NaN where unknown; None without the package statsmodels.

    Args:
        daily: one value a day.
        lag: days after which they are independent; shortened where the series is not longer.
    """
    if find_spec("statsmodels") is None:
        return None
    from statsmodels.regression.linear_model import OLS

    known = daily[np.isfinite(daily)]
    fit = OLS(known, np.ones(len(known))).fit(cov_type="HAC", cov_kwds={"maxlags": min(lag, len(known) - 1)})
    return float(fit.params[0]), float(fit.bse[0])


def stretch(share: float) -> float:
    """How much larger an error must be that was estimated from few independent stretches of days.

    The critical value at 95 % where Bartlett's window, or the bootstrap's block, is this share of all days (Kiefer &
    Vogelsang 2005, table 1; Shao & Politis 2013), over the normal distribution's.

    Args:
        share: lag or block over days, from 0 to 1.
    """
    return 1 + (2.1859 * share + 0.3142 * share**2 - 0.3427 * share**3) / 1.6449
