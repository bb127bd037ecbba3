"""The book: from the weights that a strategy wants to what was earned, traded and paid. NumPy alone.

The book is K tranches of 1/K of the equity each. A decision after the close of session t renews one of them, in turn,
at the close of session t + delay; from then on its shares are held, so its weights drift with prices until it is
renewed. All weights are shares of the equity before costs. At each close of a session:

    gross    = sum over stocks of the weight after the last close x the stock's return since then
    drifted  = weight x (1 + return) / (1 + gross)
    traded   = sum of |wanted / K - drifted| over the stocks of the tranche that is renewed
    net      = gross - cost x traded - borrow x (sum of the short weights after the last close)

So every unit that is bought and every unit that is sold is charged once, the book's first purchase included; what is
still held at the end is not sold. Costs are taken from the return and change no weight.

A stock without a bar is neither bought nor sold short. If it is held, its position was closed at the last close seen:
it earns nothing more, and its cost is charged on the first session that lacks the bar. When bars come back, the next
renewal may buy it again; what the price did meanwhile is not earned.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.errors import ConfigurationError
from trainers.stock.backtest.terms import Terms

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Book:
    """What came of T sessions and S stocks, in shares of the equity."""

    gross: FloatArray
    """[T] return since the close before, before costs."""
    net: FloatArray
    """[T] the same after costs and borrowing."""
    traded: FloatArray
    """[T] bought and sold at the close."""
    weights: FloatArray
    """[T, S] held after the close, positive long, negative short."""
    closed: NDArray[np.int64]
    """[T] positions that were closed at the last close seen, for want of a bar."""

    @property
    def exposure(self) -> FloatArray:
        """[T] sum of the absolute weights after the close."""
        return np.abs(self.weights).sum(axis=1)

    def since(self, position: int) -> "Book":
        """The book from the session at this position on."""
        kept = slice(position, None)
        return Book(
            gross=self.gross[kept],
            net=self.net[kept],
            traded=self.traded[kept],
            weights=self.weights[kept],
            closed=self.closed[kept],
        )


def run_book(wanted: FloatArray, closes: FloatArray, terms: Terms) -> Book:
    """Trade what a strategy wants.

    Args:
        wanted: [T, S] weights of the whole book decided after each session's close; no NaN.
        closes: [T, S] adjusted closes, NaN where there is no bar.
        terms: how the book is run.

    Raises:
        ConfigurationError: a session's loss is the whole equity or more.
    """
    sessions, stocks = closes.shape
    held = np.zeros((terms.tranches, stocks))
    gross, short, traded = np.zeros(sessions), np.zeros(sessions), np.zeros(sessions)
    weights, closed = np.zeros((sessions, stocks)), np.zeros(sessions, np.int64)
    for t in range(sessions):
        gone = np.isnan(closes[t])
        traded[t] = np.abs(held[:, gone]).sum()
        closed[t] = np.count_nonzero(held[:, gone].any(axis=0))
        held[:, gone] = 0.0
        if t > 0:
            short[t] = np.maximum(-weights[t - 1], 0.0).sum()
            gross[t], held = _held_on(held, np.where(gone, 1.0, closes[t] / closes[t - 1]) - 1.0)
        decided = t - terms.delay
        if decided >= 0 and decided % terms.rebalance == 0:
            k = decided // terms.rebalance % terms.tranches
            renewed = np.where(gone, 0.0, wanted[decided]) / terms.tranches
            traded[t] += np.abs(renewed - held[k]).sum()
            held[k] = renewed
        weights[t] = held.sum(axis=0)
    net = gross - terms.cost * traded - terms.borrow * short
    return Book(gross=gross, net=net, traded=traded, weights=weights, closed=closed)


def _held_on(held: FloatArray, returns: FloatArray) -> tuple[float, FloatArray]:
    """A session's return of the tranches [K, S], and their weights after it; a stock that is not held may be NaN."""
    earned = held * np.where(held.any(axis=0), returns, 0.0)
    gross = float(earned.sum())
    if gross <= -1:
        raise ConfigurationError(
            f"the book lost {-100 * gross:.0f} % of its equity in one session, all that there was; check the bars, or "
            "trade with smaller weights"
        )
    return gross, (held + earned) / (1 + gross)
