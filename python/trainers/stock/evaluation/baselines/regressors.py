"""What ridge and boosted trees read of a window, and the units in which they learn."""

import numpy as np

from predictor.networks import TargetKind
from trainers.stock.data import History
from trainers.stock.evaluation.baselines.asked import Asked, FloatArray
from trainers.stock.evaluation.baselines.sample import recent
from trainers.stock.evaluation.units import Units

LAGS = (1, 2, 3, 4, 5, 10, 20)
"""Days back of single values of the daily series."""
MEANS = (5, 22, 60)
"""Days of its averages: HAR's week and month, and the window."""
FEW = 5
"""Days over which the features of the window are also averaged."""


def regressors(history: History, asked: Asked) -> FloatArray:
    """[N, K] what is known on each window's day, measured from the window's own level at the first horizon.

    Values and averages of the target's daily series and of its size, the window's level and volatility themselves, and
    the features that a network reads: of the last session, and averaged over a week. 0 where unknown.
    """
    windows, pipeline = asked.windows, history.pipeline
    location, scale = asked.units.location[:, 0], asked.units.scale[:, 0] / pipeline.target.spread[0]
    daily = (recent(history, windows, max(MEANS)) - location) / scale
    known = np.isfinite(daily)
    values, sizes = np.where(known, daily, 0.0), np.where(known, np.abs(daily), 0.0)
    lags = np.stack([values[:, -k] for k in LAGS], axis=1)
    means = [part[:, -days:].mean(axis=1) for part in (values, sizes) for days in MEANS]
    week = windows.positions[:, None] + np.arange(1 - min(FEW, pipeline.encoder_length), 1)
    observed = history.encoded.observed[windows.symbols[:, None], week].astype(np.float64)
    return np.concatenate(
        [lags, np.stack(means, axis=1), location, np.log(scale), observed[:, -1], observed.mean(axis=1)], axis=1
    )


def learnt_outcomes(history: History, asked: Asked) -> FloatArray:
    """[N, H] outcomes in the unit in which they are learnt; NaN where unknown."""
    return learnt_units(history, asked).told(history.outcomes(asked.windows)[..., None])[..., 0]


def learnt_units(history: History, asked: Asked) -> Units:
    """The units in which outcomes are learnt.

    Returns are learnt in units of the window's volatility, so that calm and wild days weigh alike. Log volatility is
    learnt as its change from the window's mean: trees cannot go beyond the levels that they have seen.
    """
    units = asked.units
    if history.pipeline.target.kind is TargetKind.LOG_VOLATILITY:
        return Units(location=units.location, scale=np.ones_like(units.scale))
    return units
