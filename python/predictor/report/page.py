"""The page: every part put into its place, and written whole."""

from dataclasses import dataclass
from pathlib import Path

from predictor.card import FITS_EXPLAINED, MEAN_EXPLAINED, Card
from predictor.internals import INTERNALS_NOTE
from predictor.replacement import replace_file
from predictor.report.content import ReportContent
from predictor.report.drawing import Drawing
from predictor.report.fan import ForecastView, forecast_view
from predictor.report.questions import ask_again
from predictor.report.reasons import ReasonView, nearest_to_median, reason_view
from predictor.report.scores import calibration_chart, loss_chart, score_table
from predictor.report.templates import page_template


def write_report(path: Path, content: ReportContent) -> None:
    """Write the report, whole or not at all.

    Raises:
        ConfigurationError: a symbol has no forecast, or no bars.
        ArtifactError: the model's card holds something else than it must.
        MissingPackageError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    replace_file(path, render_report(content).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolView:
    """What the page shows of one symbol."""

    forecast: ForecastView
    reasons: tuple[ReasonView, ...]


def render_report(content: ReportContent) -> str:
    """The report as HTML text; raises as `write_report`, but for OSError. The same content gives the same text."""
    card = Card.from_json(content.info.card_json)
    drawing = Drawing()
    return page_template("predictor.report", "page").render(
        info=content.info,
        card=card,
        symbols=content.symbols,
        views=[_symbol_view(content, symbol, drawing) for symbol in content.symbols],
        shown_first=nearest_to_median(content.attributions),
        scores=None if card.scores is None else score_table(card.scores),
        mean_explained=MEAN_EXPLAINED,
        fits_explained=FITS_EXPLAINED,
        loss=loss_chart(card.training, drawing),
        calibration=calibration_chart(card.calibration, drawing),
        audit=content.audit,
        internals_note=INTERNALS_NOTE,
        ask=ask_again(content),
        forecast_id=content.forecast.forecast_id,
        plotly_js=drawing.library(),
    )


def _symbol_view(content: ReportContent, symbol: str, drawing: Drawing) -> SymbolView:
    return SymbolView(
        forecast=forecast_view(content, symbol, drawing),
        reasons=tuple(reason_view(found, symbol, drawing) for found in content.attributions),
    )
