"""Errors of a daily series' mean whose days are not independent: Newey & West (1987)."""

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
