"""Figures of forecasts and bars: the fan, quantiles by horizon, and closes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.charts.theme import (
    BLUE,
    BLUE_FILL,
    GREEN,
    ORANGE,
    graph_objects,
    iso_dates,
    new_figure,
    require_shape,
    series_style,
    with_unit,
)
from predictor.errors import ConfigurationError, shown_price

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


SATURDAY = 5
"""The weekday in Python, from Monday = 0."""


SESSIONS_SHOWN = 252
"""Daily bars shown before the forecast: one trading year."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candles:
    """Daily bars of one symbol, oldest first, as their source has them.

    Attributes:
        dates: int32 [T], yyyymmdd.
        open: [T], in the price's currency, like high, low and close.
        high: [T].
        low: [T].
        close: [T].
    """

    dates: NDArray[np.int32]
    open: FloatArray
    high: FloatArray
    low: FloatArray
    close: FloatArray


def fan(
    candles: Candles,
    target_dates: Sequence[date],
    quantiles: Sequence[float],
    prices: FloatArray,
    *,
    title: str,
    currency: str = "",
    notes: Sequence[str] = (),
) -> "Figure":
    """The last year's candles and the forecast fan, which starts at the last close.

    Args:
        candles: at least one bar; the last SESSIONS_SHOWN are drawn.
        target_dates: [H] target sessions, ascending.
        quantiles: [Q], levels between 0 and 1, ascending. Outer to inner pairs are shaded bands; the middle level of
            an odd number is a line.
        prices: [H, Q], forecast prices.
        title: such as the symbol.
        currency: unit of the prices, such as "USD".
        notes: small lines below the title.

    Raises:
        ConfigurationError: there is no bar, or shapes do not match.
        MissingPackageError: plotly is not installed.
    """
    bars = candles.dates.shape
    if not candles.dates.size:
        raise ConfigurationError("a fan needs at least one bar to start from; pass the bars of the forecast")
    for name, column in (
        ("open", candles.open),
        ("high", candles.high),
        ("low", candles.low),
        ("close", candles.close),
    ):
        require_shape(name, column, bars)
    require_shape("prices", prices, (len(target_dates), len(quantiles)))
    figure = new_figure(title, "session", with_unit("price", currency), notes)
    figure.add_trace(_candlestick(candles))
    targets = [day.isoformat() for day in target_dates]
    _add_fan(figure, candles, targets, quantiles, prices)
    figure.update_layout(hovermode="x unified", xaxis_rangeslider_visible=False, height=480, margin_r=64)
    days = (date.fromisoformat(day) for day in (*iso_dates(candles.dates), *targets))
    if not any(day.weekday() >= SATURDAY for day in days):
        figure.update_xaxes(rangebreaks=[{"bounds": ["sat", "mon"]}])
    return figure


def quantile_lines(
    horizons: Sequence[int],
    quantiles: Sequence[float],
    values: FloatArray,
    *,
    title: str,
    what: str = "forecast",
    notes: Sequence[str] = (),
) -> "Figure":
    """A forecast without bars: bands between pairs of quantiles, and a line in the middle.

    Args:
        horizons: [H], sessions after the last bar, ascending.
        quantiles: [Q], levels between 0 and 1, ascending.
        values: [H, Q], such as prices or simple returns in per cent.
        title: such as the symbol.
        what: description of the values, such as "return (%)".
        notes: small lines below the title.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    require_shape("values", values, (len(horizons), len(quantiles)))
    figure = new_figure(title, "sessions ahead", what, notes)
    _add_bands(figure, list(horizons), quantiles, values.T, ",.4~f")
    figure.update_layout(hovermode="x unified")
    figure.update_xaxes(tickvals=list(horizons), showgrid=False)
    return figure


def _candlestick(candles: Candles) -> Any:
    """The last year's bars; rising ones are hollow, so that they are readable without colours."""
    return graph_objects().Candlestick(
        x=iso_dates(candles.dates[-SESSIONS_SHOWN:]),
        open=candles.open[-SESSIONS_SHOWN:],
        high=candles.high[-SESSIONS_SHOWN:],
        low=candles.low[-SESSIONS_SHOWN:],
        close=candles.close[-SESSIONS_SHOWN:],
        name="daily bars",
        increasing={"line": {"color": GREEN, "width": 1}, "fillcolor": "#FFFFFF"},
        decreasing={"line": {"color": ORANGE, "width": 1}, "fillcolor": ORANGE},
    )


