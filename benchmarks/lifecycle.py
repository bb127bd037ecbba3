"""The life of a model after training: errors and delays of the evidence, and the cost of the ledger and of evenings.

The streams are returns of S symbols that share a market factor, with bands that cover 80 %. From a change on, their
volatility is so much higher that the bands cover 65 %.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import NormalDist
from typing import Final

import numpy as np

from benchmarks.report import Row, at_most, parse_arguments, publish, shown
from predictor.arrays import FloatArray, PositionArray
from predictor.bars import BarPanel
from predictor.due_forecasts import score_due_forecasts
from predictor.evidence import (
    ALPHA,
    CoverageSide,
    bet_on_shares,
    bound_level_shares,
    compute_least_sequence_days,
    compute_sequence_radius,
)
from predictor.features import load_default_features
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.ledger import ForecastRecord, ForecastRole, Ledger
from predictor.sessions import SessionCalendar
from trainers.stock import RollingSplits, TrainingMaterial, train
from trainers.stock.daily import DailySettings, DailySummary, run_due_evenings
from trainers.stock.recipe import recipe_of

DAYS: Final = 1000
CHANGE: Final = 300
COMMON: Final = 0.3
"""Correlation of two symbols."""
BAND: Final = NormalDist().inv_cdf(0.9)
LOUDER: Final = BAND / NormalDist().inv_cdf(0.825)
"""Factor of the volatility that turns a coverage of 80 % into 65 %."""
FALSE_REACH, PROMOTION_REACH, DELAY_REACH, WRITE_REACH = 0.05, 0.07, 0.15, 15.0
STUDY: Final = {(1, 1): (95, 98), (20, 1): (717, None), (1, 50): (19, 22), (20, 50): (224, 282)}
"""Median days from the change to amber and to red, by horizon and symbols, in the study that the method comes from."""
DAILY_REACH: Final = 180.0
LEVELS: Final = np.array([0.1, 0.5, 0.9])
STUDY_PROMOTIONS: Final = {(1, 50): 0.05, (5, 50): 0.07, (20, 50): 0.06, (1, 1): 0.06}
NARROW: Final = 0.25
"""The champion's bands are exp(-0.25) of the right width: 22 % too narrow."""


def returns(random: np.random.Generator, paths: int, days: int, symbols: int) -> FloatArray:
    """[P, D, S] standard normal daily returns with a common factor."""
    common = random.standard_normal((paths, days, 1))
    own = random.standard_normal((paths, days, symbols))
    return np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * own


def sums_ahead(moves: FloatArray, horizon: int) -> FloatArray:
    """[P, D, S] returns over the next `horizon` days of each day."""
    total = np.cumsum(np.pad(moves, ((0, 0), (1, 0), (0, 0))), axis=1)
    return total[:, horizon:] - total[:, :-horizon]


def coverage_stream(
    random: np.random.Generator, paths: int, horizon: int, symbols: int, *, changes: bool
) -> FloatArray:
    """[P, DAYS] share of the symbols inside their band."""
    parts: list[FloatArray] = []
    for start in range(0, paths, 50):
        moves = returns(random, min(50, paths - start), DAYS + horizon, symbols)
        if changes:
            moves[:, CHANGE:] *= LOUDER
        ahead = sums_ahead(moves, horizon)[:, :DAYS]
        parts.append((np.abs(ahead) < BAND * np.sqrt(horizon)).mean(axis=2))
    return np.concatenate(parts)


def first_alarms(capital: FloatArray, horizon: int) -> PositionArray:
    """[P] the day on which each path's alarm is seen; far beyond all days for none."""
    crossed = capital >= 1 / ALPHA
    return np.where(crossed.any(axis=1), crossed.argmax(axis=1) + horizon, 10 * DAYS)


def coverage_rows(*, quick: bool) -> Iterator[Row]:
    random = np.random.default_rng(3)
    for horizon in (1, 5, 20):
        for symbols in (1, 50):
            paths = 40 if quick else 2000 if symbols == 1 else 400
            what = f"h {horizon}, {symbols} symbol{'s' if symbols > 1 else ''}"
            calm, loud = (coverage_stream(random, paths, horizon, symbols, changes=late) for late in (False, True))
            wealth = bet_on_shares(calm, 0.8, CoverageSide.TOO_FEW, symbols=symbols, horizon=horizon)
            red = float((first_alarms(wealth.guarded, horizon) < DAYS + horizon).mean())
            amber = float((first_alarms(wealth.plain, horizon) < DAYS + horizon).mean())
            yield at_most(
                f"false red in {DAYS} days, {what}",
                red,
                FALSE_REACH,
                detail=f"{paths} paths; false amber {amber:.3f}",
                judged=not quick,
            )
            wealth = bet_on_shares(loud, 0.8, CoverageSide.TOO_FEW, symbols=symbols, horizon=horizon)
            for k, (lamp, capital) in enumerate((("amber", wealth.plain), ("red", wealth.guarded))):
                yield delay_row(f"days to {lamp}, {what}", first_alarms(capital, horizon), (horizon, symbols), k, quick)


