"""Forecasts and contributions as tables for a terminal."""

from collections.abc import Callable
from math import isfinite
from typing import Final

import numpy as np
from rich.bar import Bar
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from predictor.forecast import (
    INTERNALS_NOTE,
    Attribution,
    Contribution,
    Forecast,
    RowKind,
    largest_shares,
    simple_return,
)
from predictor.report.templates import iso, level

BASIS_POINTS: Final = 10_000.0

_TOP: Final = 15
_RANKING: Final = ("score", "rank")
_BAND_WIDTH: Final = 28
"""At most; the band is what gives way in a narrow terminal."""

_BAR_WIDTHS: Final = (6, 20)
"""From the least to the most; bars give way too, so that names are told in full."""


def forecast_table(forecast: Forecast, symbol: str, currency: str) -> RenderableType:
    """One line a horizon: quantiles, and the band from the lowest to the highest as a bar."""
    s = forecast.symbols.index(symbol)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("ahead", justify="right", no_wrap=True)
    table.add_column("session", no_wrap=True)
    for quantile in forecast.quantiles:
        table.add_column(level(quantile), justify="right", no_wrap=True)
    for name in _RANKING if forecast.ranks is not None else ():
        table.add_column(name, justify="right", no_wrap=True)
    if len(forecast.quantiles) > 1:
        table.add_column("band", min_width=4, max_width=_BAND_WIDTH)
    shown = forecast.values[s] if forecast.prices is None else forecast.prices[s]
    low, high = float(np.min(shown)), float(np.max(shown))
    for h, horizon in enumerate(forecast.horizons):
        session = iso(int(forecast.target_sessions[h])) if len(forecast.target_sessions) else ""
        cells = [_cell(forecast, s, h, q) for q in range(len(forecast.quantiles))]
        ranking = _ranking_cells(forecast, s, h)
        band = (_band(shown[h].tolist(), low, high),) if len(cells) > 1 else ()
        table.add_row(str(horizon), session, *cells, *ranking, *band)
    return Group(_forecast_title(forecast, s, currency), table)


def contributions_table(found: Attribution, symbol: str) -> RenderableType:
    """Signed bars around a middle, the largest that are not 0 first, neighbours always; what is left is one line."""
    unit, shown = _display(found.unit)
    s = found.symbols.index(symbol)
    rows = found.table(symbol)
    places = [k for k, row in enumerate(rows) if row.kind is RowKind.NEIGHBOURS or (k < _TOP and row.value != 0)]
    top, rest = [rows[k] for k in places], [row for k, row in enumerate(rows) if k not in places]
    reach = max((abs(row.value) for row in rows), default=0.0)
    title = (
        f"{symbol}: {found.horizon} sessions ahead, {level(found.quantile)}: "
        f"{shown(float(found.prediction[s]))} {unit}, {shown(float(found.baseline_prediction[s]))} for {found.baseline}"
    )
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    least, most = _BAR_WIDTHS
    table.add_column("input", no_wrap=True)
    table.add_column("lowers", justify="right", min_width=least, max_width=most)
    table.add_column("raises", min_width=least, max_width=most)
    table.add_column(unit, justify="right")
    for row in top:
        lowers, raises = _bars(row, reach)
        table.add_row(Text(row.name), lowers, raises, shown(row.value))
    if rest:
        table.add_row(f"others ({len(rest)})", "", "", shown(sum(row.value for row in rest)))
    return Group(Text(title, style="bold"), table)


def _display(unit: str) -> tuple[str, Callable[[float], str]]:
    """The unit that contributions are shown in, and how: log returns are small numbers, read in basis points."""
    if unit == "log return":
        return "bp of log return", lambda value: f"{BASIS_POINTS * value:+.2f}"
    return unit, lambda value: f"{value:+.4f}"


def internals_table(found: Attribution, symbol: str) -> RenderableType:
    """The largest shares of each internal, under a heading that says what they are."""
    s = found.symbols.index(symbol)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("internal")
    table.add_column("largest shares")
    for one in found.internals:
        table.add_row(Text(one.name), Text(largest_shares(one, s)))
    return Group(Text(f"{symbol}: internals, {INTERNALS_NOTE}", style="bold"), table)


def _forecast_title(forecast: Forecast, s: int, currency: str) -> Text:
    parts = [forecast.symbols[s]]
    if forecast.as_of_session:
        parts.append(f"as of {iso(forecast.as_of_session)}")
    if forecast.anchor_price is not None:
        parts.append(f"last close {float(forecast.anchor_price[s]):,.2f} {currency}".rstrip())
    return Text(", ".join(parts) + f" ({forecast.model} version {forecast.version})", style="bold")


def _cell(forecast: Forecast, s: int, h: int, q: int) -> Text:
    """Price, and the simple return below it, or one of both or the value alone; a dash where there is no forecast."""
    value = float(forecast.values[s, h, q])
    if not isfinite(value):
        return Text("-", style="dim")
    told = f"{value:+.4f}" if forecast.returns is None else f"{100 * simple_return(value):+.2f} %"
    if forecast.prices is None:
        return Text(told)
    return Text.assemble(f"{float(forecast.prices[s, h, q]):,.2f}\n", (told, "dim"))


def _ranking_cells(forecast: Forecast, s: int, h: int) -> list[str]:
    """Score and rank; dashes where the symbol has none, nothing where the model does not rank."""
    if forecast.scores is None or forecast.ranks is None:
        return []
    rank = int(forecast.ranks[s, h])
    return [f"{float(forecast.scores[s, h]):+.4f}", str(rank)] if rank else ["-", "-"]


def _band(values: list[float], low: float, high: float) -> RenderableType:
    """From the lowest to the highest quantile, on the scale of the whole table."""
    if not all(map(isfinite, (low, high, *values))) or high <= low:
        return ""
    return Bar(high - low, values[0] - low, values[-1] - low, color="blue")


def _bars(row: Contribution, reach: float) -> tuple[RenderableType, RenderableType]:
    """A bar on the left of the middle for what lowers the forecast, on the right for what raises it."""
    if not isfinite(row.value) or reach == 0:
        return "", ""
    share = abs(row.value) / reach
    if row.value < 0:
        return Bar(1, 1 - share, 1, color="dark_orange3"), ""
    return "", Bar(1, 0, share, color="blue")
