"""Figures from plain arrays: the forecast fan, importance, loss curves, calibration.

Every function returns a plotly Figure and changes nothing. plotly is imported when a figure is made (extra `report`).
Colours are those of Okabe and Ito, which people with any kind of colour blindness can tell apart; where colour alone
would carry a meaning, the sign, a symbol or a line style carries it too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.errors import ConfigurationError, MissingPackageError, shown_date

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SESSIONS_SHOWN = 252
"""Daily bars before the forecast, one trading year."""

_BLUE, _ORANGE, _GREEN, _GREY, _INK = "#0072B2", "#D55E00", "#009E73", "#6B7280", "#1F2937"
_SERIES = (_BLUE, _ORANGE, _GREEN, "#CC79A7", "#E69F00", "#56B4E9")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
_SIDE_BY_SIDE = 0.14
_BLUE_FILL = "rgba(0, 114, 178, 0.18)"
_DIVERGING = ((0.0, _ORANGE), (0.5, "#FFFFFF"), (1.0, _BLUE))
_COLORBAR = {
    "orientation": "h",
    "thickness": 10,
    "len": 0.5,
    "x": 1,
    "xanchor": "right",
    "y": 1.01,
    "yanchor": "bottom",
}
_AXIS = {
    "gridcolor": "#E5E7EB",
    "linecolor": "#9CA3AF",
    "showline": True,
    "ticks": "outside",
    "tickcolor": "#9CA3AF",
    "zeroline": False,
    "automargin": True,
    "title": {"standoff": 12},
}
_THEME = {
    "font": {
        "family": "Inter, 'Segoe UI', system-ui, -apple-system, Helvetica, Arial, sans-serif",
        "size": 13,
        "color": _INK,
    },
    "title": {"font": {"size": 17}, "x": 0, "xref": "paper", "xanchor": "left", "y": 0.97, "yanchor": "top"},
    "height": 420,
    "paper_bgcolor": "#FFFFFF",
    "plot_bgcolor": "#FFFFFF",
    "margin": {"l": 64, "r": 24, "t": 88, "b": 56},
    "hoverlabel": {"bgcolor": "#FFFFFF", "bordercolor": "#9CA3AF", "font": {"color": _INK}},
    "legend": {"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom", "traceorder": "normal"},
    "xaxis": _AXIS,
    "yaxis": _AXIS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candles:
    """Daily bars of one symbol, oldest first, as traded (not adjusted).

    Attributes:
        dates: int32 [T], yyyymmdd.
        open: [T], in the currency of the price; high, low and close alike.
        high: [T].
        low: [T].
        close: [T].
    """

    dates: NDArray[np.int32]
    open: NDArray[np.float64]
    high: NDArray[np.float64]
    low: NDArray[np.float64]
    close: NDArray[np.float64]


def fan(
    candles: Candles,
    target_dates: NDArray[np.int32],
    quantiles: Sequence[float],
    prices: NDArray[np.float64],
    *,
    title: str,
    currency: str = "",
) -> "Figure":
    """The last year's candles and the forecast fan, which opens at the last close.

    Args:
        candles: at least one bar; the last SESSIONS_SHOWN are drawn.
        target_dates: int32 [H], yyyymmdd of the target sessions, ascending.
        quantiles: [Q], levels between 0 and 1, ascending. Pairs from the outside in become shaded bands; the level
            in the middle of an odd number becomes the line.
        prices: [H, Q], forecast prices.
        title: such as the symbol.
        currency: unit of the prices, such as "USD".

    Raises:
        ConfigurationError: no bar, or shapes that do not fit.
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
        _require_shape(name, column, bars)
    _require_shape("prices", prices, (len(target_dates), len(quantiles)))
    figure = _figure(title, "session", _with_unit("price", currency))
    figure.add_trace(_candlestick(candles))
    _add_fan(figure, candles, _iso(target_dates), quantiles, prices)
    figure.update_layout(hovermode="x unified", xaxis_rangeslider_visible=False, height=480, margin_r=64)
    figure.update_xaxes(rangebreaks=[{"bounds": ["sat", "mon"]}])
    return figure