def delay_row(name: str, alarms: PositionArray, stream: tuple[int, int], lamp: int, quick: bool) -> Row:  # noqa: FBT001
    """The median delay of the paths without an earlier alarm, against the study's."""
    delays = alarms[alarms >= CHANGE] - CHANGE
    median, ninth = float(np.median(delays)), float(np.quantile(delays, 0.9, method="higher"))
    missed = float((delays > DAYS).mean())  # a median of -1: more than half
    detail = f"90 %: {'-' if ninth > DAYS else f'{ninth:.0f}'}; missed {missed:.2f}"
    expected = STUDY[stream][lamp] if stream in STUDY else None
    if expected is None:
        return shown(name, -1.0 if median > DAYS else median, detail=detail)
    row = at_most(
        f"{name}: |median / {expected} - 1|", abs(median / expected - 1), DELAY_REACH, detail="", judged=not quick
    )
    return Row(name=row.name, value=row.value, reach=row.reach, ok=row.ok, detail=f"median {median:.0f}; {detail}")


def loss_differences(
    random: np.random.Generator, paths: int, days: int, horizon: int, symbols: int, narrow: float
) -> FloatArray:
    """[P, D] champion's loss minus challenger's, of forecasts whose errors of scale last for days."""
    found = np.empty((paths, days))
    for path in range(paths):
        moves = returns(random, 1, days + horizon, symbols)
        outcomes = sums_ahead(moves, horizon)[0, :days] / np.sqrt(horizon)
        losses: list[FloatArray] = []
        for bias in (narrow, 0.0):
            error = np.empty((days, symbols))
            error[0] = 0.15 * random.standard_normal(symbols)
            shocks = 0.15 * np.sqrt(1 - 0.9**2) * random.standard_normal((days, symbols))
            for day in range(1, days):
                error[day] = 0.9 * error[day - 1] + shocks[day]
            quantiles = np.exp(error - bias)[..., None] * np.array([-BAND, 0.0, BAND])
            left = outcomes[..., None] - quantiles
            losses.append(np.maximum(LEVELS * left, (LEVELS - 1) * left).sum(axis=-1))
        found[path] = (losses[0] - losses[1]).mean(axis=1)
    return found


def promotions(differences: FloatArray, horizon: int) -> PositionArray:
    """[P] the date on which the challenger is promoted, looked at every 5 dates; -1 for never."""
    dates = np.full(len(differences), -1)
    for days in range(compute_least_sequence_days(horizon), differences.shape[1], 5):
        seen = differences[:, :days]
        is_better = seen.mean(axis=1) > compute_sequence_radius(seen, horizon)
        dates[(dates < 0) & is_better] = days
    return dates


def promotion_rows(*, quick: bool) -> Iterator[Row]:
    random, paths = np.random.default_rng(11), 20 if quick else 1000
    for (horizon, symbols), study in STUDY_PROMOTIONS.items():
        what = f"h {horizon}, {symbols} symbol{'s' if symbols > 1 else ''}"
        equal = promotions(loss_differences(random, paths, 750, horizon, symbols, 0.0), horizon)
        better = promotions(loss_differences(random, paths, 750, horizon, symbols, NARROW), horizon)
        yield at_most(
            f"false promotion of an equal challenger, {what}",
            float((equal > 0).mean()),
            PROMOTION_REACH,
            detail=f"{paths} paths, a look every 5 dates to 750; study {study}",
            judged=not quick,
        )
        median = float(np.median(np.where(better > 0, better, 9999)))
        detail = f"share found; median date {'-' if median > 750 else f'{median:.0f}'}"
        yield shown(f"a champion 22 % too narrow is replaced, {what}", float((better > 0).mean()), detail=detail)


def reliability_rows(*, quick: bool) -> Iterator[Row]:
    """How often the bounds of a calibrated quantile's share are ever wrong on either side."""
    random, paths = np.random.default_rng(7), 10 if quick else 400
    for horizon in (1, 5, 20):
        for symbols in (1, 50):
            ahead = sums_ahead(returns(random, paths, 750 + horizon, symbols), horizon)
            for level in (0.1, 0.5):
                edge = NormalDist().inv_cdf(level) * np.sqrt(horizon)
                below = (ahead <= edge).mean(axis=2)
                wrong = np.zeros(paths, np.bool_)
                for days in range(compute_least_sequence_days(horizon), 750, 10):
                    seen = bound_level_shares(below[:, :days].T, horizon=horizon)
                    wrong |= (seen.lower > level) | (seen.upper < level)
                what = f"quantile {level}, h {horizon}, {symbols} symbol{'s' if symbols > 1 else ''}"
                detail = f"{paths} paths, a look every 10 dates to 750"
                name = f"bounds of the share below are ever wrong, {what}"
                yield at_most(name, float(wrong.mean()), 2 * ALPHA, detail=detail, judged=not quick)


def universe(symbols: int, days: int) -> BarPanel:
    sessions = SessionCalendar.weekdays(20150101, 20251231).sessions(20150101, 20251231)[:days]
    close = 100 * np.exp(0.01 * np.cumsum(np.random.default_rng(0).standard_normal((symbols, days)), axis=1))
    names = tuple(f"S{number:04d}" for number in range(symbols))
    volume = np.full(close.shape, 1e6)
    return BarPanel(
        symbols=names, sessions=sessions, open=close, high=1.01 * close, low=0.99 * close, close=close, volume=volume
    )


