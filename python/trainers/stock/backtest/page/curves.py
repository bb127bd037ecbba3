"""Books over time, as figures."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor import charts
from predictor.charts import BookCurve
from predictor.report import Drawing
from trainers.stock.backtest.result import Backtest

FloatArray = NDArray[np.float64]

SMOOTHED: Final = 21
"""Sessions that the turnover is averaged over, about a month."""


def equity_chart(found: Backtest, drawing: Drawing) -> str:
    """What 1 has become: every book after costs, the strategy before them too."""
    strategy = found.strategy
    net = [BookCurve(name=track.name, values=track.net_equity, book=k) for k, track in enumerate(found.tracks)]
    before = BookCurve(name=f"{strategy.name}, before costs", values=strategy.gross_equity, book=0, is_gross=True)
    return drawing.html(charts.book_curves(strategy.sessions, [net[0], before, *net[1:]], axis="equity"))


def drawdown_chart(found: Backtest, drawing: Drawing) -> str:
    """How far each book lies below its highest equity, after costs."""
    curves = [BookCurve(name=t.name, values=fallen(t.net_equity), book=k) for k, t in enumerate(found.tracks)]
    return drawing.html(charts.book_curves(found.strategy.sessions, curves, axis="below the peak", percent=True))


def turnover_chart(found: Backtest, drawing: Drawing) -> str:
    """What each book bought and sold a session, as a share of its equity."""
    curves = [BookCurve(name=t.name, values=smoothed(t.book.traded), book=k) for k, t in enumerate(found.tracks)]
    return drawing.html(charts.book_curves(found.strategy.sessions, curves, axis="traded a session", percent=True))


def fallen(equity: FloatArray) -> FloatArray:
    """[T] share of the peak so far, the start's 1 included, that is lost; 0 or below."""
    return equity / np.maximum(np.maximum.accumulate(equity), 1.0) - 1


def smoothed(daily: FloatArray) -> FloatArray:
    """[T] mean of the last `SMOOTHED` sessions, or of as many as there have been."""
    total = np.concatenate([[0.0], np.cumsum(daily)])
    ends = np.arange(1, len(daily) + 1)
    starts = np.maximum(ends - SMOOTHED, 0)
    return (total[ends] - total[starts]) / (ends - starts)
