"""Quantiles of what came in the training part: nothing is known of today."""

import numpy as np

from trainers.stock.evaluation.baselines.case import Baseline, Case


def unconditional(case: Case) -> Baseline:
    """Quantiles of each symbol's own outcomes in the training part; of all symbols' if it has none there."""
    outcomes = case.history.outcomes(case.learnt)
    pooled = np.nanquantile(outcomes, case.levels, axis=0).T
    forecasts = np.empty(case.shape)
    for symbol in np.unique(case.windows.symbols):
        own = outcomes[case.learnt.symbols == symbol]
        known = np.isfinite(own).all(axis=1)
        quantiles = np.quantile(own[known], case.levels, axis=0).T if known.any() else pooled
        forecasts[case.windows.symbols == symbol] = quantiles
    return Baseline(name="unconditional quantiles", forecasts=forecasts)
