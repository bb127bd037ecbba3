"""HTML page of an evaluation, in one self-contained file."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from predictor import charts
from predictor.arrays import FloatArray
from predictor.card import FITS_EXPLAINED, MEAN_EXPLAINED
from predictor.report import PageBuilder, ReportTable, TableCell, TableRow, number_cell
from predictor.report.templates import level, sessions
from trainers.stock.evaluation.baselines import NAIVE
from trainers.stock.evaluation.calibration import CalibrationEffect
from trainers.stock.evaluation.comparison import LossComparison
from trainers.stock.evaluation.evaluation import ModelEvaluation
from trainers.stock.evaluation.evaluation_set import Interval
from trainers.stock.evaluation.scores import HorizonScores, ModelScores, ScoreRole
from trainers.stock.evaluation.seeds import SeedScores, SeedSpread
from trainers.stock.evaluation.summary import (
    SCALE,
    band_text,
    findings,
    gain_text,
    loss_text,
    metrics_of,
    share_text,
    span_text,
)


def render_evaluation(name: str, evaluation: ModelEvaluation) -> str:
    """The page as deterministic HTML; raises MissingPackageError without the packages of pages."""
    page = PageBuilder("trainers.stock.evaluation")
    return page.render(
        {
            "name": name,
            "evaluation": evaluation,
            "findings": findings(evaluation),
            "losses": loss_grid(evaluation),
            "loss_chart": loss_chart(evaluation, page),
            "gains": gain_grid(evaluation),
            "gain_chart": gain_chart(evaluation, page),
            "scores": score_grid(evaluation),
            "by_horizon": horizon_grid(evaluation),
            "coverage_charts": coverage_charts(evaluation, page),
            "coverage": coverage_grid(evaluation),
            "winkler": winkler_grid(evaluation),
            "pit_charts": pit_charts(evaluation, page),
            "pit": pit_grid(evaluation),
            "seeds": None if evaluation.seeds is None else seed_grid(evaluation, evaluation.seeds),
            "symbols": symbol_grid(evaluation),
            "band": band_text(evaluation),
            "scale": SCALE,
            "mean_explained": MEAN_EXPLAINED,
            "fits_explained": FITS_EXPLAINED,
        }
    )


# --- losses


def loss_grid(evaluation: ModelEvaluation) -> ReportTable:
    """Losses of all rows, best first: one column per horizon, then the mean; the last line is the spread over seeds."""
    rows = [[*(h.pinball for h in row.horizons), row.mean] for row in evaluation.rows]
    best = [min(one.value for one in column) for column in zip(*rows, strict=True)]
    lines = [
        TableRow(
            name=row.name,
            cells=tuple(
                _interval_cell(one, loss_text, is_best=one.value == b) for one, b in zip(losses, best, strict=True)
            ),
            is_model=row.role is ScoreRole.MODEL,
        )
        for row, losses in zip(evaluation.rows, rows, strict=True)
    ]
    return ReportTable(columns=(*_horizons(evaluation), "mean"), lines=(*lines, *_seed_lines(evaluation)))


def _seed_lines(evaluation: ModelEvaluation) -> tuple[TableRow, ...]:
    if evaluation.seeds is None:
        return ()
    cells = tuple(_spread_cell(one, loss_text) for one in (*evaluation.seeds.pinball, evaluation.seeds.mean))
    return (TableRow(name=f"{len(evaluation.seeds.seeds)} seeds, ± sd", cells=cells, is_model=True),)


def loss_chart(evaluation: ModelEvaluation, page: PageBuilder) -> str:
    """Losses with intervals, each divided by the spread of outcomes at its horizon."""
    rows = [row for row in evaluation.rows if row.name != _point(evaluation)]
    by = [[h.pinball for h in row.horizons] for row in rows]
    scale = SCALE / np.asarray(evaluation.target.spread)[:, None]
    value, lower, upper = (scale * array for array in _columns(by))
    names = [row.name for row in rows]
    figure = charts.interval_rows(names, _horizons(evaluation), value, lower, upper, axis=f"loss / spread, x {SCALE:,}")
    return page.chart(
        figure, "Losses with their intervals, the model and the baselines, by horizon; numbers in the table"
    )


def gain_grid(evaluation: ModelEvaluation) -> ReportTable:
    """Improvement of the model over each baseline, and of the mean over seeds over the best baseline."""
    lines = [_gain_line(row, row.baseline) for row in evaluation.comparisons]
    if evaluation.seeds is not None:
        row = evaluation.seeds.comparison
        lines.append(_gain_line(row, f"{row.baseline}, by {len(evaluation.seeds.seeds)} seeds", is_model=True))
    return ReportTable(columns=(*_horizons(evaluation), "all", "t"), lines=tuple(lines))


def _gain_line(row: LossComparison, name: str, *, is_model: bool = False) -> TableRow:
    gains: tuple[TableCell, ...] = tuple(_interval_cell(one, gain_text) for one in (*row.by_horizon, row.improvement))
    return TableRow(name=name, cells=(*gains, number_cell(row.t, lambda t: f"{t:+.1f}")), is_model=is_model)


def gain_chart(evaluation: ModelEvaluation, page: PageBuilder) -> str:
    """The improvements with intervals."""
    rows = [row for row in evaluation.comparisons if row.baseline != _point(evaluation)]
    by = [[*row.by_horizon, row.improvement] for row in rows]
    value, lower, upper = (100 * array for array in _columns(by))
    names = [row.baseline for row in rows]
    series = [*_horizons(evaluation), "all"]
    figure = charts.interval_rows(names, series, value, lower, upper, axis="improvement (%)", zero=True)
    return page.chart(
        figure, "Improvement of the model's loss over each baseline's, with intervals; numbers in the table"
    )


def _point(evaluation: ModelEvaluation) -> str:
    """Name of the single-value forecast, whose large loss would dominate a chart."""
    return NAIVE[evaluation.target.kind]


def _columns(rows: Sequence[Sequence[Interval]]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Values, lower and upper ends, each [columns, rows]."""
    value, lower, upper = np.array([[(i.value, i.lower, i.upper) for i in row] for row in rows]).T
    return value, lower, upper


