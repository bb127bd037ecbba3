"""What trading may cost before nothing is left of a strategy."""

from math import isfinite

from predictor.audit_record import AuditVerdict, CostCheck
from trainers.stock.backtest.book import Book
from trainers.stock.backtest.performance import sharpe
from trainers.stock.backtest.terms import BASIS_POINT, Terms

SURE = 1.96
"""Standard errors of a 95 % interval."""


def check_costs(book: Book, terms: Terms, strategy: str) -> CostCheck:
    """Pass where the Sharpe ratio after costs lies above 0 with its whole 95 % interval, fail where below.

    Costs are linear in what is traded, so the cost at which the mean return is zero follows from two means.
    """
    ratio, error = sharpe(book.net)
    return CostCheck(
        verdict=_verdict(ratio, error),
        strategy=strategy,
        charged_bps=terms.cost_bps,
        break_even_bps=break_even(book, terms),
        sharpe=ratio if isfinite(ratio) else None,
        sharpe_error=error if isfinite(error) else None,
    )


def break_even(book: Book, terms: Terms) -> float | None:
    """Basis points on every unit traded that leave a mean return of zero, after borrowing; None without trades."""
    traded = float(book.traded.mean())
    if traded == 0:
        return None
    return (float(book.net.mean()) / traded + terms.cost) / BASIS_POINT


def _verdict(ratio: float, error: float) -> AuditVerdict:
    if not isfinite(ratio) or abs(ratio) <= SURE * error:
        return AuditVerdict.UNDECIDED
    return AuditVerdict.PASS if ratio > 0 else AuditVerdict.FAIL
