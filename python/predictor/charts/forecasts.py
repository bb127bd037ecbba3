"""Figures of forecasts and bars: the fan, quantiles by horizon, and closes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.charts.theme import (
    BLUE,
    BLUE_FILL,
    GREEN,
    GREY,
    GREY_FILL,
    ORANGE,
    append_unit,
    choose_series_style,
    escape_tags,
    format_dates,
    import_graph_objects,
    make_figure,
    require_shape,
)
from predictor.dates import to_date
from predictor.errors import ConfigurationError, format_price

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


SESSIONS_SHOWN: Final = 60
"""Sessions shown before the forecast, after the oldest bar."""
FORECAST_SHARE: Final = 1 / 3
"""Share of the chart's width for the forecast, at any longest horizon."""
LABEL_SHARE: Final = 0.05
"""Height of a label, as a share of the chart's height."""
_DATES_NAMED: Final = 3
"""Number of dates below the bars; more do not fit on a phone."""
_MIN_LABEL_DISTANCE: Final = 0.6
"""Least distance of two dates below a forecast, as a share of its longest horizon."""


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

    def last(self, count: int) -> "Candles":
        """The last `count` bars."""
        return Candles(**{field.name: getattr(self, field.name)[-count:] for field in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PastFan:
    """A forecast from the bars until an earlier session, to compare with the bars since.

    Attributes:
        start: session of the last bar that it knew.
        close: close of that session.
        target_dates: [H] target sessions, ascending.
        prices: [H, Q], forecast prices.
    """

    start: date
    close: float
    target_dates: tuple[date, ...]
    prices: FloatArray

    def until(self, last: date) -> "PastFan":
        """The part with target sessions up to `last`."""
        count = sum(target <= last for target in self.target_dates)
        return replace(self, target_dates=self.target_dates[:count], prices=self.prices[:count])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FanChart:
    """The content of a chart of bars and forecast prices, for any drawing library.

    Attributes:
        candles: at least one bar; the last SESSIONS_SHOWN + 1 are drawn.
        target_dates: [H] target sessions, ascending.
        quantiles: [Q], levels between 0 and 1, ascending. Outer to inner pairs are shaded bands; the middle level of
            an odd number is a line.
        prices: [H, Q], forecast prices.
        past: earlier forecasts of the same quantiles; those of sessions that are not drawn, or of which no target
            session has come, are left out.
        title: such as the symbol.
        currency: unit of the prices, such as "USD".
        notes: small lines below the title.

    Raises:
        ConfigurationError: the candles are empty, or shapes do not match.
    """

    candles: Candles
    target_dates: Sequence[date]
    quantiles: Sequence[float]
    prices: FloatArray
    past: Sequence[PastFan] = ()
    title: str
    currency: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        candles = self.candles
        if not candles.dates.size:
            raise ConfigurationError("a fan needs at least one bar to start from; pass the bars of the forecast")
        if not self.target_dates:
            raise ConfigurationError("a fan needs at least one target date; pass those of the forecast")
        for name in ("open", "high", "low", "close"):
            require_shape(name, getattr(candles, name), candles.dates.shape)
        require_shape("prices", self.prices, (len(self.target_dates), len(self.quantiles)))
        shown_candles = candles.last(SESSIONS_SHOWN + 1)
        first, last = (to_date(int(day)) for day in (shown_candles.dates[0], shown_candles.dates[-1]))
        past = (fan.until(last) for fan in self.past if fan.start >= first)
        object.__setattr__(self, "candles", shown_candles)
        object.__setattr__(self, "past", tuple(fan for fan in past if fan.target_dates))

    @property
    def days(self) -> list[str]:
        """Sessions on the axis of the bars, also those that only a past forecast names."""
        named = {day.isoformat() for fan in self.past for day in (fan.start, *fan.target_dates)}
        return sorted(named.union(self.bar_days))

    @property
    def bar_days(self) -> list[str]:
        """Session of each bar."""
        return format_dates(self.candles.dates)

    @property
    def last_session(self) -> date:
        """Session of the last bar."""
        return to_date(int(self.candles.dates[-1]))

    @property
    def days_named(self) -> list[str]:
        """Sessions to write below the bars: evenly spaced, without the last, which is close to the forecast's."""
        days = self.days
        places = np.linspace(0, len(days) - 1, _DATES_NAMED + 1)[:-1].round().astype(int).tolist()
        return [days[position] for position in sorted(set(places))]

    @property
    def targets_named(self) -> list[date]:
        """Target sessions to write below the forecast: the last, and others that are far enough from each other."""
        named = [self.target_dates[-1]]
        min_days = _MIN_LABEL_DISTANCE * (named[0] - self.last_session).days
        for day in reversed(self.target_dates):
            if (named[-1] - day).days >= min_days:
                named.append(day)
        return named

    @property
    def labelled_prices(self) -> list[float]:
        """Prices to write at the end of the forecast: the middle quantile, and the outer ones if they leave room."""
        shown = (self.candles.low, self.candles.high, self.prices, *(fan.prices for fan in self.past))
        room = LABEL_SHARE * float(max(part.max() for part in shown) - min(part.min() for part in shown))
        last = self.prices[-1].tolist()
        middle = last[len(last) // 2]
        prices = dict.fromkeys((last[0], middle, last[-1]))
        return [price for price in prices if price == middle or abs(price - middle) >= room]


def name_band(quantiles: Sequence[float], low: int = 0) -> str:
    """Name of the band between a quantile and its counterpart, such as `10 % to 90 %`."""
    return f"{100 * quantiles[low]:g} % to {100 * quantiles[len(quantiles) - 1 - low]:g} %"


def draw_fan(chart: FanChart) -> "Figure":
    """The last bars with past forecasts, followed by the forecast, which starts at the last close.

    Raises:
        MissingPackageError: plotly is not installed.
    """
    figure = make_figure(chart.title, "session", append_unit("price", chart.currency), chart.notes)
    figure.add_trace(_draw_candles(chart.candles))
    for number, past in enumerate(chart.past):
        _add_bands(figure, _make_past_bands(past, chart.quantiles, is_first=not number))
    _add_fan(figure, chart)
    _place_axes(figure, chart)
    figure.update_layout(hovermode="x unified", height=480, margin_r=64)
    return figure


def _place_axes(figure: "Figure", chart: FanChart) -> None:
    """Give the bars and the forecast an axis each, side by side, with the same prices."""
    split, days = 1 - FORECAST_SHARE, chart.days
    figure.update_xaxes(
        type="category",
        categoryorder="array",
        categoryarray=days,
        range=[-0.7, len(days) - 0.5],
        domain=[0, split],
        tickvals=chart.days_named,
        ticktext=list(map(_break_day, chart.days_named)),
        rangeslider={"visible": False},
    )
    ends = chart.last_session.isoformat(), chart.target_dates[-1].isoformat()
    targets = [day.isoformat() for day in chart.targets_named]
    figure.update_layout(
        xaxis2={
            "type": "date",
            "range": ends,
            "domain": [split, 1],
            "anchor": "y",
            "title": {"text": "forecast"},
            "tickvals": targets,
            "ticktext": list(map(_break_day, targets)),
        }
    )
    figure.add_shape(
        type="line", xref="paper", yref="paper", x0=split, x1=split, y0=0, y1=1, line={"color": GREY, "dash": "dot"}
    )


def _break_day(day: str) -> str:
    return f"{day[5:]}<br>{day[:4]}"


def draw_quantile_lines(
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
    figure = make_figure(title, "sessions ahead", what, notes)
    _add_bands(figure, _Bands(x=list(horizons), quantiles=quantiles, paths=values.T, number=",.4~f"))
    figure.update_layout(hovermode="x unified")
    figure.update_xaxes(tickvals=list(horizons), showgrid=False)
    return figure


def _draw_candles(candles: Candles) -> Any:
    """Daily bars; rising ones are hollow, so that they are readable without colours."""
    return import_graph_objects().Candlestick(
        x=format_dates(candles.dates),
        open=candles.open,
        high=candles.high,
        low=candles.low,
        close=candles.close,
        name="daily bars",
        increasing={"line": {"color": GREEN, "width": 1}, "fillcolor": "#FFFFFF"},
        decreasing={"line": {"color": ORANGE, "width": 1}, "fillcolor": ORANGE},
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Bands:
    """Quantiles along an axis: bands between pairs of them, and a line in the middle.

    Attributes:
        x: [X].
        quantiles: [Q] levels.
        paths: [Q, X].
        number: format of the values.
        colour: colour of the line.
        fill: colour of the bands.
        axis: axis of the figure.
        before: begins each name on hover.
        legend: only name in the legend; None to name every band and the line.
    """

    x: Sequence[str] | Sequence[int]
    quantiles: Sequence[float]
    paths: FloatArray
    number: str
    colour: str = BLUE
    fill: str = BLUE_FILL
    axis: str = "x"
    before: str = ""
    legend: str | None = None


def _choose_price_format(prices: FloatArray) -> str:
    return ",.2f" if prices.min() >= 1 else ",.4~r"


def _prepend_close(close: float, prices: FloatArray) -> FloatArray:
    """Paths [Q, 1 + H] that all start at a close."""
    return np.vstack([np.full(prices.shape[1], close), prices]).T


def _make_past_bands(past: PastFan, quantiles: Sequence[float], *, is_first: bool) -> _Bands:
    """Grey bands on the axis of the bars; only the first is in the legend, for all."""
    return _Bands(
        x=[day.isoformat() for day in (past.start, *past.target_dates)],
        quantiles=quantiles,
        paths=_prepend_close(past.close, past.prices),
        number=_choose_price_format(past.prices),
        colour=GREY,
        fill=GREY_FILL,
        before=f"as of {past.start}, ",
        legend="past forecasts" if is_first else "",
    )


def _add_fan(figure: "Figure", chart: FanChart) -> None:
    """Add the bands of the forecast, which all start at the last close, and the prices at their end."""
    dates = [day.isoformat() for day in (chart.last_session, *chart.target_dates)]
    _add_bands(
        figure,
        _Bands(
            x=dates,
            quantiles=chart.quantiles,
            paths=_prepend_close(float(chart.candles.close[-1]), chart.prices),
            number=_choose_price_format(chart.prices),
            axis="x2",
        ),
    )
    for price in chart.labelled_prices:
        figure.add_annotation(
            x=dates[-1],
            y=price,
            xref="x2",
            text=format_price(price),
            showarrow=False,
            xanchor="left",
            xshift=6,
            font={"color": BLUE},
        )


def _add_bands(figure: "Figure", bands: _Bands) -> None:
    """Add bands between pairs of quantiles, outer first, then the line in the middle."""
    scatter, levels = import_graph_objects().Scatter, bands.quantiles
    hovers = [f"{bands.before}{name_level(level)}: %{{y:{bands.number}}}<extra></extra>" for level in levels]
    common = {"x": bands.x, "xaxis": bands.axis}
    for low in range(len(levels) // 2):
        high = len(levels) - 1 - low
        edge = {**common, "mode": "lines", "line": {"width": 0, "color": bands.colour}}
        named = {"name": name_band(levels, low)}
        if bands.legend is not None:
            named = {"name": bands.legend, "showlegend": bool(bands.legend) and low == 0}
        figure.add_trace(
            scatter(y=bands.paths[low], hovertemplate=hovers[low], **edge, **named | {"showlegend": False})
        )
        band = {"fill": "tonexty", "fillcolor": bands.fill}
        figure.add_trace(scatter(y=bands.paths[high], hovertemplate=hovers[high], **edge, **band, **named))
    if len(levels) % 2:
        middle = len(levels) // 2
        look = {"mode": "lines+markers", "line": {"color": bands.colour, "width": 2.5}, "marker": {"size": 6}}
        if bands.legend is not None:
            look = {"mode": "lines", "line": {"color": bands.colour, "width": 1.5, "dash": "dot"}, "showlegend": False}
        name = name_level(levels[middle])
        figure.add_trace(scatter(y=bands.paths[middle], name=name, hovertemplate=hovers[middle], **common, **look))


def name_level(level: float) -> str:
    """Name of a quantile: `median`, or such as `10 % quantile`."""
    return "median" if level == 0.5 else f"{100 * level:g} % quantile"  # noqa: PLR2004 - the definition of the median


def draw_close_lines(
    symbols: Sequence[str],
    sessions: NDArray[np.int32],
    close: FloatArray,
    marked: Mapping[str, Sequence[int]],
) -> "Figure":
    """One line per stock, scaled to 100 at its first bar, with gaps at missing bars.

    Args:
        symbols: S names.
        sessions: [T] yyyymmdd.
        close: [S, T] raw closes; NaN without a bar.
        marked: sessions with a suspected split, by symbol.

    Raises:
        ConfigurationError: shapes that do not fit.
        MissingPackageError: plotly is not installed.
    """
    require_shape("close", close, (len(symbols), len(sessions)))
    scatter = import_graph_objects().Scatter
    figure = make_figure("Closes, first bar = 100", "session", "close, first bar = 100")
    days = format_dates(sessions)
    for row, symbol in enumerate(symbols):
        bars = np.flatnonzero(np.isfinite(close[row]))
        if not bars.size:
            continue
        scaled = 100 * close[row] / close[row, bars[0]]
        line = {"color": choose_series_style(row)[0], "width": 1.8}
        figure.add_trace(scatter(x=days, y=scaled, name=escape_tags(symbol), mode="lines", line=line))
        positions = np.flatnonzero(np.isin(sessions, list(marked.get(symbol, ()))))
        if positions.size:
            figure.add_trace(
                scatter(
                    x=[days[position] for position in positions],
                    y=scaled[positions],
                    name=f"{escape_tags(symbol)}: split?",
                    mode="markers",
                    marker={"color": ORANGE, "size": 10, "symbol": "x"},
                )
            )
    return figure
