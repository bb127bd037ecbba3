"""The book: returns, trades and costs of the weights that a strategy decides.

The book has K tranches of 1/K of the equity each. A decision after the close of session t renews one of them, in turn,
at the close of session t + delay. Its shares are then held until the next renewal, so its weights drift with prices.
All weights are shares of the equity before costs. At each close of a session:

    gross    = sum over stocks of the weight after the close before x the stock's return
    drifted  = weight x (1 + return) / (1 + gross)
    traded   = sum of |renewed - drifted| over the stocks of the tranche that is renewed
    net      = gross - cost x traded - borrow x (sum of the short weights after the close before)

Every unit bought and every unit sold is charged once, including the first purchase; positions at the end are not sold.
Costs reduce the return and change no weight.

A stock without a bar is halted: it can be neither bought nor sold. Its return is 0 until bars return, and then the
whole move since the last close; a short keeps paying for borrowing. Positions in halted stocks reduce the room for
others in their tranche:

    locked   = sum of |drifted| over the halted stocks of the tranche
    room     = max(0, sum of |wanted| / K over all stocks - locked)
    renewed  = drifted where the stock is halted, elsewhere
               wanted / K x min(1, room / (sum of |wanted| / K over the stocks that are not halted))

A renewed tranche never exceeds the decided exposure, unless its locked positions do.

A position is closed as delisted after `MAX_HALT` sessions in a row without a bar, or on the book's last session. It
earns the delisting return, and the rest is charged once as traded. If bars return later, the next renewal may buy the
stock again; it does not earn the move in between.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from predictor.errors import ConfigurationError
from trainers.stock.backtest.strategies import MAX_HALT, TradingTerms


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Book:
    """Result of T sessions and S stocks, in shares of the equity."""

    gross: FloatArray
    """[T] return since the previous close, before costs."""
    net: FloatArray
    """[T] return after trading and borrowing costs."""
    traded: FloatArray
    """[T] sum of purchases and sales at the close."""
    weights: FloatArray
    """[T, S] weights after the close, positive long, negative short, including halted positions."""
    closed: NDArray[np.int64]
    """[T] number of halted positions closed as delisted."""

    @property
    def exposure(self) -> FloatArray:
        """[T] sum of the absolute weights after the close."""
        return np.abs(self.weights).sum(axis=1)

    def since(self, position: int) -> "Book":
        """The book from the session at this position on."""
        rows = slice(position, None)
        return Book(
            gross=self.gross[rows],
            net=self.net[rows],
            traded=self.traded[rows],
            weights=self.weights[rows],
            closed=self.closed[rows],
        )


def run_book(target_weights: FloatArray, closes: FloatArray, terms: TradingTerms) -> Book:
    """Trade the weights that a strategy decides.

    Args:
        target_weights: [T, S] weights of the whole book, decided after each session's close; no NaN.
        closes: [T, S] adjusted closes, NaN without a bar.
        terms: Trading terms.

    Raises:
        ConfigurationError: A session loses the whole equity or more.
    """
    market = _measure_market(closes, terms.delisting_return)
    sessions, stocks = closes.shape
    positions = np.zeros((terms.tranches, stocks))
    gross, short, traded = np.zeros(sessions), np.zeros(sessions), np.zeros(sessions)
    weights, closed = np.zeros((sessions, stocks)), np.zeros(sessions, np.int64)
    for t in range(sessions):
        delisted = market.delisted[t]
        closed[t] = np.count_nonzero(positions[:, delisted].any(axis=0))
        short[t] = np.maximum(-positions.sum(axis=0), 0.0).sum()
        # Returns of stocks without a position may be NaN.
        earned = positions * np.where(positions.any(axis=0), market.returns[t], 0.0)
        gross[t] = earned.sum()
        if gross[t] <= -1:
            raise ConfigurationError(
                f"the book lost {-100 * gross[t]:.0f} % of its equity in one session; check the bars and the delisting "
                "return, or trade with smaller weights"
            )
        positions = (positions + earned) / (1 + gross[t])
        traded[t] = np.abs(positions[:, delisted]).sum()
        positions[:, delisted] = 0.0
        decided = t - terms.delay
        if decided >= 0 and decided % terms.rebalance == 0:
            k = decided // terms.rebalance % terms.tranches
            renewed = _renew_tranche(positions[k], target_weights[decided] / terms.tranches, market.halted[t])
            traded[t] += np.abs(renewed - positions[k]).sum()
            positions[k] = renewed
        weights[t] = positions.sum(axis=0)
    net = gross - terms.cost * traded - terms.borrow * short
    return Book(gross=gross, net=net, traded=traded, weights=weights, closed=closed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Market:
    """Halts, delistings and returns of S stocks over T sessions."""

    halted: BoolArray
    """[T, S] mask of sessions without a bar."""
    delisted: BoolArray
    """[T, S] mask of sessions on which remaining positions are closed."""
    returns: FloatArray
    """[T, S] return since the previous session; NaN before the first bar."""


def _measure_market(closes: FloatArray, delisting_return: float) -> _Market:
    """Halts, delistings and returns of closes [T, S]."""
    sessions = np.arange(len(closes))[:, None]
    halted = np.isnan(closes)
    latest = np.maximum.accumulate(np.where(halted, -1, sessions), axis=0)
    delisted = halted & ((sessions - latest >= MAX_HALT) | (sessions == sessions[-1]))
    latest_closes = np.take_along_axis(closes, np.maximum(latest, 0), axis=0)
    returns = np.full_like(closes, np.nan)
    returns[1:] = latest_closes[1:] / latest_closes[:-1] - 1.0
    returns[delisted] = delisting_return
    return _Market(halted=halted, delisted=delisted, returns=returns)


def _renew_tranche(tranche: FloatArray, target_weights: FloatArray, halted: BoolArray) -> FloatArray:
    """[S] weights of a renewed tranche: locked positions in halted stocks, then others as far as room is left."""
    locked = np.where(halted, tranche, 0.0)
    free = np.where(halted, 0.0, target_weights)
    room = max(0.0, float(np.abs(target_weights).sum() - np.abs(locked).sum()))
    requested = float(np.abs(free).sum())
    return locked + (free if requested <= room else free * (room / requested))