def _add_fan(
    figure: "Figure",
    candles: Candles,
    targets: list[str],
    quantiles: Sequence[float],
    prices: FloatArray,
) -> None:
    """Add the bands of a forecast, which all start at the last close."""
    dates = [*iso_dates(candles.dates[-1:]), *targets]
    paths = np.vstack([np.full(len(quantiles), candles.close[-1]), prices]).T
    _add_bands(figure, dates, quantiles, paths, ",.2f" if paths.min() >= 1 else ",.4~r")
    for price in prices[-1]:
        figure.add_annotation(
            x=dates[-1],
            y=price,
            text=shown_price(float(price)),
            showarrow=False,
            xanchor="left",
            xshift=6,
            font={"color": BLUE},
        )


def _add_bands(
    figure: "Figure",
    x: list[str] | list[int],
    quantiles: Sequence[float],
    paths: FloatArray,
    number: str,
) -> None:
    """Add bands between pairs of quantiles, outer first, then the line in the middle; paths are [Q, X]."""
    scatter = graph_objects().Scatter
    hovers = [f"{_level(level)}: %{{y:{number}}}<extra></extra>" for level in quantiles]
    for low in range(len(quantiles) // 2):
        high = len(quantiles) - 1 - low
        edge = {"x": x, "mode": "lines", "line": {"width": 0, "color": BLUE}}
        name = f"{100 * quantiles[low]:g} % to {100 * quantiles[high]:g} %"
        figure.add_trace(scatter(y=paths[low], name=name, showlegend=False, hovertemplate=hovers[low], **edge))
        band = {"fill": "tonexty", "fillcolor": BLUE_FILL}
        figure.add_trace(scatter(y=paths[high], name=name, hovertemplate=hovers[high], **edge, **band))
    if len(quantiles) % 2:
        middle = len(quantiles) // 2
        look = {"mode": "lines+markers", "line": {"color": BLUE, "width": 2.5}, "marker": {"size": 6}}
        name = _level(quantiles[middle])
        figure.add_trace(scatter(x=x, y=paths[middle], name=name, hovertemplate=hovers[middle], **look))


def _level(level: float) -> str:
    return "median" if level == 0.5 else f"{100 * level:g} % quantile"  # noqa: PLR2004 - the definition of the median


def closes_lines(
    symbols: Sequence[str],
    sessions: NDArray[np.int32],
    close: FloatArray,
    marked: Mapping[str, Sequence[int]],
    *,
    notes: Sequence[str] = (),
) -> "Figure":
    """One line per stock, scaled to 100 at its first bar, with gaps at missing bars.

    Args:
        symbols: S names.
        sessions: [T] yyyymmdd.
        close: [S, T] raw closes; NaN without a bar.
        marked: sessions with a suspected split, by symbol.
        notes: small lines below the title.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    require_shape("close", close, (len(symbols), len(sessions)))
    scatter = graph_objects().Scatter
    figure = new_figure("Closes, first bar = 100", "session", "close, first bar = 100", notes)
    days = iso_dates(sessions)
    for row, symbol in enumerate(symbols):
        known = np.flatnonzero(np.isfinite(close[row]))
        if not known.size:
            continue
        scaled = 100 * close[row] / close[row, known[0]]
        line = {"color": series_style(row)[0], "width": 1.8}
        figure.add_trace(scatter(x=days, y=scaled, name=symbol, mode="lines", line=line))
        positions = np.flatnonzero(np.isin(sessions, list(marked.get(symbol, ()))))
        if positions.size:
            figure.add_trace(
                scatter(
                    x=[days[position] for position in positions],
                    y=scaled[positions],
                    name=f"{symbol}: split?",
                    mode="markers",
                    marker={"color": ORANGE, "size": 10, "symbol": "x"},
                )
            )
    return figure
