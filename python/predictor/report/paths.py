"""The parts of a page on joint price paths: some paths of each symbol, and how far it may fall on the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from predictor import charts
from predictor.bars import BarPanel
from predictor.errors import TooFewBarsError, format_names
from predictor.forecast import Forecast
from predictor.price_paths import PathAnswers, PricePaths, simulate_paths
from predictor.replacement import replace_file
from predictor.report.forecast import describe_prices
from predictor.report.templates import PageBuilder, format_horizon, format_percent, format_session

_DRAWN: Final = 30
_CLOSES_SHOWN: Final = 60
_MAX_DRAWN: Final = 60
"""Symbols of a page that have charts, which keeps pages of hundreds of symbols below 2 MB."""
_RARE: Final = 0.95
"""Level of the marked drawdown: 1 in 20 paths has a larger one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathsView:
    """The paths of one symbol on a page."""

    symbol: str
    sentence: str
    lines: str = ""
    """Chart of some paths; empty if it is not drawn."""
    drawdowns: str = ""
    """Chart of the largest drawdown of every path; empty if it is not drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingsView:
    """The profit of holdings over the paths."""

    names: str
    profits: str
    """Chart of the profit of every path."""
    sentences: tuple[str, ...]


DrawnPaths = PricePaths | TooFewBarsError | None
"""Paths, why there are too few bars for them, or None if the model does not forecast prices."""


def draw_paths(forecast: Forecast, bars: BarPanel, symbols: Sequence[str]) -> DrawnPaths:
    """Joint paths of some symbols of a forecast, from their whole past."""
    shown_symbols = [symbol for symbol in symbols if symbol in forecast.symbols and symbol not in forecast.refusals]
    if forecast.prices is None or not shown_symbols:
        return None
    try:
        return simulate_paths(forecast.select(shown_symbols), bars)
    except TooFewBarsError as error:
        return error


def describe_origin(simulated: PricePaths) -> str:
    """How many days the paths come from, and what their ranges do not include."""
    independent, count = max(1, simulated.past_days // simulated.days), len(simulated.returns)
    return (
        f"{count:,} {'path' if count == 1 else 'paths'} from {simulated.past_days:,} past days, about "
        f"{independent} of them independent. Ranges are over other draws of these days; they do not include errors of "
        "the forecast's quantiles, and a crisis that the past does not have is missing."
    )


def make_paths_view(simulated: PricePaths, bars: BarPanel, symbol: str, day: int, page: PageBuilder) -> PathsView:
    """Build the view of one symbol's paths up to a day.

    Args:
        simulated: the paths.
        bars: raw bars of the forecast.
        symbol: a symbol with paths.
        day: 1 for the first day after the last bar.
        page: the page of the charts.
    """
    past = bars.select([symbol]).last(_CLOSES_SHOWN).close[0]
    closes = simulated.prices[:_DRAWN, simulated.symbols.index(symbol), :day]
    drawdowns = 100 * simulated.drawdowns({symbol: 1.0}, day)
    lines = charts.draw_path_lines(past, closes, title=symbol, currency=bars.currency)
    histogram = charts.draw_distribution(
        drawdowns,
        title=symbol,
        what="largest fall (% of today's price)",
        mark=float(np.quantile(drawdowns, _RARE)),
        mark_name="1 in 20",
    )
    return replace(
        _make_falls_view(simulated, symbol, day),
        lines=page.chart(
            lines, f"{len(closes)} possible paths of {symbol} over {format_horizon(day)}, after its last closes"
        ),
        drawdowns=page.chart(histogram, f"Largest fall of {symbol} from an earlier close, of every path", top=24),
    )


def _make_falls_view(simulated: PricePaths, symbol: str, day: int) -> PathsView:
    """The view of a symbol without charts."""
    half, rare = np.quantile(100 * simulated.drawdowns({symbol: 1.0}, day), [0.5, _RARE]).tolist()
    falls = f"at most {half:.1f} % of today's price in half of the paths, and more than {rare:.1f} % in 1 of 20"
    return PathsView(
        symbol=symbol, sentence=f"Within {format_horizon(day)}, {symbol} closes below an earlier close by {falls}."
    )


def make_holdings_view(
    simulated: PricePaths, holdings: Mapping[str, float], answers: PathAnswers, level: float, page: PageBuilder
) -> HoldingsView:
    """Build the view of the profit of holdings; `answers` are those about them, at this level of the value at risk."""
    profits = simulated.profits(holdings, answers.day)
    risk, shortfall, drawdown = answers.value_at_risk, answers.expected_shortfall, answers.drawdown
    assert risk is not None  # noqa: S101 - holdings have answers
    assert shortfall is not None  # noqa: S101 - as above
    assert drawdown is not None  # noqa: S101 - as above
    figure = charts.draw_distribution(
        profits,
        title="holdings",
        what="profit or loss",
        mark=-risk.value,
        mark_name=f"value at risk, {100 * level:g} %",
    )
    money = "{:,.2f} ({:,.2f} to {:,.2f})"
    share = f"{format_percent(drawdown.value)} ({format_percent(drawdown.lower)} to {format_percent(drawdown.upper)})"
    return HoldingsView(
        names=", ".join(f"{symbol} {value:,.2f}" for symbol, value in holdings.items()),
        profits=page.chart(
            figure, f"Profit or loss of the holdings after {format_horizon(answers.day)}, of every path", top=24
        ),
        sentences=(
            f"Value at risk, {100 * level:g} %: {money.format(*risk)}.",
            f"Expected shortfall, the mean loss beyond it: {money.format(*shortfall)}.",
            f"Largest drawdown, exceeded in 1 of 20 paths: {share} of the holdings.",
        ),
    )


def write_paths_page(
    path: Path,
    simulated: PricePaths,
    bars: BarPanel,
    forecast: Forecast,
    *,
    holdings: Mapping[str, float],
    answers: PathAnswers,
    level: float,
    warnings: Sequence[str] = (),
) -> None:
    """Write a page of paths atomically: of the holdings, then of each symbol.

    Args:
        path: the HTML file.
        simulated: the paths.
        bars: raw bars of the forecast.
        forecast: the forecast that the paths have the distribution of.
        holdings: value of each position; may be empty.
        answers: the answers about the holdings, and the last day to show.
        level: level of the value at risk.
        warnings: about the forecast and the symbols without paths.

    Raises:
        MissingPackageError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    page = PageBuilder("predictor.report", "paths_page.html.j2")
    parts = {
        "symbols": format_names(simulated.symbols),
        "model": f"Model {simulated.model}, version {simulated.version}",
        "as_of": format_session(simulated.as_of_session),
        "day": answers.day,
        "notes": forecast.notes,
        "warnings": warnings,
        "remarks": (describe_prices(bars.select(simulated.symbols)),),
        "holdings": make_holdings_view(simulated, holdings, answers, level, page) if holdings else None,
        "views": [
            *(make_paths_view(simulated, bars, symbol, answers.day, page) for symbol in simulated.symbols[:_MAX_DRAWN]),
            *(_make_falls_view(simulated, symbol, answers.day) for symbol in simulated.symbols[_MAX_DRAWN:]),
        ],
        "max_drawn": _MAX_DRAWN,
        "origin": describe_origin(simulated),
    }
    replace_file(path, page.render(parts).encode())
