"""Bars to fit baselines on: two years of two real stocks, and half a year each to calibrate and test them."""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Final

import numpy as np
import pytest
from market import bokeh_panel
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.features import load_default_features
from predictor.networks import Target, TargetKind
from trainers.stock.data import History
from trainers.stock.evaluation.baselines import (
    SCALED,
    BaselineModel,
    BaselinePlan,
    FitScope,
    FittedBaseline,
    InformationSet,
    MeasuredWindows,
    all_baselines,
)
from trainers.stock.evaluation.baselines.quantiles import ZERO_RETURN
from trainers.stock.model_fit import fit_pipeline
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import DataSplits, SplitPart

FloatArray = NDArray[np.float64]

LEVELS: Final = (0.1, 0.5, 0.9)
HORIZONS: Final = (1, 5)
COLUMNS: Final = ("open", "high", "low", "close", "volume", "adj_close")
TRAIN: Final = SplitPart("train", 20070103, 20081231)
TEST: Final = SplitPart("test", 20090701, 20091231)
SPLITS: Final = DataSplits(
    train=TRAIN,
    selection=SplitPart("selection", 20090102, 20090331),
    calibration=SplitPart("calibration", 20090401, 20090630),
    test=TEST,
)


FEW: Final = BaselinePlan(baselines=(ZERO_RETURN, SCALED), notes=())
PLANS: Final = (
    ("training", "quick_baselines"),
    ("ensembles.ensemble", "quick_baselines"),
    ("evaluation.evaluation", "all_baselines"),
)
"""Functions that select the baselines, by module."""


@contextmanager
def few_baselines() -> Generator[None]:
    """Score with two baselines, because all of them take more than half of the time of a small training."""
    with pytest.MonkeyPatch.context() as patched:
        for module, name in PLANS:
            patched.setattr(import_module(f"trainers.stock.{module}"), name, _select_few)
        yield


def _select_few(_kind: TargetKind, _symbols: int = 0) -> BaselinePlan:
    return FEW


def history_of(panel: BarPanel, target: Target) -> History:
    recipe = StockRecipe(calendar="XNYS", target=target, scale="window")
    return History(panel, fit_pipeline(panel, load_default_features(), recipe, SPLITS))


@cache
def bars() -> BarPanel:
    return bokeh_panel("AAPL", "GOOG").between(20070103, 20091231)


@cache
def history(kind: TargetKind = TargetKind.LOG_RETURN, lag: int = 0) -> History:
    return history_of(bars(), Target(kind=kind, horizons=HORIZONS, lag=lag))


def log_closes(panel: BarPanel, symbol: int = 0) -> FloatArray:
    assert panel.adj_close is not None
    return np.log(panel.adj_close[symbol])


def riskmetrics(symbol: int, position: int) -> float:
    """The volatility of the last 60 returns, by hand."""
    weights = 0.94 ** np.arange(59, -1, -1)
    last = np.diff(log_closes(bars(), symbol), prepend=np.nan)[position - 59 : position + 1]
    return float(np.sqrt((weights * last**2).sum() / weights.sum()))


def asked_of(found: History, part: SplitPart = TEST) -> MeasuredWindows:
    return MeasuredWindows.of(found, found.windows(part))


def case_of(found: History, levels: tuple[float, ...] = LEVELS) -> InformationSet:
    return InformationSet.of(found, SPLITS, SPLITS.calibration.last, levels)


def baseline_named(found: History, name: str) -> BaselineModel:
    (baseline,) = (one for one in all_baselines(found.pipeline.target.kind).baselines if one.name == name)
    return baseline


@cache
def fit_baseline(
    found: History, name: str, fit: FitScope = FitScope.UNCALIBRATED, levels: tuple[float, ...] = LEVELS
) -> FittedBaseline:
    """A baseline by name; `UNCALIBRATED` is fitted on the training part and not calibrated."""
    return case_of(found, levels).fitted(baseline_named(found, name), fit)
