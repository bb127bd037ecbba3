"""How good forecasts were: pinball loss, coverage, and what of it is luck.

Windows overlap and symbols move together, so uncertainty comes from resampling blocks of decision days, all symbols of
a day together (circular block bootstrap, Politis & Romano 1992).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

RESAMPLES = 1000
LEVEL = 0.9
"""Share of resamples inside the intervals that are reported."""

FEWEST_BLOCKS = 5
"""Blocks of days that must fit into the split before an interval can tell skill from luck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and the range that `LEVEL` of the resamples fall into."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """What is compared: outcomes of N windows and the day each was decided on."""

    outcomes: FloatArray
    """[N, H] in the target's unit, NaN where unknown."""
    positions: NDArray[np.int64]
    """[N] decision days, as positions on the date axis, not falling."""
    horizons: tuple[int, ...]
    levels: tuple[float, ...]
    spread: FloatArray
    """[H] how the target's scale grows with the horizon."""

    @property
    def block(self) -> int:
        """Sessions a block of the bootstrap: the longest horizon, at least 20; shorter if too few days are there.

        A single block would be all days in every resample, and the interval a point.
        """
        return max(1, min(self.wanted_block, self.days // FEWEST_BLOCKS))

    @property
    def wanted_block(self) -> int:
        """Sessions after which windows no longer share outcomes: the longest horizon, at least 20."""
        return max(20, self.horizons[-1])

    @property
    def days(self) -> int:
        """Different decision days."""
        return len(np.unique(self.positions))

    @property
    def days_short(self) -> int:
        """Decision days that are missing before the split is long enough to tell skill from luck; 0 if it is."""
        return max(0, FEWEST_BLOCKS * self.wanted_block - self.days)


def pinball(judged: Judged, forecasts: FloatArray) -> FloatArray:
    """[N, H] pinball loss of forecasts [N, H, Q], mean over the quantiles, in the target's unit."""
    levels = np.array(judged.levels)
    error = judged.outcomes[..., None] - forecasts
    return np.maximum(levels * error, (levels - 1) * error).mean(-1)


def overall(judged: Judged, losses: FloatArray) -> FloatArray:
    """[N] a window's loss over its horizons, each divided by its spread so that they weigh alike."""
    return np.nanmean(losses / judged.spread, axis=1)


def below(judged: Judged, forecasts: FloatArray) -> FloatArray:
    """[N, H, Q] 1 where the outcome fell to or below the quantile, 0 where above, NaN where unknown."""
    fell = (judged.outcomes[..., None] <= forecasts).astype(np.float64)
    fell[np.isnan(judged.outcomes)] = np.nan
    return fell


def by_day(judged: Judged, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sums over each decision day's windows and how many were known: two arrays [D, …] from values [N, …]."""
    _, days = np.unique(judged.positions, return_inverse=True)
    shape = (int(days.max()) + 1, *values.shape[1:])
    total, count = np.zeros(shape), np.zeros(shape)
    known = np.isfinite(values)
    np.add.at(total, days, np.where(known, values, 0.0))
    np.add.at(count, days, known.astype(np.float64))
    return total, count


def resampled_mean(judged: Judged, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The mean of values [N, …] over known windows, and [RESAMPLES, …] means of resampled blocks of days."""
    total, count = by_day(judged, values)
    weights = _block_weights(len(total), judged.block)
    means = np.tensordot(weights, total, axes=1) / np.tensordot(weights, count, axes=1)
    return total.sum(axis=0) / count.sum(axis=0), means


def interval(value: float, resamples: FloatArray) -> Interval:
    """The middle `LEVEL` of the resamples around a value."""
    lower, upper = np.quantile(resamples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value=value, lower=float(lower), upper=float(upper))


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """How much smaller a model's loss is than the best baseline's, as a share of it."""

    baseline: str
    improvement: Interval
    days_short: int = 0
    """Decision days that the split lacks for any verdict."""

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
    """Compare a model's forecasts [N, H, Q] with the best of the baselines on the same windows, day by day."""
    ours = overall(judged, pinball(judged, model))
    theirs = {name: overall(judged, pinball(judged, forecast)) for name, forecast in baselines.items()}
    best = min(theirs, key=lambda name: float(np.nanmean(theirs[name])))
    pair = np.stack([ours, theirs[best]], axis=-1)
    means, resamples = resampled_mean(judged, pair)
    improvement = 1 - means[0] / means[1]
    return Skill(
        baseline=best,
        improvement=interval(float(improvement), 1 - resamples[:, 0] / resamples[:, 1]),
        days_short=judged.days_short,
    )


def _block_weights(days: int, block: int) -> FloatArray:
    """[RESAMPLES, D] how often each day is drawn when blocks of days are drawn around a circle."""
    random = np.random.default_rng(0)
    blocks = -(-days // block)
    starts = random.integers(0, days, (RESAMPLES, blocks))
    drawn = (starts[..., None] + np.arange(block)) % days
    drawn = drawn.reshape(RESAMPLES, -1)[:, :days]
    weights = np.zeros((RESAMPLES, days))
    np.add.at(weights, (np.arange(RESAMPLES)[:, None], drawn), 1.0)
    return weights
