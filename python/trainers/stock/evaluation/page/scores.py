"""Every other score: of all rows, of the model by horizon, by seed and by symbol."""

from predictor.report import Grid, Line
from predictor.report.texts import sessions
from trainers.stock.evaluation.baselines import NAIVE
from trainers.stock.evaluation.evaluation import Evaluation
from trainers.stock.evaluation.metrics import metrics_of
from trainers.stock.evaluation.page.cells import interval_cell, mean_cell, metric_cell, number_cell, spread_cell
from trainers.stock.evaluation.scores import Role
from trainers.stock.evaluation.seeds import Seeds
from trainers.stock.evaluation.words import band_text, gain_text, loss_text, share_text


def score_grid(found: Evaluation) -> Grid:
    """One line a row of scores: means over horizons."""
    metrics = metrics_of(found, found.rows)
    return Grid(
        columns=tuple(metric.name for metric in metrics),
        lines=tuple(
            Line(
                name=row.name,
                cells=tuple(mean_cell(metric, metric.mean(found, row)) for metric in metrics),
                is_model=row.role is Role.MODEL,
            )
            for row in found.rows
        ),
    )


def horizon_grid(found: Evaluation) -> Grid:
    """The model alone: one line a score, one column a horizon; the naive forecast's error stands last."""
    ours = next(row for row in found.rows if row.role is Role.MODEL)
    naive = next(row for row in found.rows if row.name == NAIVE[found.target.kind])
    lines = (
        Line(name=metric.name, cells=tuple(metric_cell(metric, own) for own in ours.horizons))
        for metric in metrics_of(found, (ours,))
    )
    error = Line(name=f"MAE {naive.name}", cells=tuple(interval_cell(h.mae, loss_text) for h in naive.horizons))
    return Grid(columns=tuple(map(sessions, found.target.horizons)), lines=(*lines, error))


def seed_grid(found: Evaluation, seeds: Seeds) -> Grid:
    """Mean and standard deviation over trainings, one column a horizon."""
    kinds = (
        ("pinball loss", seeds.pinball, loss_text),
        (band_text(found), seeds.band, share_text),
        ("Winkler", seeds.winkler, loss_text),
    )
    return Grid(
        columns=tuple(map(sessions, found.target.horizons)),
        lines=tuple(
            Line(name=name, cells=tuple(spread_cell(one, show) for one in spreads)) for name, spreads, show in kinds
        ),
    )


def symbol_grid(found: Evaluation) -> Grid:
    """The model symbol by symbol."""
    return Grid(
        columns=("forecasts", "pinball loss", band_text(found), f"below {found.skill.baseline}"),
        lines=tuple(
            Line(
                name=row.symbol,
                cells=(
                    number_cell(row.windows, lambda count: f"{count:,.0f}"),
                    interval_cell(row.mean, loss_text),
                    interval_cell(row.band, share_text),
                    interval_cell(row.improvement, gain_text),
                ),
            )
            for row in found.by_symbol
        ),
    )
