"""A made-up backtest: books of random weights on random closes."""

import numpy as np

from trainers.stock.backtest import Backtest, Fold, StrategySettings, TradingTerms
from trainers.stock.backtest.book import run_book
from trainers.stock.backtest.result import BookTrack, create_track

TERMS = TradingTerms(horizon=2, cost_bps=20, borrow_bps=100)


def track(name: str, seed: int, *, drift: float = 0.0) -> BookTrack:
    """A book of random weights on random closes."""
    random = np.random.default_rng(seed)
    closes = np.exp(np.cumsum(drift + 0.01 * random.standard_normal((80, 3)), axis=0))
    wanted = np.abs(random.uniform(-1, 1, (80, 3))) / 3 if drift else random.uniform(-1, 1, (80, 3)) / 3
    days = np.arange(np.datetime64("2011-03-01"), np.datetime64("2011-03-01") + np.timedelta64(80, "D"))
    sessions = np.array([int(str(day).replace("-", "")) for day in days], np.int32)
    return create_track(name, sessions, run_book(wanted, closes, TERMS), TERMS)


def backtest(*, strategy: BookTrack | None = None, note: str = "a note", symbol: str = "AAPL") -> Backtest:
    return Backtest(
        symbols=(symbol, "GOOG", "IBM"),
        forecasts=f"artifact of {symbol}",
        digest="ab" * 32,
        terms=TERMS,
        strategy_settings=StrategySettings(),
        folds=(
            Fold(number=1, first=20110301, last=20110331, learn_first=20000301, learn_last=20110228),
            Fold(number=2, first=20110401, last=20110519, learn_first=20000301, learn_last=20110331),
        ),
        strategy=strategy or track("model, rank", 1),
        benchmarks=(track("equal weight", 2), track("momentum 12-1", 3)),
        notes=(note,),
    )
