"""Pictures of forecasts and explanations: the same content as the charts of pages, as PNG or SVG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from predictor import charts
from predictor.bars import BarPanel
from predictor.errors import ConfigurationError
from predictor.forecast import Attribution, Forecast
from predictor.replacement import replace_file
from predictor.report.explanation import SHOWN_INPUTS, choose_display_unit
from predictor.report.forecast import NO_PAST, PastForecasts, describe_prices, make_fan_chart
from predictor.report.templates import format_horizon, format_level, format_session
from predictor.skill import format_skill

PICTURE_SUFFIXES: Final = (".png", ".svg")
MAX_PANELS: Final = 20
"""Most symbols of a picture."""


def write_forecast_picture(
    path: Path, bars: BarPanel, forecast: Forecast, symbols: Sequence[str], past: PastForecasts = NO_PAST
) -> None:
    """Write the chart of each symbol's forecast into one picture, atomically.

    Args:
        path: the PNG or SVG file.
        bars: raw bars of the forecast.
        forecast: forecast of a panel with the symbols.
        symbols: symbols with a forecast to show, in order; at least one.
        past: forecasts of the same symbols from fewer bars.

    Raises:
        ConfigurationError: there are too many symbols.
        MissingPackageError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    _check_count(path, symbols)
    panels = [make_fan_chart(bars, forecast, symbol, past.forecasts) or forecast.panel(symbol) for symbol in symbols]
    notes = () if forecast.prices is None else (past.note, describe_prices(bars.select(symbols)))
    _write(path, panels, notes)


def write_reason_picture(path: Path, attribution: Attribution, symbols: Sequence[str]) -> None:
    """Write the bars of each symbol's explanation into one picture, atomically; arguments as for a forecast.

    Raises:
        ConfigurationError: there are too many symbols.
        MissingPackageError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    _check_count(path, symbols)
    _write(path, [_make_reasons_panel(attribution, symbol) for symbol in symbols], attribution.warnings)


def _write(path: Path, panels: Sequence[charts.Panel], notes: Sequence[str]) -> None:
    replace_file(path, charts.draw_picture(panels, path.suffix.lower().removeprefix("."), notes))


def _check_count(path: Path, symbols: Sequence[str]) -> None:
    if len(symbols) > MAX_PANELS:
        raise ConfigurationError(
            f"{path.name} would show {len(symbols)} symbols, but a picture shows at most {MAX_PANELS}; choose some "
            f"with --symbol, or write {path.with_suffix('.html').name}"
        )


def _make_reasons_panel(attribution: Attribution, symbol: str) -> charts.BarsPanel:
    s = attribution.symbols.index(symbol)
    factor, unit = choose_display_unit(attribution.unit)
    values = factor * attribution.per_row[s]
    moved = np.flatnonzero(values)
    names, lengths = charts.select_largest([attribution.row_names[r] for r in moved], values[moved], SHOWN_INPUTS)
    day = f", as of {format_session(attribution.as_of_session)}" if attribution.as_of_session else ""
    return charts.BarsPanel(
        names=names,
        values=lengths,
        unit=unit,
        title=f"{symbol}: what moved the forecast; {attribution.model}@{attribution.version}{day}",
        notes=(
            f"{format_horizon(attribution.horizon)} ahead, {format_level(attribution.quantile)}",
            format_skill(attribution.skill),
        ),
    )
