"""The page: every part put into its place, and written whole."""

from dataclasses import dataclass
from pathlib import Path

from predictor.card import FITS_EXPLAINED, MEAN_EXPLAINED
from predictor.replacement import replace_file
from predictor.report import Drawing, Grid, page_template
from trainers.stock.evaluation.evaluation import Evaluation
from trainers.stock.evaluation.page import calibration, losses, scores
from trainers.stock.evaluation.page.calibration import Chart
from trainers.stock.evaluation.words import SCALE, band_text


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationView:
    """An evaluation as the page shows it."""

    losses: Grid
    loss_chart: str
    gains: Grid
    gain_chart: str
    scores: Grid
    by_horizon: Grid
    coverage_charts: tuple[Chart, ...]
    coverage: Grid
    winkler: Grid
    pit_charts: tuple[Chart, ...]
    pit: Grid
    seeds: Grid | None
    symbols: Grid


def write_evaluation(path: Path, name: str, found: Evaluation) -> None:
    """Write the page, whole or not at all, in place of an older one.

    Args:
        path: the HTML file.
        name: what was evaluated, such as `demo/1`.
        found: the evaluation.

    Raises:
        MissingPackageError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    replace_file(path, render_evaluation(name, found).encode())


def render_evaluation(name: str, found: Evaluation) -> str:
    """The page as HTML text; the same evaluation gives the same text."""
    drawing = Drawing()
    return page_template("trainers.stock.evaluation.page", "page").render(
        name=name,
        found=found,
        view=_view(found, drawing),
        band=band_text(found),
        scale=SCALE,
        mean_explained=MEAN_EXPLAINED,
        fits_explained=FITS_EXPLAINED,
        plotly_js=drawing.library(),
    )


def _view(found: Evaluation, drawing: Drawing) -> EvaluationView:
    return EvaluationView(
        losses=losses.loss_grid(found),
        loss_chart=losses.loss_chart(found, drawing),
        gains=losses.gain_grid(found),
        gain_chart=losses.gain_chart(found, drawing),
        scores=scores.score_grid(found),
        by_horizon=scores.horizon_grid(found),
        coverage_charts=calibration.coverage_charts(found, drawing),
        coverage=calibration.coverage_grid(found),
        winkler=calibration.winkler_grid(found),
        pit_charts=calibration.pit_charts(found, drawing),
        pit=calibration.pit_grid(found),
        seeds=None if found.seeds is None else scores.seed_grid(found, found.seeds),
        symbols=scores.symbol_grid(found),
    )
