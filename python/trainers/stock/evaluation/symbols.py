"""The model symbol by symbol."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainers.stock.evaluation.comparison import improvement
from trainers.stock.evaluation.judged import Judged
from trainers.stock.evaluation.losses import inside, overall, pinball
from trainers.stock.evaluation.resampling import Interval, interval, resampled_mean

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolScores:
    """The model on the windows of one symbol."""

    symbol: str
    windows: int
    mean: Interval
    """Pinball loss over all horizons, each divided by its spread."""
    improvement: Interval
    """On the best baseline of the whole panel, as a share of its loss."""
    band: Interval
    """Share of outcomes inside the band, over all horizons."""


def by_symbol(
    judged: Judged, names: tuple[str, ...], forecasts: FloatArray, baseline: FloatArray
) -> tuple[SymbolScores, ...]:
    """One row a symbol that has windows, in the panel's order.

    Args:
        judged: the windows.
        names: of the panel's rows.
        forecasts: [N, H, Q] the model's.
        baseline: [N, H] pinball losses of the best baseline.
    """
    return tuple(
        _of_symbol(judged, names[symbol], judged.symbols == symbol, forecasts, baseline)
        for symbol in np.unique(judged.symbols)
    )


def _of_symbol(
    judged: Judged, name: str, rows: NDArray[np.bool_], forecasts: FloatArray, baseline: FloatArray
) -> SymbolScores:
    own = judged.rows(rows)
    ours, theirs = overall(own, pinball(own, forecasts[rows])), overall(own, baseline[rows])
    held = np.nanmean(inside(own, forecasts[rows]), axis=1)
    return SymbolScores(
        symbol=name,
        windows=int(rows.sum()),
        mean=_mean(own, ours),
        improvement=improvement(own, ours, theirs),
        band=_mean(own, held),
    )


def _mean(judged: Judged, values: FloatArray) -> Interval:
    mean, resamples = resampled_mean(judged, values)
    return interval(float(mean), resamples)
