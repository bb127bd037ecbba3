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
    describe_findings,
    format_band,
    format_gain,
    format_loss,
    format_share,
    format_span,
    select_metrics,
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
            "scores": score_grid(evaluation),
            "by_horizon": build_horizon_table(evaluation),
            "coverage_charts": draw_coverage(evaluation, page),
            "coverage": build_coverage_table(evaluation),
            "winkler": build_winkler_table(evaluation),
            "pit_charts": draw_pit(evaluation, page),
            "pit": build_pit_table(evaluation),
            "seeds": None if evaluation.seeds is None else seed_grid(evaluation, evaluation.seeds),
            "symbols": build_symbol_table(evaluation),
            "band": format_band(evaluation),
            "scale": SCALE,
            "mean_explained": MEAN_EXPLAINED,
            "fits_explained": FITS_EXPLAINED,
        }
    )


# --- losses


def build_loss_table(evaluation: ModelEvaluation) -> ReportTable:
    """Losses of all rows, best first: one column per horizon, then the mean; the last line is the spread over seeds."""
    rows = [[*(h.pinball for h in row.horizons), row.mean] for row in evaluation.rows]
    best = [min(one.value for one in column) for column in zip(*rows, strict=True)]
    lines = [
        TableRow(
            name=row.name,
            cells=tuple(
                _build_interval_cell(one, format_loss, is_best=one.value == b)
                for one, b in zip(losses, best, strict=True)
            ),
            is_model=row.role is ScoreRole.MODEL,
        )
        for row, losses in zip(evaluation.rows, rows, strict=True)
    ]
    return ReportTable(columns=(*_horizons(evaluation), "mean"), lines=(*lines, *_build_seed_rows(evaluation)))


def _build_seed_rows(evaluation: ModelEvaluation) -> tuple[TableRow, ...]:
    if evaluation.seeds is None:
        return ()
    cells = tuple(_build_spread_cell(one, format_loss) for one in (*evaluation.seeds.pinball, evaluation.seeds.mean))
    return (TableRow(name=f"{len(evaluation.seeds.seeds)} seeds, ± sd", cells=cells, is_model=True),)


def draw_losses(evaluation: ModelEvaluation, page: PageBuilder) -> str:
    """Losses with intervals, each divided by the spread of outcomes at its horizon."""
    # The large loss of the single-value forecast would dominate the chart.
    rows = [row for row in evaluation.rows if row.name != NAIVE[evaluation.target.kind]]
    by = [[h.pinball for h in row.horizons] for row in rows]
    scale = SCALE / np.asarray(evaluation.target.spread)[:, None]
    value, lower, upper = (scale * array for array in _columns(by))
    names = [row.name for row in rows]
    figure = charts.interval_rows(names, _horizons(evaluation), value, lower, upper, axis=f"loss / spread, x {SCALE:,}")
    return page.chart(
        figure, "Losses with their intervals, the model and the baselines, by horizon; numbers in the table"
    )


def build_gain_table(evaluation: ModelEvaluation) -> ReportTable:
    """Improvement of the model, and of the mean over seeds, over the best baseline."""
    lines = [_build_gain_row(evaluation.comparison, evaluation.comparison.baseline)]
    if evaluation.seeds is not None:
        row = evaluation.seeds.comparison
        lines.append(_build_gain_row(row, f"{row.baseline}, by {len(evaluation.seeds.seeds)} seeds", is_model=True))
    return ReportTable(columns=(*_horizons(evaluation), "all", "t"), lines=tuple(lines))


def _build_gain_row(row: LossComparison, name: str, *, is_model: bool = False) -> TableRow:
    gains: tuple[TableCell, ...] = tuple(
        _build_interval_cell(one, format_gain) for one in (*row.by_horizon, row.improvement)
    )
    return TableRow(name=name, cells=(*gains, number_cell(row.t, lambda t: f"{t:+.1f}")), is_model=is_model)


