"""Forecasts against each other on the same windows: paired by day, with what may be luck."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from predictor.skill import Verdict
from trainers.stock.evaluation.hac import newey_west
from trainers.stock.evaluation.judged import Judged
from trainers.stock.evaluation.losses import overall
from trainers.stock.evaluation.resampling import LEVEL, Interval, by_day, interval, quotient, resampled_mean

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How much smaller one forecast's losses are than another's, as a share of the other's."""

    baseline: str
    improvement: Interval
    """Over all horizons, each divided by its spread."""
    by_horizon: tuple[Interval, ...]
    """[H]"""
    t: float | None
    """Diebold & Mariano's (1995) statistic of the daily differences, positive where the other's loss is larger; the
    errors are Newey-West's, stretched as intervals are. None without the package statsmodels, or where nothing
    differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """How much smaller a model's loss is than the best baseline's, as a share of it."""

    baseline: str
    improvement: Interval
    days_short: int = 0
    """Decision days that the split lacks for any verdict."""

    @property
    def verdict(self) -> Verdict:
        """Whether the improvement can be told from luck."""
        if self.days_short:
            return Verdict.UNDECIDED
        if self.improvement.lower > 0:
            return Verdict.BETTER
        return Verdict.WORSE if self.improvement.upper < 0 else Verdict.UNDECIDED

    @property
    def sentence(self) -> str:
        """One sentence that says whether there is skill, with its uncertainty."""
        i = self.improvement
        figures = (
            f"{100 * i.value:+.1f} % ({100 * LEVEL:.0f} % interval {100 * i.lower:+.1f} % to {100 * i.upper:+.1f} %)"
        )
        if self.days_short:
            return (
                f"No skill shown: the test split is {self.days_short} days too short to tell skill from luck; on it "
                f"the improvement on the best baseline, {self.baseline}, is {figures}."
            )
        if i.lower > 0:
            return (
                f"Skill: on held-out days the loss is better than the best baseline's, {self.baseline}, by {figures}."
            )
        if i.upper < 0:
            return (
                f"No skill: on held-out days the loss is worse than the best baseline's, {self.baseline}; "
                f"improvement {figures}."
            )
        return (
            f"No skill shown: on held-out days the loss is not told apart from the best baseline's, {self.baseline}; "
            f"improvement {figures}."
        )


def skill(judged: Judged, model: FloatArray, baselines: Mapping[str, FloatArray]) -> Skill:
    """Compare a model with the best of the baselines on the same windows, day by day.

    Args:
        judged: the windows.
        model: [N, H] its losses.
        baselines: [N, H] theirs, by name.
    """
    means = {name: float(np.nanmean(overall(judged, losses))) for name, losses in baselines.items()}
    best = min(means, key=lambda name: means[name])
    return Skill(
        baseline=best,
        improvement=improvement(judged, overall(judged, model), overall(judged, baselines[best])),
        days_short=judged.days_short,
    )


def compare(judged: Judged, model: FloatArray, other: FloatArray, name: str) -> Comparison:
    """A model's losses [N, H] beside another's, which has this name."""
    ours, theirs = overall(judged, model), overall(judged, other)
    return Comparison(
        baseline=name,
        improvement=improvement(judged, ours, theirs),
        by_horizon=tuple(improvement(judged, ours, theirs) for ours, theirs in zip(model.T, other.T, strict=True)),
        t=_diebold_mariano(judged, theirs - ours),
    )


def improvement(judged: Judged, ours: FloatArray, theirs: FloatArray) -> Interval:
    """1 - ours / theirs of losses [N]; NaN where theirs are 0, on which nothing can improve."""
    both = np.stack([ours, theirs], axis=-1)
    both[np.isnan(both).any(axis=-1)] = nan
    means, resamples = resampled_mean(judged, both)
    return interval(float(_gain(means)), _gain(resamples))


def _gain(means: FloatArray) -> FloatArray:
    return 1 - quotient(means[..., 0], means[..., 1])


def _diebold_mariano(judged: Judged, differences: FloatArray) -> float | None:
    total, count = by_day(judged, differences)
    daily = total[count > 0] / count[count > 0]
    found = newey_west(daily, judged.block)
    if found is None or found[1] <= 0:
        return None
    return found[0] / (found[1] * judged.stretch)
