"""Pinball losses of the model and the baselines, alone and against each other."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from predictor import charts
from predictor.report import Cell, Drawing, Grid, Line
from predictor.report.texts import sessions
from trainers.stock.evaluation.baselines import NAIVE
from trainers.stock.evaluation.comparison import Comparison
from trainers.stock.evaluation.evaluation import Evaluation
from trainers.stock.evaluation.page.cells import interval_cell, number_cell, spread_cell
from trainers.stock.evaluation.resampling import Interval
from trainers.stock.evaluation.scores import ModelScores, Role
from trainers.stock.evaluation.words import SCALE, gain_text, loss_text

FloatArray = NDArray[np.float64]


def loss_grid(found: Evaluation) -> Grid:
    """Every row of scores, best first: one column a horizon, then the mean; the seeds' spread is the last line."""
    rows = [_losses(row) for row in found.rows]
    best = [min(one.value for one in column) for column in zip(*rows, strict=True)]
    lines = [
        Line(
            name=row.name,
            cells=tuple(
                interval_cell(one, loss_text, is_best=one.value == b) for one, b in zip(losses, best, strict=True)
            ),
            is_model=row.role is Role.MODEL,
        )
        for row, losses in zip(found.rows, rows, strict=True)
    ]
    return Grid(columns=(*_horizons(found), "mean"), lines=(*lines, *_seed_lines(found)))


def _losses(row: ModelScores) -> list[Interval]:
    return [*(h.pinball for h in row.horizons), row.mean]


def _seed_lines(found: Evaluation) -> tuple[Line, ...]:
    if found.seeds is None:
        return ()
    cells = tuple(spread_cell(one, loss_text) for one in (*found.seeds.pinball, found.seeds.mean))
    return (Line(name=f"{len(found.seeds.seeds)} seeds, ± sd", cells=cells, is_model=True),)


def loss_chart(found: Evaluation, drawing: Drawing) -> str:
    """Losses with their intervals; each is divided by how far outcomes spread at its horizon, so that they compare."""
    rows = [row for row in found.rows if row.name != _point(found)]
    by = [[h.pinball for h in row.horizons] for row in rows]
    scale = SCALE / np.asarray(found.target.spread)[:, None]
    value, lower, upper = (scale * array for array in _columns(by))
    names = [row.name for row in rows]
    figure = charts.interval_rows(names, _horizons(found), value, lower, upper, axis=f"loss / spread, x {SCALE:,}")
    return drawing.html(figure)


def gain_grid(found: Evaluation) -> Grid:
    """How far the model's loss lies below each baseline's, and that of the seeds' mean below the best one's."""
    lines = [_gain_line(row, row.baseline) for row in found.comparisons]
    if found.seeds is not None:
        row = found.seeds.comparison
        lines.append(_gain_line(row, f"{row.baseline}, by {len(found.seeds.seeds)} seeds", is_model=True))
    return Grid(columns=(*_horizons(found), "all", "t"), lines=tuple(lines))


def _gain_line(row: Comparison, name: str, *, is_model: bool = False) -> Line:
    gains: tuple[Cell, ...] = tuple(interval_cell(one, gain_text) for one in (*row.by_horizon, row.improvement))
    return Line(name=name, cells=(*gains, number_cell(row.t, lambda t: f"{t:+.1f}")), is_model=is_model)


def gain_chart(found: Evaluation, drawing: Drawing) -> str:
    """The same gains with their intervals."""
    rows = [row for row in found.comparisons if row.baseline != _point(found)]
    by = [[*row.by_horizon, row.improvement] for row in rows]
    value, lower, upper = (100 * array for array in _columns(by))
    names = [row.baseline for row in rows]
    series = [*_horizons(found), "all"]
    return drawing.html(charts.interval_rows(names, series, value, lower, upper, axis="less loss (%)", zero=True))


def _point(found: Evaluation) -> str:
    """Name of the forecast of a single value: so far off that a chart of it would show nothing else."""
    return NAIVE[found.target.kind]


def _columns(rows: Sequence[Sequence[Interval]]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Values, lower and upper ends, each [columns, rows]."""
    value, lower, upper = np.array([[(i.value, i.lower, i.upper) for i in row] for row in rows]).T
    return value, lower, upper


def _horizons(found: Evaluation) -> tuple[str, ...]:
    return tuple(map(sessions, found.target.horizons))