def quantile_lines(
    horizons: Sequence[int],
    quantiles: Sequence[float],
    values: NDArray[np.float64],
    *,
    title: str,
    unit: str = "",
) -> "Figure":
    """A forecast alone, without the bars before it: bands between pairs of quantiles, and the line in the middle.

    Args:
        horizons: [H], sessions after the last bar, ascending.
        quantiles: [Q], levels between 0 and 1, ascending.
        values: [H, Q], prices or the target's own values.
        title: such as the symbol.
        unit: of the values, such as "USD".

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    _require_shape("values", values, (len(horizons), len(quantiles)))
    figure = _figure(title, "sessions ahead", _with_unit("forecast", unit))
    _add_bands(figure, list(horizons), quantiles, values.T, ",.4~f")
    figure.update_layout(hovermode="x unified")
    figure.update_xaxes(tickvals=list(horizons), showgrid=False)
    return figure


def importance_bars(names: Sequence[str], values: NDArray[np.float64], unit: str, *, top: int = 15) -> "Figure":
    """Signed importance as horizontal bars, the largest on top, and all that is left as one bar "others".

    Args:
        names: [F], the features.
        values: [F], signed, in `unit`.
        unit: such as "basis points of return".
        top: how many features get a bar of their own.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    _require_shape("values", values, (len(names),))
    order = np.argsort(-np.abs(values), kind="stable")
    labels = [_plain(names[int(row)]) for row in order[:top]]
    heights = values[order[:top]].tolist()
    if order.size > top:
        labels.append(f"others ({order.size - top})")
        heights.append(float(values[order[top:]].sum()))
    figure = _figure("Feature importance", _with_unit("contribution", unit), "")
    figure.add_trace(
        _graph_objects().Bar(
            x=heights,
            y=labels,
            orientation="h",
            marker={"color": [_BLUE if height >= 0 else _ORANGE for height in heights]},
            hovertemplate=f"%{{y}}: %{{x:+.4g}} {unit}<extra></extra>",
        )
    )
    figure.update_layout(height=150 + 24 * len(labels), showlegend=False, bargap=0.35, margin_t=56)
    figure.update_xaxes(zeroline=True, zerolinecolor=_GREY)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure


