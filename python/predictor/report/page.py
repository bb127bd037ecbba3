"""Rendering and writing of the report of a forecast and its model, and of single charts as pages and pictures."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final

import numpy as np

from predictor import charts
from predictor.bars import BarPanel
from predictor.card import FITS_EXPLAINED, MEAN_EXPLAINED, CalibrationFacts, Card, ScoreTable, TrainingFacts
from predictor.catalog import ModelInfo
from predictor.errors import ConfigurationError, TooFewBarsError
from predictor.forecast import Attribution, Forecast
from predictor.internals import INTERNALS_NOTE
from predictor.price_paths import PricePaths
from predictor.replacement import replace_file
from predictor.report.explanation import (
    SHOWN_INPUTS,
    ContributionView,
    choose_display_unit,
    find_nearest_to_median,
    is_nearest_to_median,
    make_reason_view,
)
from predictor.report.forecast import (
    NO_PAST,
    ForecastView,
    PastForecasts,
    ReportContent,
    describe_prices,
    make_fan_chart,
    make_forecast_view,
)
from predictor.report.paths import DrawnPaths, PathsView, describe_origin, draw_paths, make_paths_view
from predictor.report.templates import PageBuilder, format_horizon, format_level, format_session
from predictor.skill import format_skill

_MAX_WITH_ALL_REASONS: Final = 4
"""Maximum number of symbols of a page with reasons for every quantile; a larger page would exceed 2 MB."""


def find_least_losses(scores: ScoreTable) -> tuple[float, ...]:
    """[H + 1] lowest loss at each horizon, then the lowest mean."""
    return tuple(map(min, zip(*((*row.pinball, row.mean) for row in scores.rows), strict=True)))


def render_loss_chart(training: TrainingFacts | None, page: PageBuilder) -> str:
    """Chart of losses by epoch; empty without epochs."""
    if training is None or not training.epochs:
        return ""
    epochs = training.epochs
    return page.chart(
        charts.draw_loss_curve(
            [e.epoch for e in epochs],
            [e.train for e in epochs],
            [e.selection for e in epochs],
            (training.best_epoch, training.best_selection),
            unit="pinball loss",
        ),
        "Pinball loss by epoch, on the training and the selection part; numbers in the table",
    )


def render_calibration_chart(coverage: CalibrationFacts | None, page: PageBuilder) -> str:
    """Chart of observed against nominal coverage; empty without calibration facts."""
    if coverage is None:
        return ""
    matrices = [np.asarray(matrix, np.float64) for matrix in (coverage.observed, coverage.lower, coverage.upper)]
    return page.chart(
        charts.draw_calibration(coverage.levels, [format_horizon(h) for h in coverage.horizons], *matrices),
        "Observed minus nominal share of outcomes below each quantile, by horizon; numbers in the table",
    )


def repeat_commands(content: ReportContent) -> dict[str, str]:
    """Commands that repeat the forecast, by interface; `audit` audits the model and then writes this page again."""
    reference = f"{content.info.name}@{content.info.version}"
    folder = f"models/{content.info.name}/{content.info.version}"
    symbols = json.dumps(content.symbols, ensure_ascii=False)
    names = shlex.quote(",".join(content.symbols))
    return {
        "command_line": (
            "quantra serve --models models\n"
            f"quantra predict --server 127.0.0.1:50051 --model {shlex.quote(reference)} --bars bars.csv "
            f"--symbol {names}"
        ),
        "audit": (
            f"quantra audit {shlex.quote(folder)} --bars bars.csv\n"
            f"quantra report {shlex.quote(folder)} --bars bars.csv --symbol {names}"
        ),
        "python": (
            "from quantra import BarPanel, Forecaster\n\n"
            f'forecaster = Forecaster.load("{folder}")\n'
            f'forecast = forecaster.predict(BarPanel.read("bars.csv").select({symbols}))\n'
            f'reasons = forecaster.feature_importance(BarPanel.read("bars.csv").select({symbols}), '
            f"horizon={content.info.horizons[-1]})"
        ),
    }


def write_report(path: Path, content: ReportContent) -> None:
    """Write the report atomically.

    Raises:
        ConfigurationError: a symbol has no forecast or no bars.
        ArtifactError: the model's card is malformed.
        MissingPackageError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    replace_file(path, render_report(content).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolView:
    """A symbol on the page."""

    forecast: ForecastView
    paths: PathsView | None
    without_paths: str
    """Why it has no paths; empty if it has, or if the model does not forecast prices."""
    reasons: tuple[ContributionView, ...]


def render_report(content: ReportContent) -> str:
    """Render the report as HTML; deterministic. Raises like `write_report`, except OSError."""
    content = _reduce(content)
    card = Card.from_json(content.info.card_json)
    page = PageBuilder("predictor.report")
    paths = draw_paths(content.forecast, content.bars, content.symbols)
    return page.render(
        {
            "info": content.info,
            "card": card,
            "symbols": content.symbols,
            "views": [_view_symbol(content, symbol, paths, page) for symbol in content.symbols],
            "paths_origin": describe_origin(paths) if isinstance(paths, PricePaths) else "",
            "warnings": _list_warnings(card, content.forecast),
            "remarks": (
                "" if content.forecast.prices is None else describe_prices(content.bars.select(content.symbols)),
            ),
            "shown_first": find_nearest_to_median(content.attributions),
            "least_losses": () if card.scores is None else find_least_losses(card.scores),
            "mean_explained": MEAN_EXPLAINED,
            "fits_explained": FITS_EXPLAINED,
            "loss": render_loss_chart(card.training, page),
            "calibration": render_calibration_chart(card.calibration, page),
            "audit": content.audit,
            "internals_note": INTERNALS_NOTE,
            "commands": repeat_commands(content),
            "forecast_id": content.forecast.forecast_id,
        }
    )


def _reduce(content: ReportContent) -> ReportContent:
    """For many symbols, keep only the reasons of the median."""
    attributions = content.attributions
    if len(content.symbols) <= _MAX_WITH_ALL_REASONS:
        return content
    return replace(
        content,
        attributions=tuple(
            attribution for attribution in attributions if is_nearest_to_median(attribution, attributions)
        ),
    )


def _view_symbol(content: ReportContent, symbol: str, paths: DrawnPaths, page: PageBuilder) -> SymbolView:
    """Build the view of a symbol; with several symbols, only the median's reasons have details, to limit the size."""
    attributions, is_only = content.attributions, len(content.symbols) == 1
    forecast = make_forecast_view(content.bars, content.forecast, symbol, page)
    paths_view, problem = None, ""
    if isinstance(paths, TooFewBarsError):
        problem = paths.message
    elif paths is not None and symbol in paths.refusals:
        problem = paths.refusals[symbol].message
    elif paths is not None:
        paths_view = make_paths_view(paths, content.bars, symbol, paths.days, page)
    return SymbolView(
        forecast=forecast,
        paths=paths_view,
        without_paths=problem,
        reasons=tuple(
            make_reason_view(
                attribution,
                symbol,
                content.info,
                page,
                in_detail=is_only or is_nearest_to_median(attribution, attributions),
            )
            for attribution in attributions
        ),
    )


_TEMPLATE = "chart.html.j2"


def write_forecast_chart(
    path: Path, bars: BarPanel, forecast: Forecast, symbols: Sequence[str], card: Card, past: PastForecasts = NO_PAST
) -> None:
    """Write a chart and a table of each symbol's forecast, atomically.

    Args:
        path: the HTML file.
        bars: raw bars of the forecast.
        forecast: forecast of a panel with the symbols.
        symbols: symbols to show, in order; at least one.
        card: card of the model.
        past: forecasts of the same symbols from fewer bars.

    Raises:
        ConfigurationError: a symbol has no forecast.
        MissingPackageError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    page = PageBuilder("predictor.report", _TEMPLATE)
    parts = {
        "title": f"Forecast of {', '.join(symbols)}",
        "subtitle": _make_subtitle(forecast.model, forecast.version, forecast.as_of_session),
        "notes": forecast.notes,
        "warnings": _list_warnings(card, forecast),
        "forecasts": [make_forecast_view(bars, forecast, symbol, page, past.forecasts) for symbol in symbols],
        "remarks": (past.note, "" if forecast.prices is None else describe_prices(bars.select(symbols))),
        "reasons": (),
        "internals_note": INTERNALS_NOTE,
    }
    replace_file(path, page.render(parts).encode())


def write_reason_chart(path: Path, info: ModelInfo, attribution: Attribution, symbols: Sequence[str]) -> None:
    """Write an explanation of each symbol's forecast atomically: bars, the meanings of their names, and a table.

    Args:
        path: the HTML file.
        info: the model, with the definitions of the names.
        attribution: attribution of one horizon and quantile.
        symbols: symbols to show, in order; at least one.

    Raises:
        ConfigurationError: the attribution does not have a symbol.
        MissingPackageError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    page = PageBuilder("predictor.report", _TEMPLATE)
    point = f"{format_horizon(attribution.horizon)} ahead, {format_level(attribution.quantile)}"
    parts = {
        "title": f"What moved the forecast of {', '.join(symbols)}",
        "subtitle": f"{_make_subtitle(attribution.model, attribution.version, attribution.as_of_session)} · {point}",
        "notes": (format_skill(attribution.skill),),
        "warnings": attribution.warnings,
        "remarks": (),
        "forecasts": (),
        "reasons": [(symbol, make_reason_view(attribution, symbol, info, page)) for symbol in symbols],
        "internals_note": INTERNALS_NOTE,
    }
    replace_file(path, page.render(parts).encode())


def _list_warnings(card: Card, forecast: Forecast) -> tuple[str, ...]:
    """Warnings of a forecast, and the one on a network that kept its start."""
    return (card.start_note, *forecast.warnings) if card.start_note else forecast.warnings


def _make_subtitle(model: str, version: int, as_of: date | None) -> str:
    """The model and the day of the last bar, if known."""
    return f"Model {model}, version {version}" + (f" · as of {format_session(as_of)}" if as_of else "")


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
    movers = np.flatnonzero(values)
    names, lengths = charts.select_largest([attribution.row_names[r] for r in movers], values[movers], SHOWN_INPUTS)
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
