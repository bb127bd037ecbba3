"""Books that need no model, run on the same terms: what a strategy must stand beside. NumPy alone."""

from collections.abc import Mapping

import numpy as np

from predictor.arrays import FloatArray
from trainers.stock.backtest.strategies import equal_long, long_short

YEAR, MONTH, WEEK = 252, 21, 5
"""Sessions."""

EQUAL_WEIGHT = "equal weight"
MOMENTUM = "momentum 12-1"
REVERSAL = "reversal 5"


def benchmark_weights(closes: FloatArray, first: int, share: float) -> Mapping[str, FloatArray]:
    """What each benchmark wants after the closes from position `first` on.

    Equal weight is long every stock that has a bar. Momentum is long the stocks that rose most from 12 months to one
    month ago (Jegadeesh & Titman 1993), reversal those that fell most in 5 sessions (Lehmann 1990); both are short the
    opposite, on this share of the stocks.

    Args:
        closes: [T, S] adjusted closes of the whole history, NaN where there is no bar.
        first: position of the first decision.
        share: of the stocks on each side.

    Returns:
        [T - first, S] each.
    """
    present = np.isfinite(closes)
    momentum = np.where(present, _change(closes, YEAR, MONTH), np.nan)
    reversal = -_change(closes, WEEK, 0)
    return {
        EQUAL_WEIGHT: equal_long(present[first:]),
        MOMENTUM: long_short(momentum[first:], share),
        REVERSAL: long_short(reversal[first:], share),
    }


def _change(closes: FloatArray, since: int, until: int) -> FloatArray:
    """[T, S] log return from `since` to `until` sessions ago; NaN where either close is missing."""
    change = np.full_like(closes, np.nan)
    ends = slice(since - until, len(closes) - until)
    change[since:] = np.log(closes[ends] / closes[: max(0, len(closes) - since)])
    return change
