"""Content of a report, and its forecast: the fan at the price, and the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final

import numpy as np

from predictor import charts
from predictor.audit_record import AuditRecord
from predictor.bars import BarPanel
from predictor.card import Card
from predictor.catalog import ModelInfo
from predictor.dates import to_date_number
from predictor.errors import ConfigurationError, format_names
from predictor.forecast import LOG_RETURN, Attribution, Forecast
from predictor.report.templates import PageBuilder, format_horizon, format_level, format_session

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """Content of a report.

    Attributes:
        info: the model; its card may hold data, splits, scores, calibration and skill.
        bars: raw bars of the forecast.
        forecast: forecast of a panel with the symbols.
        attributions: one per horizon and quantile, with cells for a heat map; may be empty.
        symbols: symbols to show, in order; at least one.
        audit: the artifact's audit record, if it exists.
    """

    info: ModelInfo
    bars: BarPanel
    forecast: Forecast
    attributions: tuple[Attribution, ...]
    symbols: tuple[str, ...]
    audit: AuditRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastForecasts:
    """Forecasts from the bars until earlier sessions, which a chart shows with the bars since then.

    Attributes:
        forecasts: of the same model, horizons and quantiles; a symbol may be missing or without numbers.
        note: what a reader must know of them; empty for nothing.
    """

    forecasts: tuple[Forecast, ...] = ()
    note: str = ""


NO_PAST: Final = PastForecasts()


def draw_forecast(bars: BarPanel, forecast: Forecast, symbol: str, past: Sequence[Forecast] = ()) -> "Figure":
    """The fan at the price after the last bars, with past forecasts; without prices, only the quantiles.

    Raises:
        BarsError: the panel does not have the symbol.
        MissingPackageError: plotly is not installed.
    """
    chart = make_fan_chart(bars, forecast, symbol, past)
    return forecast.plot(symbol) if chart is None else charts.draw_fan(chart)


def make_fan_chart(
    bars: BarPanel, forecast: Forecast, symbol: str, past: Sequence[Forecast] = ()
) -> charts.FanChart | None:
    """What the chart of a symbol shows; None if the model does not forecast prices.

    Raises:
        BarsError: the panel does not have the symbol.
    """
    symbol_bars = bars.select([symbol])
    s = forecast.symbols.index(symbol)
    if forecast.prices is None or not forecast.target_sessions:
        return None
    fans = (_make_past_fan(shown_forecast, symbol) for shown_forecast in past)
    present = symbol_bars.present[0]
    return charts.FanChart(
        candles=charts.Candles(
            dates=symbol_bars.sessions[present],
            open=symbol_bars.open[0, present],
            high=symbol_bars.high[0, present],
            low=symbol_bars.low[0, present],
            close=symbol_bars.close[0, present],
        ),
        target_dates=forecast.target_sessions,
        quantiles=forecast.quantiles,
        prices=forecast.prices[s],
        past=tuple(fan for fan in fans if fan is not None),
        title=forecast.heading(s),
        currency=bars.currency,
        notes=forecast.notes,
    )


def _make_past_fan(forecast: Forecast, symbol: str) -> charts.PastFan | None:
    """A past forecast of a symbol; None if it was not possible."""
    if forecast.prices is None or forecast.anchor_price is None or forecast.as_of_session is None:
        return None
    s = forecast.symbols.index(symbol)
    if symbol in forecast.refusals:
        return None
    return charts.PastFan(
        start=forecast.as_of_session,
        close=float(forecast.anchor_price[s]),
        target_dates=forecast.target_sessions,
        prices=forecast.prices[s],
    )


def select_past_forecasts(forecasts: Sequence[Forecast], day: date, card: Card) -> PastForecasts:
    """Forecasts of which a target session has come by `day`, and whether the training used what followed them."""
    past = tuple(forecast for forecast in forecasts if forecast.target_sessions and forecast.target_sessions[0] <= day)
    days = [to_date_number(shown_forecast.as_of_session) for shown_forecast in past if shown_forecast.as_of_session]
    return PastForecasts(forecasts=past, note=_note_past(days, card) if days else "")


def _note_past(days: Sequence[int], card: Card) -> str:
    as_of = format_names([format_session(day) for day in days])
    text = f"Grey: forecasts of this model as of {as_of}, from the bars until then."
    seen_to = card.seen_to
    if not seen_to:
        return f"{text} The model's card does not say whether its training used what followed."
    seen_days = [format_session(day) for day in days if day < seen_to]
    if not seen_days:
        return f"{text} The training used bars until {format_session(seen_to)}, so what followed was new to the model."
    return (
        f"{text} The training used bars until {format_session(seen_to)}, perhaps also what followed "
        f"{format_names(seen_days)}: those forecasts may look better than new ones."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastCell:
    """One quantile of one horizon; `price` is None if the model does not forecast prices."""

    value: float
    """A simple return, or the value of another target."""
    price: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastLine:
    """One horizon of the forecast table; `session` is empty if unknown, score and rank are None without a ranking."""

    horizon: int
    session: str
    cells: tuple[ForecastCell, ...]
    score: float | None
    rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastView:
    """The forecast of one symbol on the page."""

    symbol: str
    chart: str
    sessions_shown: int
    """Sessions of bars on the chart after the oldest; 0 if it has no bars."""
    as_of: str
    anchor: float | None
    currency: str
    is_return: bool
    lag: int
    counted_from: str
    levels: tuple[str, ...]
    lines: tuple[ForecastLine, ...]
    ranked: int
    """Number of symbols ranked together; 0 without a ranking."""


def make_forecast_view(
    bars: BarPanel, forecast: Forecast, symbol: str, page: PageBuilder, past: Sequence[Forecast] = ()
) -> ForecastView:
    """Build the view of one symbol's forecast.

    Args:
        bars: raw bars of the forecast.
        forecast: forecast of a panel with the symbol.
        symbol: the symbol.
        page: page for its chart.
        past: past forecasts to draw on the chart.

    Raises:
        ConfigurationError: the symbol has no forecast.
    """
    if symbol not in forecast.symbols:
        raise ConfigurationError(f"the forecast has no symbol {symbol!r}; it has {list(forecast.symbols)}")
    s = forecast.symbols.index(symbol)
    if not np.isfinite(forecast.values[s]).all():
        refusal = forecast.refusals.get(symbol)
        reason = "; ".join(forecast.warnings) if refusal is None else refusal.message
        raise ConfigurationError(f"{symbol} has no forecast to report: {reason}")
    chart = make_fan_chart(bars, forecast, symbol, past)
    figure = forecast.plot(symbol) if chart is None else charts.draw_fan(chart)
    return ForecastView(
        symbol=symbol,
        chart=page.chart(figure, _label(forecast, s)),
        sessions_shown=0 if chart is None else len(chart.candles.dates) - 1,
        as_of=format_session(forecast.as_of_session),
        anchor=None if forecast.anchor_price is None else float(forecast.anchor_price[s]),
        currency=bars.currency,
        is_return=forecast.target_kind == LOG_RETURN,
        lag=forecast.lag,
        counted_from=forecast.counted_from,
        levels=tuple(map(format_level, forecast.quantiles)),
        lines=tuple(_make_forecast_line(forecast, s, h) for h in range(len(forecast.horizons))),
        ranked=0 if forecast.ranks is None else int(np.count_nonzero(forecast.ranks[:, 0])),
    )


def describe_prices(bars: BarPanel) -> str:
    """Which prices a chart of these bars shows, as far as their columns tell; empty if they do not."""
    if bars.adj_close is not None:
        differs = bars.present & (np.abs(bars.adj_close / bars.close - 1) > _SAME_PRICE)
        return "The bars have an adjusted close; the prices shown are the close." if differs.any() else ""
    if bars.split_ratio is not None and np.any(bars.split_ratio[bars.split_ratio > 0] != 1):
        return "Prices are raw, as traded: the bars record splits separately, so a split shows as a jump."
    return ""


_SAME_PRICE: Final = 1e-6
"""Relative difference of an adjusted close that is only rounded."""


def _label(forecast: Forecast, s: int) -> str:
    """Describe the chart for screen readers; the table below it has all numbers."""
    horizons = " and ".join(
        dict.fromkeys((format_horizon(forecast.horizons[0]), format_horizon(forecast.horizons[-1])))
    )
    kind = "prices" if forecast.prices is not None else "values"
    return f"Forecast {kind} of {forecast.symbols[s]} for {horizons} ahead, with their quantiles; numbers in the table"


def _make_forecast_line(forecast: Forecast, s: int, h: int) -> ForecastLine:
    prices: list[float | None] = [None] * len(forecast.quantiles)
    if forecast.prices is not None:
        prices = forecast.prices[s, h].tolist()
    values: list[float] = (
        forecast.values[s, h] if forecast.returns is None else np.expm1(forecast.returns[s, h])
    ).tolist()
    return ForecastLine(
        horizon=forecast.horizons[h],
        session=format_session(forecast.target_sessions[h] if forecast.target_sessions else None),
        cells=tuple(ForecastCell(value=v, price=p) for v, p in zip(values, prices, strict=True)),
        score=None if forecast.scores is None else float(forecast.scores[s, h]),
        rank=None if forecast.ranks is None else int(forecast.ranks[s, h]),
    )
