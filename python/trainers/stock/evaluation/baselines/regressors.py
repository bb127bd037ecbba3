"""What ridge and boosted trees read of a window, and the units in which they learn."""

import numpy as np
from numpy.typing import NDArray

from predictor.networks import TargetKind
from trainers.stock.data import History, Windows
from trainers.stock.evaluation.baselines.case import Case, FloatArray, in_blocks, recent

LAGS = (1, 2, 3, 4, 5, 10, 20)
"""Days back of single values of the daily series."""
MEANS = (5, 22, 60)
"""Days of its averages: HAR's week and month, and the window."""
FEW = 5
"""Days over which the features of the window are also averaged."""


def regressors(history: History, windows: Windows) -> NDArray[np.float64]:
    """[N, K] what is known on each window's day, all of it measured from the window's own level.

    Values and averages of the target's daily series and of its size, the window's level and volatility themselves, and
    the features that a network reads: of the last session, and averaged over a week. 0 where unknown.
    """
    return in_blocks(windows, lambda block: _of_block(history, block))


def learnt_outcomes(history: History, windows: Windows) -> FloatArray:
    """[N, H] outcomes in the unit in which they are learnt; NaN where unknown."""
    location, scale = _unit(history, windows)
    return (history.outcomes(windows) - location) / scale


def restored(case: Case, units: FloatArray) -> FloatArray:
    """[N, H, Q] quantiles in the target's own unit, from those that were learnt."""
    location, scale = _unit(case.history, case.windows)
    return location[..., None] + scale[..., None] * units


def _unit(history: History, windows: Windows) -> tuple[FloatArray, FloatArray]:
    """Location and scale, [N, H] both, of the outcomes that are learnt.

    Returns are learnt in units of the window's volatility, so that calm and wild days weigh alike. Log volatility is
    learnt as its change from the window's mean: trees cannot go beyond the levels that they have seen.
    """
    location, scale = (part.numpy() for part in history.level(windows))
    if history.pipeline.target.kind is TargetKind.LOG_VOLATILITY:
        scale = np.ones_like(scale)
    return location, scale * history.pipeline.target.spread


def _of_block(history: History, windows: Windows) -> FloatArray:
    location, scale = (part.numpy()[:, :1] for part in history.level(windows))  # those of the shortest horizon
    daily = (recent(history, windows, max(MEANS)) - location) / scale
    known = np.isfinite(daily)
    values, sizes = np.where(known, daily, 0.0), np.where(known, np.abs(daily), 0.0)
    lags = np.stack([values[:, -k] for k in LAGS], axis=1)
    means = [part[:, -days:].mean(axis=1) for part in (values, sizes) for days in MEANS]
    observed = history.gather(windows).inputs.observed.double().numpy()
    return np.concatenate(
        [lags, np.stack(means, axis=1), location, np.log(scale), observed[:, -1], observed[:, -FEW:].mean(axis=1)],
        axis=1,
    )
