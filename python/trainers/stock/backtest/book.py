"""The book: from the weights that a strategy wants to what was earned, traded and paid. NumPy alone.

The book is K tranches of 1/K of the equity each. A decision after the close of session t renews one of them, in turn,
at the close of session t + delay; from then on its shares are held, so its weights drift with prices until it is
renewed. All weights are shares of the equity before costs. At each close of a session:

    gross    = sum over stocks of the weight after the close before x the stock's return
    drifted  = weight x (1 + return) / (1 + gross)
    traded   = sum of |renewed - drifted| over the stocks of the tranche that is renewed
    net      = gross - cost x traded - borrow x (sum of the short weights after the close before)

So every unit that is bought and every unit that is sold is charged once, the book's first purchase included; what is
still held at the end is not sold. Costs are taken from the return and change no weight.

A stock without a bar is halted: it can be neither bought nor sold. Its return is 0 until bars come back, and then the
whole move since the last close seen; a short goes on paying for what it borrowed. What a tranche holds of halted
stocks takes room from the others:

    locked   = sum of |drifted| over the halted stocks of the tranche
    room     = max(0, sum of |wanted| / K over all stocks - locked)
    renewed  = drifted where the stock is halted, elsewhere
               wanted / K x min(1, room / (sum of |wanted| / K over the stocks that are not halted))

A renewed tranche is thus never exposed to more than was decided, unless what is locked alone is more.

A position is closed as delisted once it has had no bar for `LONGEST_HALT` sessions in a row, or on the book's last
session. Its return is then the delisting return, and what is left of it is charged once, as traded. If bars come back
later, the next renewal may buy the stock again; what the price did meanwhile is not earned.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from predictor.errors import ConfigurationError
from trainers.stock.backtest.strategies import LONGEST_HALT, Terms


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
    """[T, S] held after the close, positive long, negative short; halted positions are among them."""
    closed: NDArray[np.int64]
    """[T] halted positions that were closed as delisted."""

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
    market = _market(closes, terms.delisting_return)
    sessions, stocks = closes.shape
    held = np.zeros((terms.tranches, stocks))
    gross, short, traded = np.zeros(sessions), np.zeros(sessions), np.zeros(sessions)
    weights, closed = np.zeros((sessions, stocks)), np.zeros(sessions, np.int64)
    for t in range(sessions):
        ended = market.delisted[t]
        closed[t] = np.count_nonzero(held[:, ended].any(axis=0))
        short[t] = np.maximum(-held.sum(axis=0), 0.0).sum()
        gross[t], held = _held_on(held, market.returns[t])
        traded[t] = np.abs(held[:, ended]).sum()
        held[:, ended] = 0.0
        decided = t - terms.delay
        if decided >= 0 and decided % terms.rebalance == 0:
            k = decided // terms.rebalance % terms.tranches
            renewed = _renewed(held[k], wanted[decided] / terms.tranches, market.halted[t])
            traded[t] += np.abs(renewed - held[k]).sum()
            held[k] = renewed
        weights[t] = held.sum(axis=0)
    net = gross - terms.cost * traded - terms.borrow * short
    return Book(gross=gross, net=net, traded=traded, weights=weights, closed=closed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Market:
    """What happens to positions in S stocks over T sessions."""

    halted: BoolArray
    """[T, S] there is no bar."""
    delisted: BoolArray
    """[T, S] a position that is held still is closed."""
    returns: FloatArray
    """[T, S] of a position since the session before; NaN where none can be held, because there was no bar yet."""


def _market(closes: FloatArray, delisting_return: float) -> _Market:
    """Halts, delistings and returns of closes [T, S]."""
    sessions = np.arange(len(closes))[:, None]
    halted = np.isnan(closes)
    latest = np.maximum.accumulate(np.where(halted, -1, sessions), axis=0)
    delisted = halted & ((sessions - latest >= LONGEST_HALT) | (sessions == sessions[-1]))
    seen = np.take_along_axis(closes, np.maximum(latest, 0), axis=0)
    returns = np.full_like(closes, np.nan)
    returns[1:] = seen[1:] / seen[:-1] - 1.0
    returns[delisted] = delisting_return
    return _Market(halted=halted, delisted=delisted, returns=returns)


def _held_on(held: FloatArray, returns: FloatArray) -> tuple[float, FloatArray]:
    """A session's return of the tranches [K, S], and their weights after it; a stock that is not held may be NaN."""
    earned = held * np.where(held.any(axis=0), returns, 0.0)
    gross = float(earned.sum())
    if gross <= -1:
        raise ConfigurationError(
            f"the book lost {-100 * gross:.0f} % of its equity in one session, all that there was; check the bars and "
            "the delisting return, or trade with smaller weights"
        )
    return gross, (held + earned) / (1 + gross)


def _renewed(held: FloatArray, wanted: FloatArray, halted: BoolArray) -> FloatArray:
    """[S] what a tranche holds once it is renewed: what is locked in halted stocks, the others as room is left."""
    locked = np.where(halted, held, 0.0)
    free = np.where(halted, 0.0, wanted)
    room = max(0.0, float(np.abs(wanted).sum() - np.abs(locked).sum()))
    asked = float(np.abs(free).sum())
    return locked + (free if asked <= room else free * (room / asked))
