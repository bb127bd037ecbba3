"""Walk-forward backtests: forecasts from models that see only the past, traded with delay and costs."""

from trainers.stock.backtest.backtest import BacktestFolder, backtest
from trainers.stock.backtest.refits import Fold, WalkForwardPlan
from trainers.stock.backtest.result import Backtest, BookFigures, BookTrack, summary_json
from trainers.stock.backtest.source import ModelSource, artifact_source, recipe_source
from trainers.stock.backtest.strategies import Strategy, StrategySettings, TradingTerms

__all__ = [
    "Backtest",
    "BacktestFolder",
    "BookFigures",
    "BookTrack",
    "Fold",
    "ModelSource",
    "Strategy",
    "StrategySettings",
    "TradingTerms",
    "WalkForwardPlan",
    "artifact_source",
    "backtest",
    "recipe_source",
    "summary_json",
]
