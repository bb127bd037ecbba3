"""Suspect bars: false alarms on real bars, and the cost of judging a file and a forecast.

`--panel FILE.npz` adds a panel of stocks: `ohlcv` [S, T, 5], `dates` as ISO text and `tickers`.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.newcomer import QUICK_ROWS, ROWS, write_bars
from benchmarks.report import Row, at_most, common_options, interleaved_medians, publish, shown
from predictor import Forecaster
from predictor.bars import BarPanel, read_file
from predictor.bars.suspects import find_suspects, find_untraded_cells, may_be_suspect, select_traded_bars
from predictor.features import load_default_features
from trainers.demo.market import real_bars
from trainers.stock import StockRecipe, TrainingMaterial, train
from trainers.stock.recipe import Optimisation

REFUSALS_REACH = 1.0
PREDICTION_REACH, READING_REACH = 0.05, 0.03


def alarm_rows(name: str, bars: BarPanel) -> Iterator[Row]:
    """How many bars are flagged, and how many would be refused as the last bar of a request."""
    days = int(bars.present.sum())
    found = find_suspects(bars)
    per_100_000 = 1e5 * len(found) / days
    detail = f"{len(found)} of {days:,}: {'; '.join(map(str, found)) or 'none'}"
    yield at_most(f"suspect bars per 100,000 stock-days, {name}", per_100_000, REFUSALS_REACH, detail=detail)
    yield shown(f"days without a trade, {name}", int(find_untraded_cells(bars).sum()), detail=f"of {days:,}")


def panel_of(path: Path) -> BarPanel:
    """Read a panel of stocks; leave out bars with an unknown field; a close outside its range widens the range."""
    with np.load(path) as arrays:
        prices, dates, tickers = arrays["ohlcv"].astype(np.float64), arrays["dates"], arrays["tickers"]
    prices[np.isnan(prices).any(axis=2)] = np.nan
    open_, high, low, close, volume = (prices[..., column] for column in range(5))
    return BarPanel(
        symbols=tuple(tickers.tolist()),
        sessions=np.array([int(day.replace("-", "")) for day in dates.tolist()]),
        open=open_,
        high=np.maximum.reduce([open_, high, close]),
        low=np.minimum.reduce([open_, low, close]),
        close=close,
        volume=volume,
    )


def cost_rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Processor time of judging, relative to what it is part of."""
    rows = QUICK_ROWS if quick else ROWS
    write_bars(folder / "bars.csv", rows)
    panel = read_file(folder / "bars.csv").panel
    subjects = {"judge": lambda: find_suspects(panel), "read": lambda: read_file(folder / "bars.csv").panel}
    times = interleaved_medians(subjects, rounds=3 if quick else 9, calls=1, clock=time.process_time)
    yield at_most(
        f"judging {rows:,} bars / reading them",
        times["judge"] / times["read"],
        READING_REACH,
        detail=f"{1e3 * times['judge']:.0f} of {1e3 * times['read']:.0f} ms",
        judged=not quick,
    )
    bars = real_bars(["AAPL"]).last(200)
    recipe = StockRecipe(calendar="XNYS", optimisation=Optimisation(max_epochs=1))
    train(TrainingMaterial(real_bars(["AAPL"]), load_default_features()), recipe, folder / "1", consume=iter)
    with Forecaster.load(folder / "1") as forecaster:

        def judge() -> None:
            select_traded_bars(bars)
            may_be_suspect(bars.high, bars.low, bars.close, bars.volume)

        each = {"judge": judge, "predict": lambda: forecaster.predict(bars)}
        times = interleaved_medians(each, rounds=9, calls=20 if quick else 200, clock=time.process_time)
    yield at_most(
        "judging 200 bars / a forecast of them",
        times["judge"] / times["predict"],
        PREDICTION_REACH,
        detail=f"{1e6 * times['judge']:.0f} of {1e6 * times['predict']:.0f} µs, an LSTM",
        judged=not quick,
    )


def main() -> None:
    parser = common_options(__doc__ or "")
    parser.add_argument("--panel", type=Path, metavar="FILE.npz", help="also count alarms in this panel of stocks")
    given = parser.parse_args()

    def rows() -> Iterator[Row]:
        yield from alarm_rows("the demo's stocks", real_bars())
        if given.panel is not None:
            yield from alarm_rows(given.panel.stem, panel_of(given.panel))
        with tempfile.TemporaryDirectory() as folder:
            yield from cost_rows(Path(folder), quick=given.quick)

    sys.exit(publish(rows(), given.json))


if __name__ == "__main__":
    main()
