"""Walk-forward backtests: forecasts from models that see only the past, traded with delay and costs."""

from trainers.stock.backtest.folds import Fold, WalkForwardPlan
from trainers.stock.backtest.result import Backtest, Figures, Track, backtest_json, summary_json
from trainers.stock.backtest.run import Folder, backtest
from trainers.stock.backtest.source import ModelSource, artifact_source, recipe_source
from trainers.stock.backtest.strategies import Strategy, Tactic, Terms

__all__ = [
    "Backtest",
    "Figures",
    "Fold",
    "Folder",
    "ModelSource",
    "Strategy",
    "Tactic",
    "Terms",
    "Track",
    "WalkForwardPlan",
    "artifact_source",
    "backtest",
    "backtest_json",
    "recipe_source",
    "summary_json",
]
