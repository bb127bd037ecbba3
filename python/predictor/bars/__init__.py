"""Daily bars: checked panels of open, high, low, close and volume, their adjustment, their files. No torch."""

from predictor.bars.adjustment import AdjustedBars
from predictor.bars.jumps import PriceJump
from predictor.bars.panel import BarPanel

__all__ = ["AdjustedBars", "BarPanel", "PriceJump"]
