"""Numbers of an evaluation as cells of a table."""

from collections.abc import Callable
from math import isfinite

from predictor.report import Cell
from trainers.stock.evaluation.metrics import Metric
from trainers.stock.evaluation.resampling import Interval
from trainers.stock.evaluation.scores import HorizonScores
from trainers.stock.evaluation.seeds import Spread
from trainers.stock.evaluation.words import NOTHING, span_text


def number_cell(value: float | None, show: Callable[[float], str]) -> Cell:
    """A number alone; a dash where there is none."""
    if value is None or not isfinite(value):
        return Cell(value=None, text=NOTHING)
    return Cell(value=value, text=show(value))


def interval_cell(found: Interval, show: Callable[[float], str], *, is_best: bool = False) -> Cell:
    """An estimate and below it its interval."""
    if not isfinite(found.value):
        return Cell(value=None, text=NOTHING)
    return Cell(value=found.value, text=show(found.value), beside=span_text(found, show), is_best=is_best)


def spread_cell(found: Spread, show: Callable[[float], str]) -> Cell:
    """A mean over trainings and below it its standard deviation."""
    return Cell(value=found.mean, text=show(found.mean), beside=f"± {show(found.sd)}")


def mean_cell(metric: Metric, value: float | None) -> Cell:
    """A mean over horizons as its metric shows it."""
    return number_cell(value, metric.show)


def metric_cell(metric: Metric, horizon: HorizonScores) -> Cell:
    """The score of one horizon, and below it its interval where it has one."""
    found = metric.interval(horizon)
    return number_cell(metric.of(horizon), metric.show) if found is None else interval_cell(found, metric.show)
