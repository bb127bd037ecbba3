"""Performance of daily returns, with errors of Sharpe ratios and the effect of trading costs.

Costs change no weight of a book, so results at other costs follow from the same trades.
"""

from dataclasses import dataclass, replace

import numpy as np

from predictor.arrays import FloatArray
from trainers.stock.backtest.book import Book
from trainers.stock.backtest.strategies import BASIS_POINT, SESSIONS_A_YEAR, TradingTerms
from trainers.stock.evaluation.standard_errors import mean_error


def sharpe_formula(a_year: int = SESSIONS_A_YEAR) -> str:
    """Definition of the Sharpe ratio, as text."""
    return (
        f"sqrt({a_year}) x mean / standard deviation of daily returns, no interest subtracted; standard error by the "
        "delta method with Newey-West weights (Lo 2002)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawdown:
    """The largest drawdown."""

    depth: float
    """Share of the peak that is lost, 0 to 1."""
    peak: int
    """Position of the session of the peak; -1 is the start, before the first session."""
    trough: int
    """Position of the session of the trough; -1 if the equity never fell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """Figures of daily returns; NaN if undefined, such as the Sharpe ratio of constant returns."""

    annual_return: float
    """Compounded."""
    annual_volatility: float
    sharpe: float
    """Annualised."""
    sharpe_error: float
    drawdown: Drawdown


def performance(returns: FloatArray, a_year: int = SESSIONS_A_YEAR) -> Performance:
    """Figures of daily returns [T], annualised with `a_year` sessions."""
    growth = float(np.prod(1 + returns))
    ratio, error = sharpe(returns, a_year)
    return Performance(
        annual_return=growth ** (a_year / len(returns)) - 1 if growth > 0 else -1.0,
        annual_volatility=float(returns.std()) * a_year**0.5,
        sharpe=ratio,
        sharpe_error=error,
        drawdown=drawdown(returns),
    )


def equity(returns: FloatArray) -> FloatArray:
    """[T] growth of 1 up to each session."""
    return np.multiply.accumulate(1 + returns)


def sharpe(returns: FloatArray, a_year: int = SESSIONS_A_YEAR) -> tuple[float, float]:
    """Annualised Sharpe ratio of daily returns [T] and its standard error; NaN for constant returns.

    With z the standardised returns and s the daily ratio, the influence function of the ratio is z - s (z^2 - 1) / 2.
    The error is that of its mean (Lo 2002, section "non-IID returns"); for independent normal returns it is
    sqrt((1 + s^2 / 2) / T).
    """
    daily, influence = _sharpe(returns)
    return daily * a_year**0.5, mean_error(influence) * a_year**0.5


def sharpe_lead(ours: FloatArray, theirs: FloatArray, a_year: int = SESSIONS_A_YEAR) -> tuple[float, float]:
    """Difference of the annualised Sharpe ratios of two series of daily returns [T], and its standard error.

    The error is that of the mean difference of the influence functions, so common movements cancel (Ledoit & Wolf 2008,
    section 3.1). NaN if either is constant.
    """
    (mine, my_influence), (other, other_influence) = _sharpe(ours), _sharpe(theirs)
    error = mean_error(my_influence - other_influence)
    return (mine - other) * a_year**0.5, error * a_year**0.5


def _sharpe(returns: FloatArray) -> tuple[float, FloatArray]:
    """Daily Sharpe ratio of returns [T] and its influence function [T]; NaN for constant returns."""
    if len(returns) < 2 or np.ptp(returns) == 0:  # noqa: PLR2004 - one return has no deviation
        return float("nan"), np.full(len(returns), np.nan)
    deviation = returns.std()
    standard = (returns - returns.mean()) / deviation
    daily = float(returns.mean() / deviation)
    return daily, standard - daily / 2 * (standard * standard - 1)


def drawdown(returns: FloatArray) -> Drawdown:
    """The largest drawdown of daily returns [T]."""
    curve = np.concatenate([[1.0], equity(returns)])
    fallen = 1 - curve / np.maximum.accumulate(curve)
    trough = int(np.argmax(fallen))
    return Drawdown(depth=float(fallen[trough]), peak=int(np.argmax(curve[: trough + 1])) - 1, trough=trough - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnualReturns:
    """Mean yearly returns, not compounded: gross minus trading and borrowing is net."""

    gross: float
    trading: float
    borrowing: float
    net: float


def bill(book: Book, terms: TradingTerms) -> AnnualReturns:
    """Yearly returns and costs of a book."""
    gross, net, trading = (
        terms.sessions_a_year * float(daily.mean()) for daily in (book.gross, book.net, terms.cost * book.traded)
    )
    return AnnualReturns(gross=gross, trading=trading, borrowing=gross - net - trading, net=net)


def sharpe_at(book: Book, terms: TradingTerms, cost_bps: float) -> tuple[float, float]:
    """Annualised Sharpe ratio and its standard error at another trading cost in basis points."""
    other = replace(terms, cost_bps=cost_bps)
    return sharpe(book.net + (terms.cost - other.cost) * book.traded, terms.sessions_a_year)


def break_even(book: Book, terms: TradingTerms) -> float | None:
    """Trading cost in basis points at which the mean return after borrowing is zero; None without trades."""
    traded = float(book.traded.mean())
    if traded == 0:
        return None
    return (float(book.net.mean()) / traded + terms.cost) / BASIS_POINT
