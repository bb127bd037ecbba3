"""Quantiles of what came before: nothing is known of today."""

from typing import Final

import numpy as np

from trainers.stock.evaluation.baselines.baseline import Baseline, Fitted, FloatArray
from trainers.stock.evaluation.baselines.sample import Sample


def unconditional(sample: Sample) -> Fitted:
    """Quantiles of each symbol's own outcomes; of all symbols' if it has none."""
    found = np.stack([_of_horizon(sample, h) for h in range(len(sample.target.horizons))], axis=1)

    return Fitted(quantiles=lambda asked: found[asked.windows.symbols])


def _of_horizon(sample: Sample, h: int) -> FloatArray:
    """[S, Q] of the outcomes of one horizon."""
    labels = sample.history.labels[..., h]
    found = np.tile(np.nanquantile(labels[sample.learnt], sample.levels), (len(labels), 1))
    for symbol, learnt in enumerate(sample.learnt):
        own = labels[symbol, learnt]
        known = own[np.isfinite(own)]
        if known.size:
            found[symbol] = np.quantile(known, sample.levels)
    return found


UNCONDITIONAL: Final = Baseline(name="unconditional quantiles", estimator=unconditional)