def evening_forecasts(panel: BarPanel, day: int, model: str) -> list[ForecastRecord]:
    horizons, sessions = (1, 5, 10, 20), panel.sessions.tolist()
    values = np.sort(0.02 * np.random.default_rng(day).standard_normal((len(panel.symbols), 4, 7)), axis=2)
    return [
        ForecastRecord(
            forecast_id=f"{model}{day:012d}",
            symbol=symbol,
            role=ForecastRole.CHAMPION,
            model=model,
            version=1,
            weights_hash="ab" * 32,
            engine="eager",
            batch_rows=256,
            as_of=sessions[day],
            base_session=sessions[day],
            target_kind="log-return",
            horizons=horizons,
            target_sessions=tuple(sessions[day + h] for h in horizons),
            quantiles=(0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95),
            values=values[row],
            anchor=100.0,
            bars_batch=1,
            made_at=time.time_ns(),
        )
        for row, symbol in enumerate(panel.symbols)
    ]


def ledger_rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Processor time of an evening of 1,026 stocks, three models and four horizons, and of its parts."""
    panel = universe(60 if quick else 1026, 1500)
    evenings = panel.sessions.tolist()[-30:-25]
    with Ledger.open(folder / "ledger.db", create=True) as ledger:
        first = processor_time(lambda: ledger.add_bars(panel.until(evenings[0])))
        yield shown("first bars, s", first, detail=f"{panel.close.size:,} bars")
        costs: list[tuple[float, float, float]] = []
        for place, day in enumerate(evenings[1:], start=panel.sessions.size - 29):
            records = [record for model in "abc" for record in evening_forecasts(panel, place, model)]
            bars = processor_time(lambda until=day: ledger.add_bars(panel.until(until)))
            written = processor_time(lambda batch=records: append_in_parts(ledger, batch))
            costs.append((bars, 1e6 * written / len(records), processor_time(lambda: score_due_forecasts(ledger))))
        bars, each, scores = np.median(costs, axis=0).tolist()
        yield at_most("write a forecast, µs", each, WRITE_REACH, detail="batches of 100", judged=not quick)
        yield shown("an evening's bars, s", bars, detail=f"{len(panel.symbols)} symbols")
        yield shown("an evening's scores, s", scores, detail="three models")
        verified = processor_time(ledger.verify)
        rows = ledger.verify().rows
        yield shown("verify, µs per row", 1e6 * verified / rows, detail=f"{rows:,} rows")


def daily_rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Processor time of `quantra daily` with one model and two baselines, and what a second run writes."""
    made, random = universe(60 if quick else 1026, 1000), np.random.default_rng(1)
    spread = 0.01 * random.uniform(0.2, 1, (4, *made.close.shape))
    panel = replace(
        made,
        open=made.close * (1 + spread[0] - spread[1]),
        high=made.close * (1 + spread[0] + spread[2]),
        low=made.close * (1 - spread[1] - spread[3]),
        volume=np.exp(random.normal(13, 0.5, made.close.shape)),
    )
    days = panel.sessions.tolist()
    recipe = replace(recipe_of("har"), parts=RollingSplits(selection=60, calibration=250))
    learnt = panel.until(days[-40]).rows(slice(50))
    train(TrainingMaterial(learnt, load_default_features()), recipe, folder / "models" / "mine" / "1", consume=iter)
    with Ledger.open(folder / "daily.db", create=True) as ledger:
        settings = DailySettings(ledger=ledger, model_folder=folder / "models" / "mine")
        summaries: list[DailySummary] = []

        def run_until(day: int) -> None:
            summaries.append(run_due_evenings(settings, panel.until(day), AFTER_ALL_SESSIONS))

        first = processor_time(lambda: run_until(days[-3]))
        yield shown("daily, first evening, s", first, detail=f"{len(panel.symbols)} symbols; fits two baselines")
        each = processor_time(lambda: run_until(days[-2]))
        detail = f"{len(panel.symbols)} symbols, one model and two baselines"
        yield at_most("daily, an evening, s", each, DAILY_REACH, detail=detail, judged=not quick)
        again = processor_time(lambda: run_until(days[-2]))
        written = summaries[-1].rows + summaries[-1].bars
        yield at_most("daily, rows of a second run", float(written), 0.0, detail=f"{again:.1f} s")


def append_in_parts(ledger: Ledger, records: list[ForecastRecord]) -> None:
    for first in range(0, len(records), 100):
        ledger.append(records[first : first + 100])


def processor_time(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def main() -> int:
    arguments = parse_arguments(__doc__ or "")
    quick = arguments.quick
    with tempfile.TemporaryDirectory() as folder:
        rows = chain(
            coverage_rows(quick=quick),
            promotion_rows(quick=quick),
            reliability_rows(quick=quick),
            ledger_rows(Path(folder), quick=quick),
            daily_rows(Path(folder), quick=quick),
        )
        return publish(rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
