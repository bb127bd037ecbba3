"""Standard errors of the mean of a dependent daily series (Newey & West 1987)."""

from importlib.util import find_spec

import numpy as np

from predictor.arrays import FloatArray


def newey_west(daily: FloatArray, lag: int) -> tuple[float, float] | None:
    """Mean and standard error of a daily series [D]; None without the package statsmodels.

    Args:
        daily: One value per day, NaN where unknown.
        lag: Days after which values are independent; at most the length of the series.
    """
    if find_spec("statsmodels") is None:
        return None
    from statsmodels.regression.linear_model import OLS

    known = daily[np.isfinite(daily)]
    fit = OLS(known, np.ones(len(known))).fit(cov_type="HAC", cov_kwds={"maxlags": min(lag, len(known) - 1)})
    return float(fit.params[0]), float(fit.bse[0])


def mean_error(series: FloatArray, lag: int | None = None) -> float:
    """Standard error of the mean of an autocorrelated series [T] (Newey & West 1987).

    Args:
        series: Without NaN.
        lag: Number of autocovariances; None for floor(4 (T / 100)^(2/9)) (Newey & West 1994).
    """
    count = len(series)
    reach = int(4 * (count / 100) ** (2 / 9)) if lag is None else lag
    left = series - series.mean()
    variance = float(left @ left) / count
    for k in range(1, min(reach, count - 1) + 1):
        variance += 2 * (1 - k / (reach + 1)) * float(left[k:] @ left[:-k]) / count
    return (max(variance, 0.0) / count) ** 0.5


def stretch(share: float) -> float:
    """Factor by which an error from few independent blocks of days must be widened.

    The 95 % critical value for a Bartlett window or bootstrap block of this share of all days (Kiefer & Vogelsang 2005,
    table 1; Shao & Politis 2013), divided by that of the normal distribution.

    Args:
        share: Lag or block length over the number of days, from 0 to 1.
    """
    return 1 + (2.1859 * share + 0.3142 * share**2 - 0.3427 * share**3) / 1.6449
