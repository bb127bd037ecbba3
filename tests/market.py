"""Real daily bars for tests, 2000 to 2013, as the demo reads them, and a stock more."""

from functools import cache

from predictor.bars import BarPanel
from trainers.demo.market import real_bars

ALL = ("AAPL", "FB", "GOOG", "IBM", "MSFT")
"""FB begins in 2012: a young listing."""


@cache
def bokeh_panel(*symbols: str) -> BarPanel:
    """The panel of these symbols, or of all five; raw prices with adj_close."""
    return real_bars(symbols or ALL)
