"""Daily bars: checked panels of open, high, low, close and volume, their adjustment, files and databases. No torch."""

from predictor.bars.adjustment import AdjustedBars, Jumps, PriceJump
from predictor.bars.panel import BarPanel
from predictor.bars.source import read_bars

__all__ = ["AdjustedBars", "BarPanel", "Jumps", "PriceJump", "read_bars"]
