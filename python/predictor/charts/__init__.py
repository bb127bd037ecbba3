"""Figures from plain arrays: forecasts, importance, losses, calibration, books.

Every function returns a new plotly Figure. plotly is imported on demand (extra `report`). Colours are those of Okabe
and Ito, which are safe for all kinds of colour blindness; signs, symbols or line styles repeat what colours encode.
"""

from predictor.charts.evaluation import (
    BookCurve,
    BoundedSeries,
    book_curves,
    bounded_lines,
    calibration,
    interval_rows,
    loss_curve,
    pit_histogram,
)
from predictor.charts.explanations import attention_line, importance_bars, importance_heatmap, selection_bars
from predictor.charts.forecasts import SESSIONS_SHOWN, Candles, FanChart, PastFan, closes_lines, fan, quantile_lines
from predictor.charts.paths import distribution, path_lines
from predictor.charts.pictures import BarsPanel, Panel, PathsPanel, QuantilePanel, draw
from predictor.charts.svg import fan_svg
from predictor.charts.theme import largest

__all__ = [
    "SESSIONS_SHOWN",
    "BarsPanel",
    "BookCurve",
    "BoundedSeries",
    "Candles",
    "FanChart",
    "Panel",
    "PastFan",
    "PathsPanel",
    "QuantilePanel",
    "attention_line",
    "book_curves",
    "bounded_lines",
    "calibration",
    "closes_lines",
    "distribution",
    "draw",
    "fan",
    "fan_svg",
    "importance_bars",
    "importance_heatmap",
    "interval_rows",
    "largest",
    "loss_curve",
    "path_lines",
    "pit_histogram",
    "quantile_lines",
    "selection_bars",
]
