"""Figures from plain arrays: forecasts, importance, losses, calibration, books.

Every function returns a new plotly Figure. plotly is imported on demand (extra `report`). Colours are those of Okabe
and Ito, which are safe for all kinds of colour blindness; signs, symbols or line styles repeat what colours encode.
"""

from predictor.charts.evaluation import (
    BookCurve,
    BoundedSeries,
    draw_book_curves,
    draw_bounded_lines,
    draw_calibration,
    draw_interval_rows,
    draw_loss_curve,
    draw_pit_histogram,
)
from predictor.charts.explanations import (
    draw_attention_line,
    draw_importance_bars,
    draw_importance_heatmap,
    draw_selection_bars,
)
from predictor.charts.forecasts import (
    SESSIONS_SHOWN,
    Candles,
    FanChart,
    PastFan,
    draw_close_lines,
    draw_fan,
    draw_quantile_lines,
)
from predictor.charts.paths import draw_distribution, draw_path_lines
from predictor.charts.pictures import BarsPanel, Panel, PathsPanel, QuantilePanel, draw_picture
from predictor.charts.svg import draw_fan_svg
from predictor.charts.theme import select_largest

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
    "draw_attention_line",
    "draw_book_curves",
    "draw_bounded_lines",
    "draw_calibration",
    "draw_close_lines",
    "draw_distribution",
    "draw_fan",
    "draw_fan_svg",
    "draw_importance_bars",
    "draw_importance_heatmap",
    "draw_interval_rows",
    "draw_loss_curve",
    "draw_path_lines",
    "draw_picture",
    "draw_pit_histogram",
    "draw_quantile_lines",
    "draw_selection_bars",
    "select_largest",
]
