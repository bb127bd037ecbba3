"""Books in numbers, as tables."""

from collections.abc import Callable
from math import isfinite
from typing import Final

from predictor.report import Cell, Grid, Line
from trainers.stock.backtest.costs import bill, break_even, sharpe_at
from trainers.stock.backtest.performance import Performance
from trainers.stock.backtest.result import Backtest, Track
from trainers.stock.backtest.terms import Terms
from trainers.stock.backtest.verdict import lead_over

COSTS_BPS: Final = (0.0, 5.0, 10.0, 20.0, 50.0)
"""At which Sharpe ratios are told beside the cost that was charged."""

_NOTHING: Final = "–"  # noqa: RUF001 - no minus: there is no number


def figure_grid(found: Backtest) -> Grid:
    """Every book, the strategy first."""
    columns = ("a year", "volatility", "Sharpe", "lead", "before costs", "largest fall", "turnover", "hits", "held")
    return _grid(found, columns, lambda track: _figures(found, track))


def _figures(found: Backtest, track: Track) -> tuple[Cell, ...]:
    figures = track.figures
    return (
        _number(figures.net.annual_return, _percent),
        _number(figures.net.annual_volatility, _percent),
        _sharpe(figures.net),
        _lead(found, track),
        _sharpe(figures.gross),
        _number(-figures.net.drawdown.depth, _percent),
        _number(figures.turnover, _percent),
        _number(figures.hit_rate, _percent),
        _number(figures.exposure, _percent),
    )


def cost_grid(found: Backtest) -> Grid:
    """What every book earned and paid in a year."""
    columns = ("before costs", "trading", "borrowing", "after costs", "breaks even at")
    return _grid(found, columns, lambda track: _bill(track, found.terms))


def _bill(track: Track, terms: Terms) -> tuple[Cell, ...]:
    paid, even = bill(track.book, terms), break_even(track.book, terms)
    parts = (paid.gross, -paid.trading, -paid.borrowing, paid.net)
    told = Cell(value=None, text=_NOTHING) if even is None else _number(even, lambda bps: f"{bps:.1f} bp")
    return (*(_number(part, _signed) for part in parts), told)


def sensitivity_grid(found: Backtest) -> Grid:
    """Sharpe ratios had trading cost something else."""
    costs = sorted({*COSTS_BPS, found.terms.cost_bps})

    def cells(track: Track) -> tuple[Cell, ...]:
        return tuple(_ratio(*sharpe_at(track.book, found.terms, cost)) for cost in costs)

    return _grid(found, tuple(f"{cost:g} bp" for cost in costs), cells)


def _grid(found: Backtest, columns: tuple[str, ...], cells: Callable[[Track], tuple[Cell, ...]]) -> Grid:
    lines = (Line(name=track.name, cells=cells(track), is_model=track is found.strategy) for track in found.tracks)
    return Grid(columns=columns, lines=tuple(lines))


def _sharpe(found: Performance) -> Cell:
    return _ratio(found.sharpe, found.sharpe_error)


def _lead(found: Backtest, track: Track) -> Cell:
    """How far the strategy is ahead of a benchmark; a dash for itself."""
    return Cell(value=None, text=_NOTHING) if track is found.strategy else _ratio(*lead_over(found, track))


def _ratio(ratio: float, error: float) -> Cell:
    if not isfinite(ratio):
        return Cell(value=None, text=_NOTHING)
    return Cell(value=ratio, text=f"{ratio:+.2f}", beside=f"± {error:.2f}")


def _number(value: float, show: Callable[[float], str]) -> Cell:
    return Cell(value=value, text=show(value)) if isfinite(value) else Cell(value=None, text=_NOTHING)


def _signed(share: float) -> str:
    """In percent with its sign; what rounds to zero has none of its own."""
    return f"{round(100 * share, 2) + 0.0:+.2f} %"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
