"""The model behind the forecast: scores beside the baselines, losses, calibration."""

from dataclasses import dataclass

import numpy as np

from predictor import charts
from predictor.card import CalibrationFacts, Scores, Training
from predictor.report.drawing import Drawing
from predictor.report.texts import sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCell:
    """One loss, and whether it is the least of its column."""

    value: float
    is_best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreLine:
    """One row of the table of scores: a cell a horizon, then the mean."""

    name: str
    is_model: bool
    cells: tuple[ScoreCell, ...]
    coverage: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """Scores of the model and the baselines on the same outcomes."""

    unit: str
    split: str
    horizons: tuple[int, ...]
    band: tuple[float, ...]
    lines: tuple[ScoreLine, ...]


def score_table(scores: Scores) -> ScoreTable:
    """Scores with the least of each column marked."""
    losses = [(*row.pinball, row.mean) for row in scores.rows]
    best = [min(column) for column in zip(*losses, strict=True)]
    return ScoreTable(
        unit=scores.unit,
        split=scores.split,
        horizons=scores.horizons,
        band=scores.band,
        lines=tuple(
            ScoreLine(
                name=row.name,
                is_model=row.is_model,
                cells=tuple(ScoreCell(value=v, is_best=v == b) for v, b in zip(values, best, strict=True)),
                coverage=row.band_coverage,
            )
            for row, values in zip(scores.rows, losses, strict=True)
        ),
    )


def loss_chart(training: Training | None, drawing: Drawing) -> str:
    """Losses by epoch; empty without any."""
    if training is None or not training.epochs:
        return ""
    epochs = training.epochs
    return drawing.html(
        charts.loss_curve(
            [e.epoch for e in epochs],
            [e.train for e in epochs],
            [e.selection for e in epochs],
            (training.best_epoch, training.best_selection),
            unit="pinball loss",
        )
    )


def calibration_chart(found: CalibrationFacts | None, drawing: Drawing) -> str:
    """Observed against nominal coverage; empty without any."""
    if found is None:
        return ""
    matrices = [np.asarray(matrix, np.float64) for matrix in (found.observed, found.lower, found.upper)]
    return drawing.html(charts.calibration(found.levels, [sessions(h) for h in found.horizons], *matrices))
