"""The page: every part put into its place, and written whole."""

from dataclasses import dataclass
from pathlib import Path

from predictor.replacement import replace_file
from predictor.report import Drawing, Grid, page_template
from predictor.skill import Verdict
from trainers.stock.backtest.page.curves import SMOOTHED, drawdown_chart, equity_chart, turnover_chart
from trainers.stock.backtest.page.grids import cost_grid, figure_grid, sensitivity_grid
from trainers.stock.backtest.performance import SHARPE_FORMULA
from trainers.stock.backtest.result import Backtest
from trainers.stock.backtest.strategies import Strategy, Tactic
from trainers.stock.backtest.terms import LONGEST_HALT
from trainers.stock.backtest.verdict import sentence_of, verdict_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestView:
    """A backtest as the page shows it."""

    verdict: Verdict
    sentence: str
    first: int
    """Session of the first trade, yyyymmdd."""
    last: int
    fall: tuple[int, int] | None
    """Sessions of the peak and the trough of the strategy's largest fall; None where it never fell."""
    strategy: str
    """With its settings, in words."""
    figures: Grid
    costs: Grid
    sensitivity: Grid
    equity: str
    drawdown: str
    turnover: str


def write_backtest(path: Path, name: str, found: Backtest) -> None:
    """Write the page, whole or not at all, in place of an older one.

    Args:
        path: the HTML file.
        name: what was traded on, such as `demo/1`.
        found: the backtest.

    Raises:
        MissingPackageError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    replace_file(path, render_backtest(name, found).encode())


def render_backtest(name: str, found: Backtest) -> str:
    """The page as HTML text; the same backtest gives the same text."""
    drawing = Drawing()
    return page_template("trainers.stock.backtest.page", "page").render(
        name=name,
        found=found,
        view=_view(found, drawing),
        smoothed=SMOOTHED,
        longest_halt=LONGEST_HALT,
        sharpe_formula=SHARPE_FORMULA,
        plotly_js=drawing.library(),
    )


def _view(found: Backtest, drawing: Drawing) -> BacktestView:
    sessions = found.strategy.sessions
    return BacktestView(
        verdict=verdict_of(found),
        sentence=sentence_of(found),
        first=int(sessions[0]),
        last=int(sessions[-1]),
        fall=_fall(found),
        strategy=_strategy(found.tactic),
        figures=figure_grid(found),
        costs=cost_grid(found),
        sensitivity=sensitivity_grid(found),
        equity=equity_chart(found, drawing),
        drawdown=drawdown_chart(found, drawing),
        turnover=turnover_chart(found, drawing),
    )


def _strategy(tactic: Tactic) -> str:
    settings = {
        Strategy.RANK: f"the best and the worst {100 * tactic.share:g} % of the stocks, at least one each",
        Strategy.SIGN: f"flat where the median lies within {tactic.threshold_bps:g} basis points of 0",
        Strategy.VOL_TARGET: f"aims at a volatility of {100 * tactic.volatility:g} % a year in each stock",
    }
    return f"{tactic.strategy}: {settings[tactic.strategy]}"


def _fall(found: Backtest) -> tuple[int, int] | None:
    """A fall from the start, before the first session, is told from that session."""
    fall, sessions = found.strategy.figures.net.drawdown, found.strategy.sessions
    return None if fall.trough < 0 else (int(sessions[max(fall.peak, 0)]), int(sessions[fall.trough]))
