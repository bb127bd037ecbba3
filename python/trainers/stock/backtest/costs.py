"""What trading takes from a book, and what it may take. NumPy alone.

Costs change no weight of a book, so that what would be left at any other cost follows from the same trades.
"""

from dataclasses import dataclass, replace

from trainers.stock.backtest.book import Book
from trainers.stock.backtest.performance import sharpe
from trainers.stock.backtest.terms import BASIS_POINT, SESSIONS_A_YEAR, Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Mean returns of a year, not compounded, so that they add up: gross less trading and borrowing is net."""

    gross: float
    trading: float
    borrowing: float
    net: float


def bill(book: Book, terms: Terms) -> Bill:
    """What a book earned and paid."""
    gross, net, trading = (
        SESSIONS_A_YEAR * float(daily.mean()) for daily in (book.gross, book.net, terms.cost * book.traded)
    )
    return Bill(gross=gross, trading=trading, borrowing=gross - net - trading, net=net)


def sharpe_at(book: Book, terms: Terms, cost_bps: float) -> tuple[float, float]:
    """A year's Sharpe ratio and its standard error, had every unit traded cost so many basis points."""
    other = replace(terms, cost_bps=cost_bps)
    return sharpe(book.net + (terms.cost - other.cost) * book.traded)


def break_even(book: Book, terms: Terms) -> float | None:
    """Basis points on every unit traded that leave a mean return of zero, after borrowing; None without trades.

    Costs are linear in what is traded, so it follows from two means.
    """
    traded = float(book.traded.mean())
    if traded == 0:
        return None
    return (float(book.net.mean()) / traded + terms.cost) / BASIS_POINT
