"""The scores beside the pinball loss that a target and its quantiles allow, each with the way it is shown."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Final

import numpy as np

from trainers.stock.evaluation.evaluation import Evaluation
from trainers.stock.evaluation.resampling import Interval
from trainers.stock.evaluation.scores import HorizonScores, ModelScores
from trainers.stock.evaluation.words import NOTHING, band_text, loss_text, plain_text, share_text

_RISKS: Final = (0.5, 0.9)
"""Levels of the TFT paper's P50 and P90 risk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One column of scores."""

    name: str
    of: Callable[[HorizonScores], float | None]
    show: Callable[[float], str]
    grows: bool = False
    """Whether it grows with the horizon as the outcomes do."""

    def shown(self, value: float | None) -> str:
        """The value for people; a dash where there is none."""
        return NOTHING if value is None or not isfinite(value) else self.show(value)

    def mean(self, found: Evaluation, row: ModelScores) -> float | None:
        """Over horizons; what grows with them is divided by their spread first. None where no horizon has it."""
        spread = found.target.spread if self.grows else np.ones(len(row.horizons))
        values = [self.of(h) for h in row.horizons]
        known = [value / by for value, by in zip(values, spread, strict=True) if value is not None]
        return float(np.mean(known)) if known else None


def metrics_of(found: Evaluation, rows: tuple[ModelScores, ...]) -> tuple[Metric, ...]:
    """Those that at least one of the rows has."""
    return tuple(one for one in _all(found) if any(one.of(h) is not None for row in rows for h in row.horizons))


def _all(found: Evaluation) -> tuple[Metric, ...]:
    return (
        Metric(name="CRPS", of=lambda h: h.crps.value, show=loss_text, grows=True),
        *(_risk(found, place) for place, level in enumerate(found.levels) if level in _RISKS),
        Metric(name=band_text(found), of=lambda h: h.band.value, show=share_text),
        Metric(name="Winkler", of=lambda h: h.winkler.value, show=loss_text, grows=True),
        Metric(name="MAE", of=lambda h: h.mae.value, show=loss_text, grows=True),
        Metric(name="QLIKE", of=lambda h: _value(h.qlike), show=plain_text),
        Metric(name="IC", of=lambda h: _value(h.correlation.ic), show=plain_text),
        Metric(name="RankIC", of=lambda h: _value(h.correlation.rank_ic), show=plain_text),
        Metric(name="ICIR", of=lambda h: h.correlation.icir, show=plain_text),
    )


def _risk(found: Evaluation, place: int) -> Metric:
    return Metric(name=f"P{100 * found.levels[place]:.0f} risk", of=lambda h: h.risk[place], show=plain_text)


def _value(found: Interval | None) -> float | None:
    return None if found is None else found.value