def importance_heatmap(
    dates: NDArray[np.int32],
    names: Sequence[str],
    values: NDArray[np.float64],
    unit: str,
) -> "Figure":
    """Signed importance of each feature on each date: blue raises the forecast, orange lowers it, white is 0.

    Args:
        dates: int32 [T], yyyymmdd.
        names: [F], the features, drawn from top to bottom.
        values: [T, F], signed, in `unit`; NaN stays empty.
        unit: such as "basis points of return".

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    _require_shape("values", values, (len(dates), len(names)))
    reach = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    figure = _figure("Feature importance over time", "session", "")
    figure.add_trace(
        _graph_objects().Heatmap(
            x=_iso(dates),
            y=list(map(_plain, names)),
            z=values.T,
            zmin=-reach,
            zmid=0.0,
            zmax=reach,
            colorscale=_DIVERGING,
            colorbar=_COLORBAR | {"title": {"text": unit, "side": "top"}},
            hovertemplate=f"%{{y}}, %{{x}}: %{{z:+.4g}} {unit}<extra></extra>",
        )
    )
    figure.update_layout(height=190 + 22 * len(names), margin_t=100)
    figure.update_xaxes(type="category", nticks=8, showgrid=False)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure


def loss_curve(
    epochs: Sequence[int],
    train: Sequence[float],
    selection: Sequence[float],
    best_epoch: int,
    *,
    unit: str = "pinball loss",
) -> "Figure":
    """Loss per epoch on the training and the selection split, and the epoch whose weights were kept.

    Args:
        epochs: [E].
        train: [E], mean loss on the training split.
        selection: [E], mean loss on the selection split.
        best_epoch: one of the epochs.
        unit: what the loss is.

    Raises:
        ConfigurationError: shapes that do not fit, or a best epoch that is not among the epochs.
        MissingPackageError: plotly is not installed.
    """
    _require_shape("train", np.asarray(train), (len(epochs),))
    _require_shape("selection", np.asarray(selection), (len(epochs),))
    if best_epoch not in epochs:
        raise ConfigurationError(f"the best epoch, {best_epoch}, is not among the epochs {list(epochs)}")
    scatter = _graph_objects().Scatter
    figure = _figure("Loss", "epoch", unit)
    for name, losses, line in (
        ("train", train, {"color": _GREY, "width": 2, "dash": "dot"}),
        ("selection", selection, {"color": _BLUE, "width": 2.5}),
    ):
        hover = f"{name}: %{{y:.5g}} {unit}<extra></extra>"
        figure.add_trace(
            scatter(x=list(epochs), y=list(losses), name=name, mode="lines", line=line, hovertemplate=hover)
        )
    figure.add_trace(
        scatter(
            x=[best_epoch],
            y=[selection[epochs.index(best_epoch)]],
            name=f"kept: epoch {best_epoch}",
            mode="markers",
            marker={"color": _ORANGE, "size": 11, "symbol": "star"},
            hoverinfo="skip",
        )
    )
    figure.update_layout(hovermode="x unified")
    return figure


def calibration(
    levels: Sequence[float],
    series: Sequence[str],
    observed: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
) -> "Figure":
    """How far observed coverage lies from nominal; a calibrated forecast lies on the line at 0.

    The series stand side by side at each level, so that their error bars do not hide each other.

    Args:
        levels: [L], nominal levels between 0 and 1.
        series: [S], one name a series, such as "5 sessions".
        observed: [S, L], the share of outcomes at or below each level's forecast.
        lower: [S, L], lower end of the confidence interval of `observed`.
        upper: [S, L], upper end.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    for name, values in (("observed", observed), ("lower", lower), ("upper", upper)):
        _require_shape(name, values, (len(series), len(levels)))
    figure = _figure("Calibration", "nominal level", "observed minus nominal (points)")
    figure.add_hline(y=0, line={"color": _GREY, "width": 1.5, "dash": "dash"})
    nominal = np.asarray(levels)
    for row, name in enumerate(series):
        places = np.arange(nominal.size, dtype=np.float64) + (row - (len(series) - 1) / 2) * _SIDE_BY_SIDE
        figure.add_trace(_coverage(name, row, places, nominal, (observed[row], lower[row], upper[row])))
    labels = [f"{100 * level:g} %" for level in levels]
    figure.update_xaxes(
        range=[-0.5, nominal.size - 0.5], tickvals=list(range(nominal.size)), ticktext=labels, showgrid=False
    )
    return figure


def _coverage(
    name: str,
    row: int,
    places: NDArray[np.float64],
    levels: NDArray[np.float64],
    interval: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
) -> Any:
    """One series of `calibration`: its points, and their confidence intervals as error bars."""
    observed, lower, upper = interval
    return _graph_objects().Scatter(
        x=places,
        y=100 * (observed - levels),
        name=name,
        mode="markers",
        marker={"symbol": _SYMBOLS[row % len(_SYMBOLS)], "size": 10, "color": _SERIES[row % len(_SERIES)]},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": 100 * (upper - observed),
            "arrayminus": 100 * (observed - lower),
            "width": 5,
        },
        customdata=np.stack([levels, observed, lower, upper], axis=1),
        hovertemplate=f"{name}: nominal %{{customdata[0]:.1%}}, observed %{{customdata[1]:.1%}} "
        "(%{customdata[2]:.1%} to %{customdata[3]:.1%})<extra></extra>",
    )


