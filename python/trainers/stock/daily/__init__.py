"""`quantra daily`: record bars, score and make forecasts, and test the champion every evening."""

from trainers.stock.daily.evenings import DailySettings, DailySummary, run_due_evenings
from trainers.stock.daily.recorded_models import BaselineFolder

__all__ = ["BaselineFolder", "DailySettings", "DailySummary", "run_due_evenings"]
