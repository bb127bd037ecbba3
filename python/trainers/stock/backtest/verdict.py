"""What a backtest says of its strategy, in one sentence."""

from math import isfinite
from typing import Final

from predictor.card import Verdict
from trainers.stock.backtest.performance import Performance
from trainers.stock.backtest.result import Backtest

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


def told(found: Performance) -> str:
    """A Sharpe ratio and its standard error; a dash where there is none."""
    return f"{found.sharpe:+.2f} ± {found.sharpe_error:.2f}" if isfinite(found.sharpe) else "-"
