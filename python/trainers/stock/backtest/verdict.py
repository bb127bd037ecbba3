"""What a backtest says of its strategy, in one sentence."""

from math import isfinite
from typing import Final

from predictor.skill import Verdict
from trainers.stock.backtest.performance import Performance, sharpe_lead
from trainers.stock.backtest.result import Backtest, Track

SURE: Final = 1.96
"""Standard errors of a 95 % interval."""


def verdict_of(found: Backtest) -> Verdict:
    """Whether the Sharpe ratio after costs lies above 0, or below, with its whole 95 % interval."""
    net = found.strategy.figures.net
    if not isfinite(net.sharpe) or abs(net.sharpe) <= SURE * net.sharpe_error:
        return Verdict.UNDECIDED
    return Verdict.BETTER if net.sharpe > 0 else Verdict.WORSE


def sentence_of(found: Backtest) -> str:
    """The strategy's Sharpe ratio with its standard error, after and before costs."""
    figures = found.strategy.figures
    if not isfinite(figures.net.sharpe):
        return f"{found.strategy.name}: it never moves, so there is no Sharpe ratio."
    return f"{found.strategy.name}: Sharpe {told(figures.net)} after costs, {told(figures.gross)} before."


def leads_of(found: Backtest) -> str:
    """How far the strategy's Sharpe ratio lies above that of each benchmark, which markets that rise flatter too."""
    leads = (f"{track.name} {_pair(*lead_over(found, track))}" for track in found.benchmarks)
    return f"Sharpe after costs less that of {', of '.join(leads)}; paired by day, ± one standard error."


def lead_over(found: Backtest, benchmark: Track) -> tuple[float, float]:
    """The strategy's yearly Sharpe ratio after costs less a benchmark's, and its standard error; NaN without either."""
    return sharpe_lead(found.strategy.book.net, benchmark.book.net)


def told(found: Performance) -> str:
    """A Sharpe ratio and its standard error; a dash where there is none."""
    return _pair(found.sharpe, found.sharpe_error)


def _pair(value: float, error: float) -> str:
    return f"{value:+.2f} ± {error:.2f}" if isfinite(value) else "-"
