"""Real daily bars, 2000 to 2013, as the demo reads them, and one more stock."""

from dataclasses import replace
from functools import cache

import numpy as np

from predictor.bars import BarPanel
from trainers.demo.market import real_bars

PRICES = ("open", "high", "low", "close", "adj_close")
ALL = ("AAPL", "FB", "GOOG", "IBM", "MSFT")
"""FB begins in 2012: a young listing."""


@cache
def bokeh_panel(*symbols: str) -> BarPanel:
    """The panel of these symbols, or of all five, with raw prices and adj_close."""
    return real_bars(symbols or ALL)


def learnable_bars(panel: BarPanel) -> BarPanel:
    """Bars in which each move repeats that of two sessions before, so that there is something to learn."""
    moves = np.diff(np.log(panel.close), axis=1, prepend=np.log(panel.close[:, :1]))
    again = np.zeros_like(moves)
    for t in range(2, moves.shape[1]):
        again[:, t] = 0.6 * (moves[:, t - 2] + again[:, t - 2])
    factor = np.exp(np.cumsum(again, axis=1))
    columns = {name: getattr(panel, name) * factor for name in ("open", "high", "low", "close", "adj_close")}
    return replace(panel, **columns)


def scaled(
    bars: BarPanel, days: slice, factor: float, fields: tuple[str, ...] = PRICES, *, symbol: str = "IBM"
) -> BarPanel:
    """The bars with some fields of some days of a symbol multiplied."""
    columns = {name: getattr(bars, name).copy() for name in fields if name in bars.columns}
    for values in columns.values():
        values[bars.symbols.index(symbol), days] *= factor
    return replace(bars, **columns)


def without_bars(panel: BarPanel, symbol: str, days: slice) -> BarPanel:
    """The panel without a symbol's bars of some days."""
    return scaled(panel, days, np.nan, panel.columns, symbol=symbol)


def without_last_bar(panel: BarPanel, symbol: str) -> BarPanel:
    """The panel in which a symbol has no bar on the last day."""
    return without_bars(panel, symbol, slice(-1, None))
