"""HTML page of a backtest, in one self-contained file."""

from collections.abc import Callable
from math import nan
from typing import Final

import numpy as np

from predictor import charts
from predictor.arrays import FloatArray
from predictor.charts import BookCurve
from predictor.report import PageBuilder, ReportTable, TableCell, TableRow, make_number_cell
from trainers.stock.backtest.result import (
    Backtest,
    BookTrack,
    describe_sharpe,
    find_break_even_cost,
    judge,
    measure_annual_returns,
    measure_lead,
    sharpe_at,
    write_sharpe_formula,
)
from trainers.stock.backtest.strategies import MAX_HALT, Strategy, StrategySettings

SMOOTHED: Final = 21
"""Sessions of the rolling mean of turnover, about a month."""
COSTS_BPS: Final = (0.0, 5.0, 10.0, 20.0, 50.0)
"""Trading costs at which Sharpe ratios are shown, besides the charged cost."""


def render_backtest(name: str, backtest: Backtest) -> str:
    """The page as deterministic HTML; raises MissingPackageError without the packages of pages."""
    page, sessions = PageBuilder("trainers.stock.backtest"), backtest.strategy.sessions
    return page.render(
        {
            "name": name,
            "backtest": backtest,
            "verdict_kind": judge(backtest),
            "sentence": describe_sharpe(backtest),
            "first": int(sessions[0]),
            "last": int(sessions[-1]),
            "largest_fall": find_largest_fall(backtest),
            "strategy": _describe_strategy(backtest.strategy_settings),
            "figures": build_figure_table(backtest),
            "costs": build_cost_table(backtest),
            "sensitivity": build_sensitivity_table(backtest),
            "equity": draw_equity(backtest, page),
            "drawdown": _draw_shares(
                backtest, page, lambda track: measure_drawdowns(track.net_equity), "below the peak", "Drawdown"
            ),
            "paid": _draw_shares(
                backtest,
                page,
                lambda track: np.cumsum(track.book.gross - track.book.net),  # not compounded
                "paid so far",
                "Costs paid so far",
            ),
            "turnover": _draw_shares(
                backtest, page, lambda track: smooth(track.book.traded), "traded per session", "Turnover"
            ),
            "smoothed": SMOOTHED,
            "longest_halt": MAX_HALT,
            "sharpe_formula": write_sharpe_formula(backtest.terms.sessions_a_year),
        }
    )


def _describe_strategy(strategy_settings: StrategySettings) -> str:
    """The strategy with its settings, as text."""
    settings = {
        Strategy.RANK: f"the best and the worst {100 * strategy_settings.share:g} % of the stocks, at least one each",
        Strategy.SIGN: f"flat where the median lies within {strategy_settings.threshold_bps:g} basis points of 0",
        Strategy.VOL_TARGET: f"targets a yearly volatility of {100 * strategy_settings.volatility:g} % in each stock",
    }
    return f"{strategy_settings.strategy}: {settings[strategy_settings.strategy]}"


def find_largest_fall(backtest: Backtest) -> tuple[int, int] | None:
    """Sessions of peak and trough of the largest drawdown, yyyymmdd; None if the equity never fell.

    A drawdown from the start is dated with the first session.
    """
    fall, sessions = backtest.strategy.figures.net.drawdown, backtest.strategy.sessions
    return None if fall.trough < 0 else (int(sessions[max(fall.peak, 0)]), int(sessions[fall.trough]))


# --- books over time


def draw_equity(backtest: Backtest, page: PageBuilder) -> str:
    """Growth of 1: every book after costs, and the strategy before costs."""
    strategy = backtest.strategy
    net = [BookCurve(name=track.name, values=track.net_equity, book=k) for k, track in enumerate(backtest.tracks)]
    before = BookCurve(name=f"{strategy.name}, before costs", values=strategy.gross_equity, book=0, is_gross=True)
    figure = charts.draw_book_curves(strategy.sessions, [net[0], before, *net[1:]], axis="equity")
    return page.chart(figure, _describe_chart(backtest, "Equity after costs"))


