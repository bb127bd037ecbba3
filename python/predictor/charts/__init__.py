"""Figures from plain arrays: forecasts, importance, losses, calibration, books.

Every function returns a plotly Figure and changes nothing. plotly is imported when a figure is made (extra `report`).
Colours are those of Okabe and Ito, which people with any kind of colour blindness can tell apart; where colour alone
would carry a meaning, the sign, a symbol or a line style carries it too.
"""

from predictor.charts.books import BookCurve, book_curves
from predictor.charts.closes import closes_lines
from predictor.charts.coverage import calibration, pit_histogram
from predictor.charts.forecast import SESSIONS_SHOWN, Candles, fan, quantile_lines
from predictor.charts.importance import importance_bars, importance_heatmap
from predictor.charts.internals import attention_line, selection_bars
from predictor.charts.intervals import interval_rows
from predictor.charts.svg import fan_svg
from predictor.charts.training import loss_curve

__all__ = [
    "SESSIONS_SHOWN",
    "BookCurve",
    "Candles",
    "attention_line",
    "book_curves",
    "calibration",
    "closes_lines",
    "fan",
    "fan_svg",
    "importance_bars",
    "importance_heatmap",
    "interval_rows",
    "loss_curve",
    "pit_histogram",
    "quantile_lines",
    "selection_bars",
]
