"""The pages of `predict --plot` and `explain --plot`: what was asked for, and nothing of the model's history."""

from collections.abc import Sequence
from pathlib import Path

from predictor.bars import BarPanel
from predictor.catalog import ModelInfo
from predictor.forecast import Attribution, Forecast
from predictor.internals import INTERNALS_NOTE
from predictor.replacement import replace_file
from predictor.report.forecast import forecast_view
from predictor.report.reasons import reason_view
from predictor.report.templates import PageBuilder, iso, level, sessions
from predictor.skill import line_of

_TEMPLATE = "chart.html.j2"


def write_forecast_chart(path: Path, bars: BarPanel, forecast: Forecast, symbols: Sequence[str]) -> None:
    """Write the forecast of each symbol, whole or not at all: chart and table.

    Args:
        path: the HTML file.
        bars: that the forecast was made from, raw.
        forecast: of a panel that holds the symbols.
        symbols: whose forecasts are shown, in this order; at least one.

    Raises:
        ConfigurationError: a symbol has no forecast.
        MissingPackageError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    page = PageBuilder("predictor.report", _TEMPLATE)
    parts = {
        "title": f"Forecast of {', '.join(symbols)}",
        "subtitle": _subtitle(forecast.model, forecast.version, forecast.as_of_session),
        "notes": forecast.notes,
        "forecasts": [forecast_view(bars, forecast, symbol, page) for symbol in symbols],
        "reasons": (),
        "internals_note": INTERNALS_NOTE,
    }
    replace_file(path, page.render(parts).encode())


def write_reason_chart(path: Path, info: ModelInfo, attribution: Attribution, symbols: Sequence[str]) -> None:
    """Write what moved one forecast of each symbol, whole or not at all: bars, what their names mean, and a table.

    Args:
        path: the HTML file.
        info: the model, whose definitions explain the names.
        attribution: of one horizon and quantile.
        symbols: that it explains, in this order; at least one.

    Raises:
        ConfigurationError: the attribution has no such symbol.
        MissingPackageError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    page = PageBuilder("predictor.report", _TEMPLATE)
    asked = f"{sessions(attribution.horizon)} ahead, {level(attribution.quantile)}"
    parts = {
        "title": f"What moved the forecast of {', '.join(symbols)}",
        "subtitle": f"{_subtitle(attribution.model, attribution.version, attribution.as_of_session)} · {asked}",
        "notes": (*attribution.warnings, line_of(attribution.skill)),
        "forecasts": (),
        "reasons": [(symbol, reason_view(attribution, symbol, info, page)) for symbol in symbols],
        "internals_note": INTERNALS_NOTE,
    }
    replace_file(path, page.render(parts).encode())


def _subtitle(model: str, version: int, as_of: int) -> str:
    """The model and the day of the last bar, yyyymmdd; 0 where it is unknown."""
    return f"Model {model}, version {version}" + (f" · as of {iso(as_of)}" if as_of else "")
