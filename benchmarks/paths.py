"""Joint price paths against GJR-GARCH simulations: energy scores, drawdowns, portfolios and value at risk.

Stocks of a panel (`--panel FILE.npz`), by default the bundled ones. The model is HAR, trained once; a GJR-GARCH with t
errors is fitted to each stock on the same training days. Both simulate the 20 days after each judged day.
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from scipy import stats

from benchmarks.report import Row, at_most, common_options, publish, shown
from benchmarks.suspects import panel_of
from predictor.arrays import BoolArray, FloatArray
from predictor.bars import BarPanel
from predictor.features import load_default_features
from predictor.forecaster import Forecaster
from predictor.instance import Instance
from predictor.price_paths import PricePaths, simulate_paths
from trainers.demo.market import CALENDAR, real_bars
from trainers.stock import RollingSplits, TrainingMaterial, train
from trainers.stock.recipe import recipe_of

HORIZONS: Final = (1, 5, 10, 20)
DAYS: Final = 20
PATHS: Final = 1000
EVERY: Final = 5
"""Sessions between two scored days."""
BLOCK: Final = 8
"""Scored days that are drawn together in the bootstrap: 40 sessions."""
HELD: Final = 8
"""Stocks of a portfolio."""
LEVEL: Final = 0.99
REJECTED: Final = 0.05
CORRECT: Final = 10_000
"""Correct models of which the tests' rejections are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GjrGarch:
    """A GJR-GARCH(1, 1, 1) with t errors of one stock's daily log returns in per cent."""

    mean: float
    constant: float
    arch: float
    leverage: float
    garch: float
    freedom: float

    @classmethod
    def fit(cls, returns: FloatArray) -> "GjrGarch":
        """Fit it to log returns [T]."""
        from arch import arch_model

        model: Any = arch_model(100 * returns, mean="Constant", vol="GARCH", p=1, o=1, q=1, dist="t", rescale=False)
        values = model.fit(disp="off", show_warning=False).params
        names = ("mu", "omega", "alpha[1]", "gamma[1]", "beta[1]", "nu")
        return cls(**dict(zip(cls.__annotations__, (float(values[name]) for name in names), strict=True)))

    def simulate(self, returns: FloatArray, random: np.random.Generator) -> FloatArray:
        """[PATHS, DAYS] cumulative log returns after the returns [T]."""
        errors = 100 * returns - self.mean
        variance = float(np.var(errors))
        for error in errors:
            variance = self._next(variance, error)
        spread = np.full(PATHS, variance)
        scale = np.sqrt((self.freedom - 2) / self.freedom)
        steps = np.empty((PATHS, DAYS))
        for day in range(DAYS):
            error = np.sqrt(spread) * scale * random.standard_t(self.freedom, PATHS)
            steps[:, day] = self.mean + error
            spread = self._next(spread, error)
        return np.cumsum(steps, axis=1) / 100

    def _next(self, variance: Any, error: Any) -> Any:
        down = self.leverage * (error < 0)
        return self.constant + (self.arch + down) * error**2 + self.garch * variance


def energy(paths: FloatArray, outcome: FloatArray) -> float:
    """The energy score of samples [N, K]."""
    to_outcome = np.linalg.norm(paths - outcome, axis=1).mean()
    return float(to_outcome - 0.5 * np.linalg.norm(paths - np.roll(paths, 1, axis=0), axis=1).mean())


def crps(samples: FloatArray, outcome: float) -> float:
    """The continuous ranked probability score of samples [N]."""
    ordered = np.sort(samples)
    weights = 2 * np.arange(1, len(ordered) + 1) - len(ordered) - 1
    return float(np.abs(ordered - outcome).mean() - (weights * ordered).sum() / len(ordered) ** 2)


