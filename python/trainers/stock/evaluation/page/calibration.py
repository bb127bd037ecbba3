"""Whether outcomes fall where the quantiles say, before and after the conformal offsets."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from predictor import charts
from predictor.report import Drawing, Grid, Line
from predictor.report.texts import level, sessions
from trainers.stock.evaluation.calibration import Calibration
from trainers.stock.evaluation.evaluation import Evaluation
from trainers.stock.evaluation.page.cells import interval_cell, number_cell
from trainers.stock.evaluation.resampling import Interval
from trainers.stock.evaluation.scores import HorizonScores, ModelScores
from trainers.stock.evaluation.words import band_text, gain_text, loss_text, share_text

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure under its name."""

    name: str
    html: str


def coverage_charts(found: Evaluation, drawing: Drawing) -> tuple[Chart, ...]:
    """How far each quantile's coverage is off, one figure for each way of calibrating, all on the same axis."""
    rows = _variants(found.calibration)
    reach = 1.05 * max(_farthest(row, found.levels) for row in rows)
    return tuple(Chart(name=row.name, html=_coverage_chart(row, found, reach, drawing)) for row in rows)


def _variants(made: Calibration) -> tuple[ModelScores, ...]:
    return (made.before, made.after) if made.adaptive is None else (made.before, made.after, made.adaptive)


def _farthest(row: ModelScores, levels: tuple[float, ...]) -> float:
    _, lower, upper = _below(row)
    return float(np.nanmax(np.abs([lower - levels, upper - levels])))


def _coverage_chart(row: ModelScores, found: Evaluation, reach: float, drawing: Drawing) -> str:
    series = [sessions(h) for h in found.target.horizons]
    return drawing.html(charts.calibration(found.levels, series, *_below(row), reach=reach))


def _below(row: ModelScores) -> FloatArray:
    """[3, H, Q] share of outcomes at or below each quantile, lower and upper end."""
    return np.moveaxis(np.array([[(i.value, i.lower, i.upper) for i in h.below] for h in row.horizons]), -1, 0)


def coverage_grid(found: Evaluation) -> Grid:
    """The figures of the charts: one line a way of calibrating and horizon."""
    return Grid(
        columns=tuple(f"below {level(one)}" for one in found.levels),
        lines=tuple(
            Line(
                name=f"{sessions(h.horizon)}, {row.name}",
                cells=tuple(interval_cell(share, share_text) for share in h.below),
                is_model=row is found.calibration.after,
            )
            for row in _variants(found.calibration)
            for h in row.horizons
        ),
    )


def winkler_grid(found: Evaluation) -> Grid:
    """Coverage of the band and Winkler score before and after, one line a horizon, and one of adaptive offsets."""
    band = band_text(found)
    return Grid(
        columns=("blocks", f"{band}, before", "after", "Winkler, before", "after", "less by"),
        lines=tuple(_winkler_lines(found.calibration)),
    )


def _winkler_lines(made: Calibration) -> Iterator[Line]:
    for h, before in enumerate(made.before.horizons):
        blocks = made.effective_blocks[h]
        yield _winkler_line(sessions(before.horizon), blocks, before, made.after.horizons[h], made.gain[h])
        if made.adaptive is not None and made.adaptive_gain is not None:
            name = f"{sessions(before.horizon)}, adaptive"
            yield _winkler_line(name, None, before, made.adaptive.horizons[h], made.adaptive_gain[h])


def _winkler_line(name: str, blocks: float | None, before: HorizonScores, after: HorizonScores, gain: Interval) -> Line:
    cells = (
        number_cell(blocks, lambda count: f"{count:.0f}"),
        interval_cell(before.band, share_text),
        interval_cell(after.band, share_text),
        interval_cell(before.winkler, loss_text),
        interval_cell(after.winkler, loss_text),
        interval_cell(gain, gain_text),
    )
    return Line(name=name, cells=cells)


def pit_charts(found: Evaluation, drawing: Drawing) -> tuple[Chart, ...]:
    """The histogram of each horizon, with the band of a calibrated forecast."""
    charted: list[Chart] = []
    for one in found.pit:
        name = sessions(one.horizon)
        shares = np.array([(i.value, i.lower, i.upper) for i in one.shares]).T
        charted.append(Chart(name=name, html=drawing.html(charts.pit_histogram(name, one.edges, *shares))))
    return tuple(charted)


def pit_grid(found: Evaluation) -> Grid:
    """The shares of the histograms, and those of a calibrated forecast."""
    first = found.pit[0]
    edges = [f"{100 * edge:g}" for edge in first.edges]
    calibrated = Line(name="calibrated", cells=tuple(number_cell(one, share_text) for one in first.expected))
    lines = (
        Line(name=sessions(one.horizon), cells=tuple(interval_cell(share, share_text) for share in one.shares))
        for one in found.pit
    )
    columns = tuple(f"{a}–{b} %" for a, b in pairwise(edges))  # noqa: RUF001 - a range
    return Grid(columns=columns, lines=(calibrated, *lines))
