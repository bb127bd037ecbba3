"""A model's evenings: bars are recorded, forecasts are scored and made, and the evidence is looked at."""

from trainers.stock.daily.evenings import DailySettings, DailySummary, run_evenings
from trainers.stock.daily.recorded_models import BaselineFolder

__all__ = ["BaselineFolder", "DailySettings", "DailySummary", "run_evenings"]