def build_confidence_table(evaluation: ModelEvaluation) -> ReportTable | None:
    """The p value of each row in the model confidence set; None if unknown."""
    found = evaluation.confidence_set
    if found is None:
        return None
    models = {row.name for row in evaluation.rows if row.role is ScoreRole.MODEL}
    return ReportTable(
        columns=("p",),
        lines=tuple(
            TableRow(
                name=name,
                cells=(number_cell(p, lambda p: f"{p:.3f}", is_best=p > found.size),),
                is_model=name in models,
            )
            for name, p in found.p_values.items()
        ),
    )


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


def draw_coverage(evaluation: ModelEvaluation, page: PageBuilder) -> tuple[NamedFigure, ...]:
    """Coverage errors of the quantiles, one figure per calibration variant on a common axis."""
    rows = _variants(evaluation.calibration)
    reach = 1.05 * max(_measure_farthest(row, evaluation.levels) for row in rows)
    return tuple(NamedFigure(name=row.name, html=_draw_coverage_of(row, evaluation, reach, page)) for row in rows)


def _variants(made: CalibrationEffect) -> tuple[ModelScores, ...]:
    return (made.before, made.after) if made.adaptive is None else (made.before, made.after, made.adaptive)


def _measure_farthest(row: ModelScores, levels: tuple[float, ...]) -> float:
    _, lower, upper = _below(row)
    return float(np.nanmax(np.abs([lower - levels, upper - levels])))


def _draw_coverage_of(row: ModelScores, evaluation: ModelEvaluation, reach: float, page: PageBuilder) -> str:
    series = [sessions(h) for h in evaluation.target.horizons]
    label = f"{row.name}: observed minus nominal share of outcomes below each quantile; numbers in the table"
    return page.chart(charts.calibration(evaluation.levels, series, *_below(row), reach=reach), label)


def _below(row: ModelScores) -> FloatArray:
    """[3, H, Q] share of outcomes at or below each quantile, lower and upper end."""
    return np.moveaxis(np.array([[(i.value, i.lower, i.upper) for i in h.below] for h in row.horizons]), -1, 0)


def build_coverage_table(evaluation: ModelEvaluation) -> ReportTable:
    """Coverage as numbers: one line per calibration variant and horizon."""
    return ReportTable(
        columns=tuple(f"below {level(one)}" for one in evaluation.levels),
        lines=tuple(
            TableRow(
                name=f"{sessions(h.horizon)}, {row.name}",
                cells=tuple(_build_interval_cell(share, format_share) for share in h.below),
                is_model=row is evaluation.calibration.after,
            )
            for row in _variants(evaluation.calibration)
            for h in row.horizons
        ),
    )


def build_winkler_table(evaluation: ModelEvaluation) -> ReportTable:
    """Coverage of the band and Winkler score before and after, one line per horizon and variant."""
    band = format_band(evaluation)
    return ReportTable(
        columns=("blocks", f"{band}, before", "after", "Winkler, before", "after", "gain"),
        lines=tuple(_build_winkler_rows(evaluation.calibration)),
    )


def _build_winkler_rows(made: CalibrationEffect) -> Iterator[TableRow]:
    for h, before in enumerate(made.before.horizons):
        blocks = made.effective_blocks[h]
        yield _build_winkler_row(sessions(before.horizon), blocks, before, made.after.horizons[h], made.gain[h])
        if made.adaptive is not None and made.adaptive_gain is not None:
            name = f"{sessions(before.horizon)}, adaptive"
            yield _build_winkler_row(name, None, before, made.adaptive.horizons[h], made.adaptive_gain[h])


def _build_winkler_row(
    name: str, blocks: float | None, before: HorizonScores, after: HorizonScores, gain: Interval
) -> TableRow:
    cells = (
        number_cell(blocks, lambda count: f"{count:.0f}"),
        _build_interval_cell(before.band, format_share),
        _build_interval_cell(after.band, format_share),
        _build_interval_cell(before.winkler, format_loss),
        _build_interval_cell(after.winkler, format_loss),
        _build_interval_cell(gain, format_gain),
    )
    return TableRow(name=name, cells=cells)


