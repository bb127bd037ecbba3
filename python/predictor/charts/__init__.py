"""Figures from plain arrays: forecasts, importance, losses, calibration, books.

Every function returns a plotly Figure and changes nothing. plotly is imported when a figure is made (extra `report`).
Colours are those of Okabe and Ito, which people with any kind of colour blindness can tell apart; where colour alone
would carry a meaning, the sign, a symbol or a line style carries it too.
"""

from predictor.charts.evaluation import BookCurve, book_curves, calibration, interval_rows, loss_curve, pit_histogram
from predictor.charts.explanations import attention_line, importance_bars, importance_heatmap, selection_bars
from predictor.charts.forecasts import SESSIONS_SHOWN, Candles, closes_lines, fan, quantile_lines
from predictor.charts.svg import fan_svg

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