def _horizons(evaluation: ModelEvaluation) -> tuple[str, ...]:
    return tuple(map(sessions, evaluation.target.horizons))


# --- calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFigure:
    """A figure with its name."""

    name: str
    html: str


def coverage_charts(evaluation: ModelEvaluation, page: PageBuilder) -> tuple[NamedFigure, ...]:
    """Coverage errors of the quantiles, one figure per calibration variant on a common axis."""
    rows = _variants(evaluation.calibration)
    reach = 1.05 * max(_farthest(row, evaluation.levels) for row in rows)
    return tuple(NamedFigure(name=row.name, html=_coverage_chart(row, evaluation, reach, page)) for row in rows)


def _variants(made: CalibrationEffect) -> tuple[ModelScores, ...]:
    return (made.before, made.after) if made.adaptive is None else (made.before, made.after, made.adaptive)


def _farthest(row: ModelScores, levels: tuple[float, ...]) -> float:
    _, lower, upper = _below(row)
    return float(np.nanmax(np.abs([lower - levels, upper - levels])))


def _coverage_chart(row: ModelScores, evaluation: ModelEvaluation, reach: float, page: PageBuilder) -> str:
    series = [sessions(h) for h in evaluation.target.horizons]
    label = f"{row.name}: observed minus nominal share of outcomes below each quantile; numbers in the table"
    return page.chart(charts.calibration(evaluation.levels, series, *_below(row), reach=reach), label)


def _below(row: ModelScores) -> FloatArray:
    """[3, H, Q] share of outcomes at or below each quantile, lower and upper end."""
    return np.moveaxis(np.array([[(i.value, i.lower, i.upper) for i in h.below] for h in row.horizons]), -1, 0)


def coverage_grid(evaluation: ModelEvaluation) -> ReportTable:
    """Coverage as numbers: one line per calibration variant and horizon."""
    return ReportTable(
        columns=tuple(f"below {level(one)}" for one in evaluation.levels),
        lines=tuple(
            TableRow(
                name=f"{sessions(h.horizon)}, {row.name}",
                cells=tuple(_interval_cell(share, share_text) for share in h.below),
                is_model=row is evaluation.calibration.after,
            )
            for row in _variants(evaluation.calibration)
            for h in row.horizons
        ),
    )


def winkler_grid(evaluation: ModelEvaluation) -> ReportTable:
    """Coverage of the band and Winkler score before and after, one line per horizon and variant."""
    band = band_text(evaluation)
    return ReportTable(
        columns=("blocks", f"{band}, before", "after", "Winkler, before", "after", "gain"),
        lines=tuple(_winkler_lines(evaluation.calibration)),
    )


def _winkler_lines(made: CalibrationEffect) -> Iterator[TableRow]:
    for h, before in enumerate(made.before.horizons):
        blocks = made.effective_blocks[h]
        yield _winkler_line(sessions(before.horizon), blocks, before, made.after.horizons[h], made.gain[h])
        if made.adaptive is not None and made.adaptive_gain is not None:
            name = f"{sessions(before.horizon)}, adaptive"
            yield _winkler_line(name, None, before, made.adaptive.horizons[h], made.adaptive_gain[h])


