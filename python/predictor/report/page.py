"""The page: every part put into its place, and written whole."""

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from predictor.card import MEAN_EXPLAINED, Card
from predictor.errors import MissingPackageError
from predictor.replacement import replace_file
from predictor.report import texts
from predictor.report.content import ReportContent
from predictor.report.drawing import Drawing
from predictor.report.fan import forecast_view
from predictor.report.questions import ask_again
from predictor.report.reasons import nearest_to_median, reason_view
from predictor.report.scores import calibration_chart, loss_chart, score_table

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATE: Final = "page.html.j2"


def write_report(path: Path, content: ReportContent) -> None:
    """Write the report, whole or not at all.

    Raises:
        ConfigurationError: the symbol has no forecast, or no bars.
        ArtifactError: the model's card holds something else than it must.
        MissingPackageError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    replace_file(path, render_report(content).encode())


def render_report(content: ReportContent) -> str:
    """The report as HTML text; raises as `write_report`, but for OSError. The same content gives the same text."""
    card = Card.from_json(content.info.card_json)
    drawing = Drawing()
    return _template().render(
        info=content.info,
        card=card,
        symbol=content.symbol,
        forecast=forecast_view(content, drawing),
        reasons=[reason_view(found, content.symbol, drawing) for found in content.attributions],
        shown_first=nearest_to_median(content.attributions),
        scores=None if card.scores is None else score_table(card.scores),
        mean_explained=MEAN_EXPLAINED,
        loss=loss_chart(card.training, drawing),
        calibration=calibration_chart(card.calibration, drawing),
        ask=ask_again(content),
        forecast_id=content.forecast.forecast_id,
        plotly_js=drawing.library(),
    )


def _template() -> "Template":
    try:
        from jinja2 import Environment, StrictUndefined
    except ModuleNotFoundError as error:
        raise MissingPackageError.of("jinja2", "report", "a report") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "iso": texts.iso,
        "level": texts.level,
        "sessions": texts.sessions,
        "percent": texts.percent,
        "signed": texts.signed,
        "signed_percent": texts.signed_percent,
    }
    return environment.from_string(resources.files("predictor.report").joinpath(TEMPLATE).read_text("utf-8"))
