"""Whether retraining pays: walk forward with one training, and with trainings every year, quarter and month.

Every training uses `--splits rolling` on all earlier bars. Schedules forecast the same days of the same symbols; a
positive gain means that the loss of the retrained model is smaller than that of the model which is trained once. Data
are the bundled stocks, both indices of the package arch and, with `--panel FILE.npz`, the first stocks of a panel.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch

from benchmarks.report import Row, common_options, publish, shown
from benchmarks.scales import indices
from benchmarks.suspects import panel_of
from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.errors import shown_date
from predictor.features import default_features
from predictor.model import build_output_map
from trainers.demo.market import CALENDAR, real_bars
from trainers.stock.backtest.folds import Fold, WalkForwardPlan, split_sessions
from trainers.stock.backtest.refits import refit, refit_splits
from trainers.stock.data import History, TrainingWindows
from trainers.stock.evaluation.comparison import compare, pinball
from trainers.stock.evaluation.evaluation_set import LEVEL, EvaluationSet, forecasts_of
from trainers.stock.fitting import build_engine
from trainers.stock.recipe import StockRecipe, recipe_of
from trainers.stock.splits import RollingSplits, SplitPart

SCHEDULES: Final[Mapping[str, int | None]] = {"once": None, "yearly": 252, "quarterly": 63, "monthly": 21}
WARM_UP: Final = 400
"""Sessions before a fold that its features read, at most."""
YEARS: Final = 4
"""A model that is trained once can decide for five, because its calendar ends then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """Bars, and the number of their last sessions on which models decide."""

    name: str
    bars: BarPanel
    judged: int
    parts: RollingSplits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoldForecasts:
    """Forecasts of one fold."""

    windows: TrainingWindows
    """On the date axis of the market."""
    outcomes: FloatArray
    """[N, H]"""
    values: FloatArray
    """[N, H, Q]"""


def forecast_fold(market: Market, recipe: StockRecipe, fold: Fold) -> FoldForecasts:
    """Train on the bars before a fold, and forecast its days."""
    sessions = market.bars.sessions
    first, last = (int(np.searchsorted(sessions, day)) for day in (fold.first, fold.last))
    learnt = market.bars.between(fold.learn_first, fold.learn_last)
    made = refit(learnt, default_features(), recipe, refit_splits(learnt, recipe))
    begin, end = max(0, first - WARM_UP), min(last + recipe.target.reach, len(sessions) - 1)
    history = History(market.bars.between(int(sessions[begin]), int(sessions[end])), made.pipeline)
    part = SplitPart("fold", int(sessions[first + recipe.target.lag + 1]), int(sessions[end]))
    windows = history.windows(part)
    forecasts = forecasts_of(
        build_engine(made.network(), made.manifest), build_output_map(made.manifest), history, windows
    )
    return FoldForecasts(
        windows=TrainingWindows(symbols=windows.symbols, positions=windows.positions + begin),
        outcomes=history.outcomes(windows),
        values=forecasts.calibrated,
    )


def walk(market: Market, recipe: StockRecipe, every: int | None) -> tuple[EvaluationSet, FloatArray]:
    """Walk forward, and return the judged windows and their losses [N, H]."""
    sessions, reach = market.bars.sessions, recipe.target.reach
    span = (int(sessions[-market.judged - reach]), int(sessions[-1 - reach]))
    folds = split_sessions(sessions, WalkForwardPlan(start=span[0], end=span[1], refit=every))
    parts = [forecast_fold(market, recipe, fold) for fold in folds]
    test = EvaluationSet(
        outcomes=np.concatenate([part.outcomes for part in parts]),
        sessions=sessions,
        positions=np.concatenate([part.windows.positions for part in parts]),
        symbols=np.concatenate([part.windows.symbols for part in parts]),
        target=recipe.target,
        levels=recipe.quantiles,
    )
    return test, pinball(test, np.concatenate([part.values for part in parts]))


def rows(market: Market, kind: str, seeds: int, schedules: Sequence[str]) -> Iterator[Row]:
    """One row per schedule: its gain over the model that is trained once, whose losses are averaged over seeds."""
    recipe = replace(recipe_of(kind), calendar=CALENDAR, parts=market.parts)
    fixed: FloatArray | None = None
    for name in schedules:
        tried = seeds if SCHEDULES[name] is None else 1
        test, losses = _average(market, recipe, SCHEDULES[name], tried)
        first, last = map(shown_date, test.span)
        fixed = losses if fixed is None else fixed
        gain = compare(test, losses, fixed, "once").improvement
        interval = f"{100 * LEVEL:g} %: {100 * gain.lower:+.2f} to {100 * gain.upper:+.2f}"
        detail = f"{interval}; {test.days} days, {first} to {last}; {tried} seeds"
        yield shown(f"{market.name}, {kind}, trained {name}: gain in %", 100 * gain.value, detail=detail)


def _average(market: Market, recipe: StockRecipe, every: int | None, seeds: int) -> tuple[EvaluationSet, FloatArray]:
    """Losses of a schedule, averaged over seeds."""
    optimisation = recipe.optimisation
    found = [
        walk(market, replace(recipe, optimisation=replace(optimisation, seed=seed)), every) for seed in range(seeds)
    ]
    return found[0][0], np.mean([losses for _, losses in found], axis=0)


def main() -> int:
    parser = common_options(__doc__ or "")
    parser.add_argument("--panel", type=Path, metavar="FILE.npz", help="also walk forward on stocks of this panel")
    parser.add_argument("--symbols", type=int, default=40, help="stocks of the panel")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of the network that is trained once")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    years = 1 if arguments.quick else YEARS
    markets = [
        Market(name="stocks", bars=real_bars(), judged=252 * years, parts=RollingSplits()),
        Market(name="indices", bars=indices(), judged=252 * years, parts=RollingSplits()),
    ]
    if arguments.panel is not None:
        panel = panel_of(arguments.panel)
        few = panel.select(panel.symbols[: arguments.symbols])
        judged = 252 * (1 if arguments.quick else 2)
        markets.append(
            Market(name="panel", bars=few, judged=judged, parts=RollingSplits(selection=63, calibration=126))
        )
    found = (
        row
        for kind, seeds, schedules in (("har", 1, list(SCHEDULES)), ("lstm", arguments.seeds, list(SCHEDULES)[:3]))
        for market in markets
        for row in rows(market, kind, 1 if arguments.quick else seeds, schedules)
    )
    return publish(found, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