def _draw_shares(
    backtest: Backtest, page: PageBuilder, shares: Callable[[BookTrack], FloatArray], axis: str, subject: str
) -> str:
    """One curve per book, of shares [T]."""
    curves = [BookCurve(name=track.name, values=shares(track), book=k) for k, track in enumerate(backtest.tracks)]
    figure = charts.draw_book_curves(backtest.strategy.sessions, curves, axis=axis, percent=True)
    return page.chart(figure, _describe_chart(backtest, subject))


def _describe_chart(backtest: Backtest, subject: str) -> str:
    """Alternative text of a chart."""
    return f"{subject} by session: {', '.join(track.name for track in backtest.tracks)}; figures in the tables"


def measure_drawdowns(equity: FloatArray) -> FloatArray:
    """[T] drawdown of an equity [T] from its peak so far, or from 1; 0 or negative."""
    return equity / np.maximum(np.maximum.accumulate(equity), 1.0) - 1


def smooth(daily: FloatArray) -> FloatArray:
    """[T] mean of the last `SMOOTHED` daily values [T], or of fewer at the start."""
    total = np.concatenate([[0.0], np.cumsum(daily)])
    ends = np.arange(1, len(daily) + 1)
    starts = np.maximum(ends - SMOOTHED, 0)
    return (total[ends] - total[starts]) / (ends - starts)


# --- books in numbers


def build_figure_table(backtest: Backtest) -> ReportTable:
    """Figures of all books, the strategy first."""

    def build_cells(track: BookTrack) -> tuple[TableCell, ...]:
        net, gross, figures = track.figures.net, track.figures.gross, track.figures
        is_benchmark = track is not backtest.strategy
        shares = (-net.drawdown.depth, figures.turnover, figures.hit_rate, figures.exposure)
        return (
            *(make_number_cell(share, _format_percent) for share in (net.annual_return, net.annual_volatility)),
            _build_ratio_cell(net.sharpe, net.sharpe_error),
            _build_ratio_cell(*(measure_lead(backtest, track) if is_benchmark else (nan, nan))),
            _build_ratio_cell(gross.sharpe, gross.sharpe_error),
            *(make_number_cell(share, _format_percent) for share in shares),
        )

    columns = ("annual return", "volatility", "Sharpe", "lead", "before costs", "max. drawdown")
    return _build_table(backtest, (*columns, "turnover", "hit rate", "exposure"), build_cells)


def build_cost_table(backtest: Backtest) -> ReportTable:
    """Yearly returns and costs of all books."""
    columns = ("before costs", "trading", "borrowing", "after costs", "break-even cost")

    def build_cells(track: BookTrack) -> tuple[TableCell, ...]:
        paid = measure_annual_returns(track.book, backtest.terms)
        parts = (paid.gross, -paid.trading, -paid.borrowing, paid.net)
        even = make_number_cell(find_break_even_cost(track.book, backtest.terms), "{:.1f} bp".format)
        return (*(make_number_cell(part, _format_signed_percent) for part in parts), even)

    return _build_table(backtest, columns, build_cells)


def build_sensitivity_table(backtest: Backtest) -> ReportTable:
    """Sharpe ratios at other trading costs."""
    costs = sorted({*COSTS_BPS, backtest.terms.cost_bps})

    def build_cells(track: BookTrack) -> tuple[TableCell, ...]:
        return tuple(_build_ratio_cell(*sharpe_at(track.book, backtest.terms, cost)) for cost in costs)

    return _build_table(backtest, tuple(f"{cost:g} bp" for cost in costs), build_cells)


def _build_table(
    backtest: Backtest, columns: tuple[str, ...], build_cells: Callable[[BookTrack], tuple[TableCell, ...]]
) -> ReportTable:
    lines = (
        TableRow(name=track.name, cells=build_cells(track), is_model=track is backtest.strategy)
        for track in backtest.tracks
    )
    return ReportTable(columns=columns, lines=tuple(lines))


def _build_ratio_cell(ratio: float, error: float) -> TableCell:
    return make_number_cell(ratio, "{:+.2f}".format, note=f"± {error:.2f}")


def _format_signed_percent(share: float) -> str:
    """In percent with its sign; zero has a plus."""
    return f"{round(100 * share, 2) + 0.0:+.2f} %"


def _format_percent(share: float) -> str:
    return f"{100 * share:.1f} %"