def _winkler_line(
    name: str, blocks: float | None, before: HorizonScores, after: HorizonScores, gain: Interval
) -> TableRow:
    cells = (
        number_cell(blocks, lambda count: f"{count:.0f}"),
        _interval_cell(before.band, share_text),
        _interval_cell(after.band, share_text),
        _interval_cell(before.winkler, loss_text),
        _interval_cell(after.winkler, loss_text),
        _interval_cell(gain, gain_text),
    )
    return TableRow(name=name, cells=cells)


def pit_charts(evaluation: ModelEvaluation, page: PageBuilder) -> tuple[NamedFigure, ...]:
    """PIT histogram of each horizon."""
    charted: list[NamedFigure] = []
    for one in evaluation.pit:
        name = sessions(one.horizon)
        shares = np.array([(i.value, i.lower, i.upper) for i in one.shares]).T
        label = f"Where outcomes fell between the quantiles, {name} ahead; numbers in the table"
        charted.append(NamedFigure(name=name, html=page.chart(charts.pit_histogram(name, one.edges, *shares), label)))
    return tuple(charted)


def pit_grid(evaluation: ModelEvaluation) -> ReportTable:
    """PIT histograms as numbers, and the expected shares."""
    first = evaluation.pit[0]
    edges = [f"{100 * edge:g}" for edge in first.edges]
    calibrated = TableRow(name="calibrated", cells=tuple(number_cell(one, share_text) for one in first.expected))
    lines = (
        TableRow(name=sessions(one.horizon), cells=tuple(_interval_cell(share, share_text) for share in one.shares))
        for one in evaluation.pit
    )
    columns = tuple(f"{a}–{b} %" for a, b in pairwise(edges))  # noqa: RUF001 - a range
    return ReportTable(columns=columns, lines=(calibrated, *lines))


# --- other scores


def score_grid(evaluation: ModelEvaluation) -> ReportTable:
    """One line per row of scores: means over horizons."""
    metrics = metrics_of(evaluation, evaluation.rows)
    return ReportTable(
        columns=tuple(metric.name for metric in metrics),
        lines=tuple(
            TableRow(
                name=row.name,
                cells=tuple(number_cell(metric.mean(evaluation, row), metric.show) for metric in metrics),
                is_model=row.role is ScoreRole.MODEL,
            )
            for row in evaluation.rows
        ),
    )


def horizon_grid(evaluation: ModelEvaluation) -> ReportTable:
    """The model: one line per score, one column per horizon; the last line is the naive forecast's error."""
    ours = next(row for row in evaluation.rows if row.role is ScoreRole.MODEL)
    naive = next(row for row in evaluation.rows if row.name == NAIVE[evaluation.target.kind])
    lines = (
        TableRow(
            name=metric.name,
            cells=tuple(number_cell(metric.of(own), metric.show, note=metric.span(own)) for own in ours.horizons),
        )
        for metric in metrics_of(evaluation, (ours,))
    )
    error = TableRow(name=f"MAE {naive.name}", cells=tuple(_interval_cell(h.mae, loss_text) for h in naive.horizons))
    return ReportTable(columns=tuple(map(sessions, evaluation.target.horizons)), lines=(*lines, error))


def seed_grid(evaluation: ModelEvaluation, seeds: SeedScores) -> ReportTable:
    """Mean and standard deviation over trainings, one column per horizon."""
    kinds = (
        ("pinball loss", seeds.pinball, loss_text),
        (band_text(evaluation), seeds.band, share_text),
        ("Winkler", seeds.winkler, loss_text),
    )
    return ReportTable(
        columns=tuple(map(sessions, evaluation.target.horizons)),
        lines=tuple(
            TableRow(name=name, cells=tuple(_spread_cell(one, show) for one in spreads))
            for name, spreads, show in kinds
        ),
    )


def symbol_grid(evaluation: ModelEvaluation) -> ReportTable:
    """The model's scores by symbol."""
    return ReportTable(
        columns=("forecasts", "pinball loss", band_text(evaluation), f"below {evaluation.skill.baseline}"),
        lines=tuple(
            TableRow(
                name=row.symbol,
                cells=(
                    number_cell(row.windows, lambda count: f"{count:,.0f}"),
                    _interval_cell(row.mean, loss_text),
                    _interval_cell(row.band, share_text),
                    _interval_cell(row.improvement, gain_text),
                ),
            )
            for row in evaluation.by_symbol
        ),
    )


# --- cells


def _interval_cell(estimate: Interval, show: Callable[[float], str], *, is_best: bool = False) -> TableCell:
    """An estimate with its interval below."""
    return number_cell(estimate.value, show, note=span_text(estimate, show), is_best=is_best)


def _spread_cell(spread: SeedSpread, show: Callable[[float], str]) -> TableCell:
    """A mean over trainings with its standard deviation below."""
    return number_cell(spread.mean, show, note=f"± {show(spread.sd)}")
