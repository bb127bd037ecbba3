"""Metrics besides the pinball loss, and the formatting of numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Final

import numpy as np

from predictor.report import NOTHING
from trainers.stock.evaluation.evaluation import ModelEvaluation
from trainers.stock.evaluation.evaluation_set import Interval
from trainers.stock.evaluation.scores import HorizonScores, ModelScores

SCALE: Final = 10_000
"""Losses are multiplied by this for display."""
_LARGE: Final = 1000

_RISKS: Final = (0.5, 0.9)
"""Levels of the TFT paper's P50 and P90 risk."""


def loss_text(value: float) -> str:
    """A loss times `SCALE`, with three or four digits."""
    scaled = SCALE * value
    return f"{scaled:,.2f}" if scaled < _LARGE else f"{scaled:,.0f}"


def share_text(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f} %"


def gain_text(value: float) -> str:
    """A share in percent with its sign; empty if not finite."""
    return f"{100 * value:+.1f} %" if isfinite(value) else ""


def plain_text(value: float) -> str:
    """A number without a unit."""
    return f"{value:.3f}"


def span_text(interval: Interval, show: Callable[[float], str]) -> str:
    """Lower and upper end, with the unit once; empty if unknown."""
    return f"{show(interval.lower).removesuffix(' %')} to {show(interval.upper)}" if isfinite(interval.lower) else ""


def band_text(evaluation: ModelEvaluation) -> str:
    """The band from the lowest to the highest quantile, as text."""
    return f"in {100 * evaluation.levels[0]:g}–{100 * evaluation.levels[-1]:g} %"  # noqa: RUF001 - a range


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One column of scores."""

    name: str
    score: Callable[[HorizonScores], Interval | float | None]
    """The score of one horizon, with an interval if available."""
    show: Callable[[float], str]
    grows: bool = False
    """Whether it grows with the horizon as outcomes do."""

    def of(self, horizon: HorizonScores) -> float | None:
        """The value at one horizon; None if undefined."""
        score = self.score(horizon)
        return score.value if isinstance(score, Interval) else score

    def interval(self, horizon: HorizonScores) -> Interval | None:
        """The interval at one horizon; None if unavailable."""
        score = self.score(horizon)
        return score if isinstance(score, Interval) else None

    def shown(self, value: float | None) -> str:
        """The value as text; a dash if undefined."""
        return NOTHING if value is None or not isfinite(value) else self.show(value)

    def mean(self, evaluation: ModelEvaluation, row: ModelScores) -> float | None:
        """Mean over horizons, divided by their spread first if it grows with them; None if undefined at all."""
        spread = evaluation.target.spread if self.grows else np.ones(len(row.horizons))
        values = [self.of(h) for h in row.horizons]
        known = [value / by for value, by in zip(values, spread, strict=True) if value is not None]
        return float(np.mean(known)) if known else None


def metrics_of(evaluation: ModelEvaluation, rows: tuple[ModelScores, ...]) -> tuple[Metric, ...]:
    """The metrics that at least one row has."""
    return tuple(one for one in _all(evaluation) if any(one.of(h) is not None for row in rows for h in row.horizons))


def _all(evaluation: ModelEvaluation) -> tuple[Metric, ...]:
    return (
        Metric(name="CRPS", score=lambda h: h.crps, show=loss_text, grows=True),
        *(_risk(evaluation, place) for place, level in enumerate(evaluation.levels) if level in _RISKS),
        Metric(name=band_text(evaluation), score=lambda h: h.band, show=share_text),
        Metric(name="Winkler", score=lambda h: h.winkler, show=loss_text, grows=True),
        Metric(name="MAE", score=lambda h: h.mae, show=loss_text, grows=True),
        Metric(name="QLIKE", score=lambda h: h.qlike, show=plain_text),
        Metric(name="IC", score=lambda h: h.correlation.ic, show=plain_text),
        Metric(name="RankIC", score=lambda h: h.correlation.rank_ic, show=plain_text),
        Metric(name="ICIR", score=lambda h: h.correlation.icir, show=plain_text),
    )


def _risk(evaluation: ModelEvaluation, place: int) -> Metric:
    return Metric(name=f"P{100 * evaluation.levels[place]:.0f} risk", score=lambda h: h.risk[place], show=plain_text)
