"""Whether retraining pays: walk forward with one training, and with trainings every year, quarter and month.

Every training uses `--splits rolling` on all earlier bars. Schedules forecast the same days of the same symbols; a
positive gain means that the loss of the retrained model is smaller than that of the model which is trained once. Data
are the bundled stocks, both indices of the package arch and, with `--panel FILE.npz`, the first stocks of a panel.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import torch

from benchmarks.forecasts.indices import index_panel
from benchmarks.report import Row, common_options, publish, shown
from benchmarks.suspects import panel_of
from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.errors import format_date
from predictor.features import load_default_features
from trainers.demo.market import CALENDAR, real_bars
from trainers.stock.backtest.refits import RefitMaterial, WalkForwardPlan, split_sessions
from trainers.stock.evaluation.comparison import compare, pinball
from trainers.stock.evaluation.evaluation_set import CONFIDENCE, EvaluationSet
from trainers.stock.lifecycle.version_comparison import walk_forward
from trainers.stock.recipe import StockRecipe, recipe_of
from trainers.stock.splits import RollingSplits

SCHEDULES: Final[Mapping[str, int | None]] = {"once": None, "yearly": 252, "quarterly": 63, "monthly": 21}
LENGTHS: Final = (252, 504, 756, 1260)
"""Sessions of calibration."""
YEAR: Final = RollingSplits(selection=252, calibration=252)
YEARS: Final = 4
"""A model that is trained once can decide for five, because its calendar ends then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """Bars, and the number of their last sessions on which models decide."""

    name: str
    bars: BarPanel
    judged: int
    parts: RollingSplits


def walk(market: Market, recipe: StockRecipe, every: int | None) -> tuple[EvaluationSet, FloatArray]:
    """Walk forward, and return the judged windows and their losses [N, H]."""
    sessions, reach = market.bars.sessions, recipe.target.reach
    span = (int(sessions[-market.judged - reach]), int(sessions[-1 - reach]))
    folds = split_sessions(sessions, WalkForwardPlan(start=span[0], end=span[1], refit=every))
    judged = walk_forward(RefitMaterial(bars=market.bars, features=load_default_features(), recipe=recipe), folds)
    return judged.test, pinball(judged.test, judged.values)


def rows(market: Market, kind: str, seeds: int, schedules: Sequence[str]) -> Iterator[Row]:
    """One row per schedule: its gain over the model that is trained once, whose losses are averaged over seeds."""
    recipe = replace(recipe_of(kind), calendar=CALENDAR, parts=market.parts)
    fixed: FloatArray | None = None
    for name in schedules:
        tried = seeds if SCHEDULES[name] is None else 1
        test, losses = _average(market, recipe, SCHEDULES[name], tried)
        first, last = map(format_date, test.span)
        fixed = losses if fixed is None else fixed
        gain = compare(test, losses, fixed, "once").improvement
        interval = f"{100 * CONFIDENCE:g} %: {100 * gain.lower:+.2f} to {100 * gain.upper:+.2f}"
        detail = f"{interval}; {test.days} days, {first} to {last}; {tried} seeds"
        yield shown(f"{market.name}, {kind}, trained {name}: gain in %", 100 * gain.value, detail=detail)


def length_rows(market: Market) -> Iterator[Row]:
    """One row per length of the calibration: its gain over that of one year, trained once and quarterly."""
    first: FloatArray | None = None
    for length in LENGTHS:
        recipe = replace(recipe_of("har"), calendar=CALENDAR, parts=replace(market.parts, calibration=length))
        for name in ("once", "quarterly"):
            test, losses = walk(market, recipe, SCHEDULES[name])
            first = losses if first is None else first
            gain = compare(test, losses, first, "one year").improvement
            detail = f"{100 * CONFIDENCE:g} %: {100 * gain.lower:+.2f} to {100 * gain.upper:+.2f}"
            what = f"{market.name}, har, {length} sessions of calibration, trained {name}: gain in %"
            yield shown(what, 100 * gain.value, detail=detail)


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
        Market(name="stocks", bars=real_bars(), judged=252 * years, parts=YEAR),
        Market(name="indices", bars=index_panel(), judged=252 * years, parts=YEAR),
    ]
    if arguments.panel is not None:
        panel = panel_of(arguments.panel)
        few = panel.select(panel.symbols[: arguments.symbols])
        judged = 252 * (1 if arguments.quick else 2)
        markets.append(
            Market(name="panel", bars=few, judged=judged, parts=RollingSplits(selection=63, calibration=126))
        )
    lengths = (row for market in markets[:2] for row in length_rows(market))
    schedules = (
        row
        for kind, seeds, names in (("har", 1, list(SCHEDULES)), ("lstm", arguments.seeds, list(SCHEDULES)[:3]))
        for market in markets
        for row in rows(market, kind, 1 if arguments.quick else seeds, names)
    )
    return publish(chain(lengths, schedules), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