def draw_pit(evaluation: ModelEvaluation, page: PageBuilder) -> tuple[NamedFigure, ...]:
    """PIT histogram of each horizon."""
    charted: list[NamedFigure] = []
    for one in evaluation.pit:
        name = sessions(one.horizon)
        shares = np.array([(i.value, i.lower, i.upper) for i in one.shares]).T
        label = f"Where outcomes fell between the quantiles, {name} ahead; numbers in the table"
        charted.append(NamedFigure(name=name, html=page.chart(charts.pit_histogram(name, one.edges, *shares), label)))
    return tuple(charted)


def build_pit_table(evaluation: ModelEvaluation) -> ReportTable:
    """PIT histograms as numbers, and the expected shares."""
    first = evaluation.pit[0]
    edges = [f"{100 * edge:g}" for edge in first.edges]
    calibrated = TableRow(name="calibrated", cells=tuple(number_cell(one, format_share) for one in first.expected))
    lines = (
        TableRow(
            name=sessions(one.horizon), cells=tuple(_build_interval_cell(share, format_share) for share in one.shares)
        )
        for one in evaluation.pit
    )
    columns = tuple(f"{a}–{b} %" for a, b in pairwise(edges))  # noqa: RUF001 - a range
    return ReportTable(columns=columns, lines=(calibrated, *lines))


# --- other scores


def score_grid(evaluation: ModelEvaluation) -> ReportTable:
    """One line per row of scores: means over horizons."""
    metrics = select_metrics(evaluation, evaluation.rows)
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


def build_horizon_table(evaluation: ModelEvaluation) -> ReportTable:
    """The model: one line per score, one column per horizon; the last line is the naive forecast's error."""
    ours = next(row for row in evaluation.rows if row.role is ScoreRole.MODEL)
    naive = next(row for row in evaluation.rows if row.name == NAIVE[evaluation.target.kind])
    lines = (
        TableRow(
            name=metric.name,
            cells=tuple(number_cell(metric.of(own), metric.show, note=metric.span(own)) for own in ours.horizons),
        )
        for metric in select_metrics(evaluation, (ours,))
    )
    error = TableRow(
        name=f"MAE {naive.name}", cells=tuple(_build_interval_cell(h.mae, format_loss) for h in naive.horizons)
    )
    return ReportTable(columns=tuple(map(sessions, evaluation.target.horizons)), lines=(*lines, error))


def seed_grid(evaluation: ModelEvaluation, seeds: SeedScores) -> ReportTable:
    """Mean and standard deviation over trainings, one column per horizon."""
    kinds = (
        ("pinball loss", seeds.pinball, format_loss),
        (format_band(evaluation), seeds.band, format_share),
        ("Winkler", seeds.winkler, format_loss),
    )
    return ReportTable(
        columns=tuple(map(sessions, evaluation.target.horizons)),
        lines=tuple(
            TableRow(name=name, cells=tuple(_build_spread_cell(one, show) for one in spreads))
            for name, spreads, show in kinds
        ),
    )


def build_symbol_table(evaluation: ModelEvaluation) -> ReportTable:
    """The model's scores by symbol."""
    return ReportTable(
        columns=("forecasts", "pinball loss", format_band(evaluation), f"below {evaluation.skill.baseline}"),
        lines=tuple(
            TableRow(
                name=row.symbol,
                cells=(
                    number_cell(row.windows, lambda count: f"{count:,.0f}"),
                    _build_interval_cell(row.mean, format_loss),
                    _build_interval_cell(row.band, format_share),
                    _build_interval_cell(row.improvement, format_gain),
                ),
            )
            for row in evaluation.by_symbol
        ),
    )


# --- cells


def _build_interval_cell(estimate: Interval, show: Callable[[float], str], *, is_best: bool = False) -> TableCell:
    """An estimate with its interval below."""
    return number_cell(estimate.value, show, note=format_span(estimate, show), is_best=is_best)


def _build_spread_cell(spread: SeedSpread, show: Callable[[float], str]) -> TableCell:
    """A mean over trainings with its standard deviation below."""
    return number_cell(spread.mean, show, note=f"± {show(spread.sd)}")
