"""Bars whose future is noise."""

from dataclasses import replace

import numpy as np

from predictor.arrays import FloatArray
from predictor.bars import BarPanel

NOISE = 0.5
"""Standard deviation of the logarithm by which noise moves a price or a volume."""

ABSENT = 0.05
"""Share of later bars that are missing under noise."""


def adjusted_panel(bars: BarPanel) -> BarPanel:
    """The adjusted bars as if they had been traded so.

    A split or dividend of the future moves all earlier adjusted prices by a common factor. Ratios of prices forget
    it, but not in their last bit, so bits can be compared only where nothing is left to adjust.
    """
    adjusted = bars.adjusted()
    return replace(
        bars,
        open=adjusted.open,
        high=adjusted.high,
        low=adjusted.low,
        close=adjusted.close,
        volume=adjusted.volume,
        adj_close=None,
        split_ratio=None,
        cash_dividend=None,
    )


def with_noise(bars: BarPanel, position: int) -> BarPanel:
    """The same bars up to a position of the date axis; after it other prices, other volumes, and some bars gone.

    Args:
        bars: without adjustments.
        position: the last that stays; it also seeds the noise.
    """
    random = np.random.default_rng(position)
    shape = (len(bars.symbols), len(bars.sessions) - position - 1)
    gone = np.where(random.random(shape) < ABSENT, np.nan, 1.0)
    price, volume = (gone * np.exp(NOISE * random.standard_normal(shape)) for _ in range(2))

    def moved(values: FloatArray, factor: FloatArray) -> FloatArray:
        column = values.copy()
        column[:, position + 1 :] *= factor
        return column

    return replace(
        bars,
        open=moved(bars.open, price),
        high=moved(bars.high, price),
        low=moved(bars.low, price),
        close=moved(bars.close, price),
        volume=moved(bars.volume, volume),
    )
