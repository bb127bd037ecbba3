"""What trading may cost before nothing is left of a strategy."""

from math import isfinite

from predictor.audit_record import AuditVerdict, CostCheck
from trainers.stock.backtest.book import Book
from trainers.stock.backtest.costs import break_even
from trainers.stock.backtest.performance import sharpe
from trainers.stock.backtest.terms import Terms

SURE = 1.96
"""Standard errors of a 95 % interval."""


def check_costs(book: Book, terms: Terms, strategy: str) -> CostCheck:
    """Pass where the Sharpe ratio after costs lies above 0 with its whole 95 % interval, fail where below."""
    ratio, error = sharpe(book.net)
    return CostCheck(
        verdict=_verdict(ratio, error),
        strategy=strategy,
        charged_bps=terms.cost_bps,
        break_even_bps=break_even(book, terms),
        sharpe=ratio if isfinite(ratio) else None,
        sharpe_error=error if isfinite(error) else None,
    )


def _verdict(ratio: float, error: float) -> AuditVerdict:
    if not isfinite(ratio) or abs(ratio) <= SURE * error:
        return AuditVerdict.UNDECIDED
    return AuditVerdict.PASS if ratio > 0 else AuditVerdict.FAIL
