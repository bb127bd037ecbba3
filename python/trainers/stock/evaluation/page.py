"""HTML page of an evaluation, in one self-contained file."""

from collections.abc import Iterator, Sequence

import numpy as np

from predictor import charts
from predictor.arrays import FloatArray
from predictor.card import FITS_EXPLAINED, MEAN_EXPLAINED
from predictor.report import PageBuilder
from predictor.report.templates import format_horizon
from trainers.stock.evaluation.baselines import NAIVE
from trainers.stock.evaluation.evaluation import ModelEvaluation
from trainers.stock.evaluation.evaluation_set import Interval
from trainers.stock.evaluation.report import (
    SCALE,
    build_confidence_table,
    build_coverage_table,
    build_gain_table,
    build_horizon_table,
    build_loss_table,
    build_pit_table,
    build_score_table,
    build_seed_table,
    build_symbol_table,
    build_winkler_table,
    describe_findings,
    format_band,
    list_variants,
    name_horizons,
)


def render_evaluation(name: str, evaluation: ModelEvaluation) -> str:
    """The page as deterministic HTML; raises MissingPackageError without the packages of pages."""
    page = PageBuilder("trainers.stock.evaluation")
    return page.render(
        {
            "name": name,
            "evaluation": evaluation,
            "findings": describe_findings(evaluation),
            "losses": build_loss_table(evaluation),
            "loss_chart": draw_losses(evaluation, page),
            "gains": build_gain_table(evaluation),
            "confidence_set": build_confidence_table(evaluation),
            "scores": build_score_table(evaluation),
            "by_horizon": build_horizon_table(evaluation),
            "coverage_charts": list(draw_coverage(evaluation, page)),
            "coverage": build_coverage_table(evaluation),
            "winkler": build_winkler_table(evaluation),
            "pit_charts": list(draw_pit(evaluation, page)),
            "pit": build_pit_table(evaluation),
            "seeds": build_seed_table(evaluation),
            "symbols": build_symbol_table(evaluation),
            "band": format_band(evaluation),
            "scale": SCALE,
            "mean_explained": MEAN_EXPLAINED,
            "fits_explained": FITS_EXPLAINED,
        }
    )


def draw_losses(evaluation: ModelEvaluation, page: PageBuilder) -> str:
    """Losses with intervals, each divided by the spread of outcomes at its horizon."""
    # The large loss of the single-value forecast would dominate the chart.
    rows = [row for row in evaluation.rows if row.name != NAIVE[evaluation.target.kind]]
    scale = SCALE / np.asarray(evaluation.target.spread)
    losses = np.moveaxis(scale * _split_intervals([[h.pinball for h in row.horizons] for row in rows]), 1, 2)
    names = [row.name for row in rows]
    figure = charts.draw_interval_rows(names, name_horizons(evaluation), *losses, axis=f"loss / spread, x {SCALE:,}")
    return page.chart(
        figure, "Losses with their intervals, the model and the baselines, by horizon; numbers in the table"
    )


def draw_coverage(evaluation: ModelEvaluation, page: PageBuilder) -> Iterator[tuple[str, str]]:
    """Coverage errors of the quantiles: the name and the chart of each calibration variant, on a common axis."""
    rows, levels = list_variants(evaluation), evaluation.levels
    shares = [_split_intervals([h.below for h in row.horizons]) for row in rows]
    reach = 1.05 * max(float(np.nanmax(np.abs(below[1:] - levels))) for below in shares)
    for row, below in zip(rows, shares, strict=True):
        label = f"{row.name}: observed minus nominal share of outcomes below each quantile; numbers in the table"
        yield (
            row.name,
            page.chart(charts.draw_calibration(levels, name_horizons(evaluation), *below, reach=reach), label),
        )


def draw_pit(evaluation: ModelEvaluation, page: PageBuilder) -> Iterator[tuple[str, str]]:
    """PIT histograms: the name and the chart of each horizon."""
    for histogram in evaluation.pit:
        name = format_horizon(histogram.horizon)
        label = f"Where outcomes fell between the quantiles, {name} ahead; numbers in the table"
        yield (
            name,
            page.chart(
                charts.draw_pit_histogram(name, histogram.edges, *_split_intervals([histogram.shares])[:, 0]), label
            ),
        )


def _split_intervals(rows: Sequence[Sequence[Interval]]) -> FloatArray:
    """[3, rows, columns] values, lower and upper ends."""
    return np.moveaxis(np.array([[(i.value, i.lower, i.upper) for i in row] for row in rows]), -1, 0)
