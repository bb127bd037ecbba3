"""Standard errors of a daily series' mean whose days are not independent (Newey & West 1987)."""

from importlib.util import find_spec

import numpy as np

from predictor.arrays import FloatArray


def newey_west(daily: FloatArray, lag: int) -> tuple[float, float] | None:
    """Mean and standard error of a daily series [D], NaN where unknown; None without the package statsmodels.

    Args:
        daily: one value per day.
        lag: days after which they are independent; shortened where the series is not longer.
    """
    if find_spec("statsmodels") is None:
        return None
    from statsmodels.regression.linear_model import OLS

    known = daily[np.isfinite(daily)]
    fit = OLS(known, np.ones(len(known))).fit(cov_type="HAC", cov_kwds={"maxlags": min(lag, len(known) - 1)})
    return float(fit.params[0]), float(fit.bse[0])


def mean_error(series: FloatArray, lag: int | None = None) -> float:
    """Standard error of the mean of a series [T] whose neighbours may be alike (Newey & West 1987).

    Args:
        series: without NaN.
        lag: how many neighbours count; None for floor(4 (T / 100)^(2/9)) (Newey & West 1994).
    """
    count = len(series)
    reach = int(4 * (count / 100) ** (2 / 9)) if lag is None else lag
    left = series - series.mean()
    variance = float(left @ left) / count
    for k in range(1, min(reach, count - 1) + 1):
        variance += 2 * (1 - k / (reach + 1)) * float(left[k:] @ left[:-k]) / count
    return (max(variance, 0.0) / count) ** 0.5


def stretch(share: float) -> float:
    """How much larger an error must be that was estimated from few independent stretches of days.

    The critical value at 95 % where Bartlett's window, or the bootstrap's block, is this share of all days (Kiefer &
    Vogelsang 2005, table 1; Shao & Politis 2013), over the normal distribution's.

    Args:
        share: lag or block over days, from 0 to 1.
    """
    return 1 + (2.1859 * share + 0.3142 * share**2 - 0.3427 * share**3) / 1.6449