def _candlestick(candles: Candles) -> Any:
    """The last year's bars; a rising one is hollow, so that colour is not needed to read it."""
    return _graph_objects().Candlestick(
        x=_iso(candles.dates[-SESSIONS_SHOWN:]),
        open=candles.open[-SESSIONS_SHOWN:],
        high=candles.high[-SESSIONS_SHOWN:],
        low=candles.low[-SESSIONS_SHOWN:],
        close=candles.close[-SESSIONS_SHOWN:],
        name="daily bars",
        increasing={"line": {"color": _GREEN, "width": 1}, "fillcolor": "#FFFFFF"},
        decreasing={"line": {"color": _ORANGE, "width": 1}, "fillcolor": _ORANGE},
    )


def _add_fan(
    figure: "Figure",
    candles: Candles,
    targets: list[str],
    quantiles: Sequence[float],
    prices: NDArray[np.float64],
) -> None:
    """The bands of a forecast, which all begin at the last close."""
    dates = [*_iso(candles.dates[-1:]), *targets]
    paths = np.vstack([np.full(len(quantiles), candles.close[-1]), prices]).T
    _add_bands(figure, dates, quantiles, paths, ",.2f")
    for price in prices[-1]:
        figure.add_annotation(
            x=dates[-1], y=price, text=f"{price:,.2f}", showarrow=False, xanchor="left", xshift=6, font={"color": _BLUE}
        )


def _add_bands(
    figure: "Figure",
    x: list[str] | list[int],
    quantiles: Sequence[float],
    paths: NDArray[np.float64],
    number: str,
) -> None:
    """Bands between pairs of quantiles from the outside in, then the line in the middle; paths are [Q, X]."""
    scatter = _graph_objects().Scatter
    hovers = [f"{_level(level)}: %{{y:{number}}}<extra></extra>" for level in quantiles]
    for low in range(len(quantiles) // 2):
        high = len(quantiles) - 1 - low
        edge = {"x": x, "mode": "lines", "line": {"width": 0, "color": _BLUE}}
        name = f"{100 * quantiles[low]:g} % to {100 * quantiles[high]:g} %"
        figure.add_trace(scatter(y=paths[low], name=name, showlegend=False, hovertemplate=hovers[low], **edge))
        band = {"fill": "tonexty", "fillcolor": _BLUE_FILL}
        figure.add_trace(scatter(y=paths[high], name=name, hovertemplate=hovers[high], **edge, **band))
    if len(quantiles) % 2:
        middle = len(quantiles) // 2
        look = {"mode": "lines+markers", "line": {"color": _BLUE, "width": 2.5}, "marker": {"size": 6}}
        name = _level(quantiles[middle])
        figure.add_trace(scatter(x=x, y=paths[middle], name=name, hovertemplate=hovers[middle], **look))


def _level(level: float) -> str:
    """A quantile for people."""
    return "median" if level == 0.5 else f"{100 * level:g} % quantile"  # noqa: PLR2004 - the definition of the median


def _plain(text: str) -> str:
    """A text without markup; plotly would take `<b>` or a link in it for one."""
    return escape(text, quote=False)


def _figure(title: str, x_title: str, y_title: str) -> "Figure":
    """An empty figure in the common theme."""
    graph_objects = _graph_objects()
    return graph_objects.Figure(
        layout={
            "template": graph_objects.layout.Template(layout=_THEME),
            "title": {"text": _plain(title)},
            "xaxis": {"title": {"text": x_title}},
            "yaxis": {"title": {"text": y_title}},
        },
    )


def _graph_objects() -> Any:
    """The figure classes of plotly, which carry no types."""
    try:
        from plotly import graph_objects
    except ModuleNotFoundError as error:
        raise MissingPackageError.of("plotly", "report", "a chart") from error
    return graph_objects


def _iso(dates: NDArray[np.int32]) -> list[str]:
    """Dates yyyymmdd as 2024-03-28."""
    return [shown_date(day) for day in dates.tolist()]


def _with_unit(name: str, unit: str) -> str:
    """An axis title."""
    return f"{name} ({unit})" if unit else name


def _require_shape(name: str, values: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Refuse arrays that do not belong together."""
    if values.shape != shape:
        raise ConfigurationError(f"{name} has shape {list(values.shape)}, but {list(shape)} is needed to fit the rest")
