"""Forecasts and attributions as plain values over NumPy arrays."""

from predictor.forecast.attribution import Attribution, Contribution, Detail, Explanation, RowKind
from predictor.forecast.forecast import (
    LOG_RETURN,
    Forecast,
    ForecastRow,
    Outcome,
    TargetPoint,
    convert_to_simple_return,
    require_forecast,
)

__all__ = [
    "LOG_RETURN",
    "Attribution",
    "Contribution",
    "Detail",
    "Explanation",
    "Forecast",
    "ForecastRow",
    "Outcome",
    "RowKind",
    "TargetPoint",
    "convert_to_simple_return",
    "require_forecast",
]