def drawdowns(returns: FloatArray) -> FloatArray:
    """[N] largest loss from a high, of log returns [N, DAYS]."""
    levels = np.pad(returns, ((0, 0), (1, 0)))
    return -np.expm1((levels - np.maximum.accumulate(levels, axis=1)).min(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Losses [D, S, 2] of our paths and of the simulation, by day and stock; and outcomes of portfolios and of days."""

    energy: FloatArray
    drawdown: FloatArray
    inside: BoolArray
    """[D, P] whether the return of each portfolio was inside its 80 % band."""
    exceeded: BoolArray
    """[T, S] whether each day's loss exceeded the value at risk."""


def score(bars: BarPanel, model: Forecaster, judged: Sequence[int], trained: int) -> Scores:
    """Simulate and score the days of these positions; a GJR-GARCH learns from the first `trained` returns."""
    past = np.diff(np.log(bars.adjusted().close), axis=1)
    rivals = [GjrGarch.fit(row[:trained]) for row in past]
    random = np.random.default_rng(1)
    losses: list[tuple[FloatArray, FloatArray]] = []
    inside: list[list[bool]] = []
    exceeded: list[BoolArray] = []
    places = np.array(HORIZONS) - 1
    for place in judged:
        until = bars.until(int(bars.sessions[place]))
        forecast = model.predict(Instance(input=until, accept_suspect_bars=True))
        ours = simulate_paths(forecast, until, paths=PATHS, seed=place)
        lowest = np.quantile(ours.returns[:, :, 0], 1 - LEVEL, axis=0)
        exceeded.append(past[:, place] < lowest)
        if (place - judged[0]) % EVERY:
            continue
        ahead = np.cumsum(past[:, place : place + DAYS], axis=1)
        pair = np.empty((2, len(ahead), 2))
        for s, outcome in enumerate(ahead):
            both = ours.returns[:, s], rivals[s].simulate(past[s, :place], random)
            fallen = float(drawdowns(outcome[None])[0])
            pair[0, s] = [energy(paths[:, places], outcome[places]) for paths in both]
            pair[1, s] = [crps(drawdowns(paths), fallen) for paths in both]
        losses.append((pair[0], pair[1]))
        inside.append([is_inside(ours, rows, ahead) for rows in portfolios(len(ahead))])
    return Scores(
        energy=np.stack([one for one, _ in losses]),
        drawdown=np.stack([one for _, one in losses]),
        inside=np.array(inside),
        exceeded=np.stack(exceeded),
    )


def portfolios(stocks: int) -> list[range]:
    """Neighbouring stocks that are held together."""
    return [range(first, min(first + HELD, stocks)) for first in range(0, stocks, HELD)]


def is_inside(paths: PricePaths, rows: range, ahead: FloatArray) -> bool:
    """Whether the return of equal positions over DAYS was in its 80 % band."""
    profits = paths.profits({paths.symbols[row]: 1.0 for row in rows}, DAYS)
    low, high = np.quantile(profits, (0.1, 0.9))
    return bool(low <= np.expm1(ahead[list(rows), -1]).sum() <= high)


def difference(losses: FloatArray) -> tuple[float, float, float]:
    """Our mean loss relative to the rival's, and its 95 % interval over blocks of days; losses are [D, S, 2]."""
    daily = losses.mean(axis=1)
    random = np.random.default_rng(0)
    starts = random.integers(0, len(daily), (2000, -(-len(daily) // BLOCK)))
    drawn = (starts[..., None] + np.arange(BLOCK)).reshape(2000, -1) % len(daily)
    sums = daily[drawn].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1] - 1, (0.025, 0.975))
    return float(daily[:, 0].sum() / daily[:, 1].sum() - 1), float(low), float(high)


def count_rejected(exceeded: BoolArray) -> int:
    """Stocks whose exceedances [T] fail Kupiec's test of their number or Christoffersen's of their independence."""
    return sum(min(kupiec(row), christoffersen(row)) < REJECTED for row in exceeded.T)


def rejected_if_correct(days: int) -> float:
    """The share of models that `count_rejected` counts though each day exceeds the level with its probability."""
    return count_rejected(np.random.default_rng(1).random((days, CORRECT)) < 1 - LEVEL) / CORRECT


def kupiec(exceeded: BoolArray) -> float:
    """The p-value of the number of exceedances."""
    count, total = int(exceeded.sum()), len(exceeded)
    ratio = 2 * (log_likelihood(count, total, count / total) - log_likelihood(count, total, 1 - LEVEL))
    return float(stats.chi2.sf(ratio, 1))


def christoffersen(exceeded: BoolArray) -> float:
    """The p-value of independence between successive days."""
    before, after = exceeded[:-1], exceeded[1:]
    counts = [(int((after & (before == state)).sum()), int((before == state).sum())) for state in (False, True)]
    count, total = (sum(column) for column in zip(*counts, strict=True))
    apart = sum(log_likelihood(hits, days, hits / days if days else 0.0) for hits, days in counts)
    return float(stats.chi2.sf(2 * (apart - log_likelihood(count, total, count / total)), 1))


def log_likelihood(hits: int, days: int, share: float) -> float:
    """Of `hits` in `days` with this probability."""
    return sum(count * np.log(p) for count, p in ((hits, share), (days - hits, 1 - share)) if count)


def rows(bars: BarPanel, *, test: int, calibration: int, judged: bool) -> Iterator[Row]:
    """Train, simulate and score."""
    length = len(bars.sessions)
    learnt = bars.until(int(bars.sessions[length - test - DAYS - 1]))
    parts = RollingSplits(selection=calibration, calibration=calibration)
    recipe = replace(recipe_of("har"), calendar=CALENDAR, parts=parts)
    with tempfile.TemporaryDirectory() as folder:
        material = TrainingMaterial(bars=learnt, features=load_default_features())
        train(material, recipe, Path(folder) / "har" / "1", consume=iter)
        model = Forecaster.load(Path(folder) / "har" / "1", "cpu")
    places = range(length - test - DAYS, length - DAYS - 1)
    scores = score(bars, model, places, trained=places[0] - 2 * calibration)
    what = f"{len(bars.symbols)} stocks, {len(scores.energy)} days of {test}"
    for name, losses, reach in (("energy score", scores.energy, -0.01), ("drawdown CRPS", scores.drawdown, -0.02)):
        found, low, high = difference(losses)
        detail = f"95 %: {100 * low:+.1f} to {100 * high:+.1f} %; {what}"
        yield at_most(f"{name}, ours / GJR-GARCH - 1", found, reach, detail=detail, judged=judged)
    held = min(HELD, len(bars.symbols))
    yield shown(f"80 % band of {held} stocks over {DAYS} days: inside", float(scores.inside.mean()), detail=what)
    rejected, if_correct = count_rejected(scores.exceeded), rejected_if_correct(len(scores.exceeded))
    share = f"{100 * scores.exceeded.mean():.2f} % of the days beyond it"
    name = f"99 % value at risk of a day: stocks rejected of {len(bars.symbols)}"
    yield at_most(name, rejected, len(bars.symbols) / 10, detail=share, judged=judged)
    low, high = stats.binom.interval(0.95, len(bars.symbols), if_correct)
    detail = f"95 %: {low:.0f} to {high:.0f} if the stocks are independent"
    yield shown("the same of a correct model, mean", len(bars.symbols) * if_correct, detail=detail)
    yield speed(model, bars)


def speed(model: Forecaster, bars: BarPanel) -> Row:
    """Time of 1,000 paths over 20 days of up to 8 stocks."""
    few = bars.rows(slice(HELD))
    forecast = model.predict(few.until(int(bars.sessions[-DAYS])))
    past = few.until(int(bars.sessions[-DAYS]))
    took: list[float] = []
    for _ in range(21):
        begun = time.perf_counter()
        simulate_paths(forecast, past, paths=PATHS, seed=1)
        took.append(1e3 * (time.perf_counter() - begun))
    name = f"{PATHS} paths, {DAYS} days, {len(few.symbols)} stocks, ms"
    return at_most(name, median(took), 20, detail=f"median of 21; {len(past.sessions)} past sessions")


def main() -> int:
    """Run the benchmark; 1 if a promised number is missed."""
    parser = common_options(__doc__ or "")
    parser.add_argument("--panel", type=Path, metavar="FILE.npz", help="take the stocks of this panel")
    parser.add_argument("--symbols", type=int, default=40, help="stocks of the panel")
    arguments = parser.parse_args()
    if arguments.panel is None:
        bars, test, calibration = real_bars(("AAPL", "IBM", "MSFT", "GOOG")).between(20040820, 20130301), 400, 252
    else:
        whole = panel_of(arguments.panel)
        complete = np.flatnonzero(whole.present.all(axis=1))[: arguments.symbols]
        bars, test, calibration = whole.rows(complete.tolist()), 300, 120
    found = rows(bars, test=30 if arguments.quick else test, calibration=calibration, judged=not arguments.quick)
    return publish(found, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
